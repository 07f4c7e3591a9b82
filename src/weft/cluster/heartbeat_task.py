"""The task that says that a hand is alive: it gives the token back. One of the scheduler is a tick, and counts once."""

from __future__ import annotations

from typing import Any

from weft.cluster.supervised.ticks import Ticks
from weft.cluster.tasks import HandSide


def run(body: dict[str, Any], side: HandSide) -> dict[str, Any]:
    """The token that was sent, and who sends it back."""
    if "tick" in body:
        ticks = Ticks(side.broker)
        ticks.claim(str(body.get("entry", ""))[:50], int(body["tick"]), int(body["every"]), side.hand)
    return {"token": body.get("token"), "hand": side.hand}
