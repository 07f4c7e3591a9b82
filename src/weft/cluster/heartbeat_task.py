"""The task that says that a hand is alive: it gives the token back."""

from __future__ import annotations

from typing import Any

from weft.cluster.tasks import HandSide


def run(body: dict[str, Any], side: HandSide) -> dict[str, Any]:
    """The token that was sent, and who sends it back."""
    return {"token": body.get("token"), "hand": side.hand}
