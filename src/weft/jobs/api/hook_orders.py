"""Webhooks as callers order them, checked: where they may go, and which headers may be sent along."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.errors import BadUrl
from weft.jobs.api import schemas
from weft.jobs.api.problems import Refusal
from weft.jobs.api.targets import check_target
from weft.jobs.webhooks.model import HookOrder, unsendable

MOST_METADATA = 16 * 1024  # bytes


def webhook_of(
    given: str | schemas.WebhookOrder | None, allow_private: bool, form: str = "weft"
) -> dict[str, Any] | None:
    """What is kept of an order; a Refusal names what is wrong with it."""
    if given is None:
        return None
    order = schemas.WebhookOrder.model_construct(url=given) if isinstance(given, str) else given
    try:
        url = check_target(order.url, allow_private)
    except BadUrl as error:
        raise Refusal.of_field("webhook", str(error).replace("tasks may", "webhooks may")) from None
    if wrong := unsendable(order.headers):
        raise Refusal.of_field("webhook.headers", wrong)
    if len(msgspec.json.encode(order.metadata)) > MOST_METADATA:
        raise Refusal.of_field("webhook.metadata", f"at most {MOST_METADATA:,} bytes")
    made = HookOrder(
        url=url, events=tuple(dict.fromkeys(order.events)), headers=order.headers, metadata=order.metadata, form=form
    )
    found: dict[str, Any] = msgspec.to_builtins(made)
    return found
