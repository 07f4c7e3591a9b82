"""Validates the webhook of a task: where it may send, and which headers and metadata it may carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.errors import BadUrl
from weft.jobs.api.problems import Refusal
from weft.jobs.targets import check_target
from weft.jobs.webhooks.webhook_model import HookSpec, problem_of_webhook
from weft.scraping import WebhookOrder


def webhook_of(given: str | Mapping[str, Any] | None, allow_private: bool, form: str = "weft") -> dict[str, Any] | None:
    """The webhook as the task stores it, from fields whose types were checked; raises Refusal, which names what is
    wrong."""
    if given is None:
        return None
    webhook_fields = WebhookOrder(given) if isinstance(given, str) else msgspec.convert(given, WebhookOrder)
    try:
        url = check_target(webhook_fields.url, allow_private)
    except BadUrl as error:
        raise Refusal.of_field("webhook", str(error).replace("tasks may", "webhooks may")) from None
    if problem := problem_of_webhook(webhook_fields):
        raise Refusal.of_field(*problem)
    webhook: dict[str, Any] = msgspec.to_builtins(HookSpec.of(webhook_fields, url, form))
    return webhook
