"""Webhooks as callers order them, checked: where they may go, and which headers may be sent along."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.errors import BadUrl
from weft.jobs.api import schemas
from weft.jobs.api.problems import Refusal
from weft.jobs.targets import check_target
from weft.jobs.webhooks.model import HookOrder, unsendable

MOST_METADATA = 16 * 1024  # bytes
DEEPEST_METADATA = 32


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
    try:
        size = len(msgspec.msgpack.encode(order.metadata))
    except OverflowError:
        raise Refusal.of_field("webhook.metadata", "whole numbers must fit into 64 bits") from None
    if size > MOST_METADATA:
        raise Refusal.of_field("webhook.metadata", f"at most {MOST_METADATA:,} bytes")
    if not _is_flat(order.metadata, DEEPEST_METADATA):
        raise Refusal.of_field("webhook.metadata", f"is nested more than {DEEPEST_METADATA} deep")
    made = HookOrder(
        url=url, events=tuple(dict.fromkeys(order.events)), headers=order.headers, metadata=order.metadata, form=form
    )
    found: dict[str, Any] = msgspec.to_builtins(made)
    return found


def _is_flat(value: object, depth: int) -> bool:
    """Whether lists and objects in a value are nested at most so deep."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_flat(one, depth - 1) for one in inner)
