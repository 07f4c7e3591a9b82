"""Firecrawl's own form of webhooks, for tasks that came over its routes. Pure."""

from __future__ import annotations

from typing import Any

from weft.jobs.compat.wire import document, warning_of
from weft.jobs.webhooks.notification import Telling
from weft.scraping import HookEvent

_KINDS = {"firecrawl batch": "batch_scrape"}


def firecrawl_form(told: Telling) -> dict[str, Any]:
    """As its clients expect: `webhookId` is the same for every attempt."""
    task = told.task
    kind = _KINDS.get(task.spec.kind, "crawl")
    body: dict[str, Any] = {
        "success": told.event is not HookEvent.FAILED,
        "type": f"{kind}.{told.event}",
        "id": task.id,
        "webhookId": told.id,
        "data": [] if told.result is None else [document(told.result, task)],
        "metadata": told.order.metadata,
    }
    if told.event is HookEvent.FAILED:
        body["error"] = warning_of(task)
    return body
