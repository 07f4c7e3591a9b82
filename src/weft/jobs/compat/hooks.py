"""Firecrawl's webhook format, for tasks that were submitted over its routes. Pure functions."""

from __future__ import annotations

from typing import Any

from weft.jobs.compat.wire import document, warning_of
from weft.jobs.webhooks.notification import Notification
from weft.scraping import HookEvent

_KIND_BY_SOURCE = {"firecrawl batch": "batch_scrape"}


def firecrawl_form(notification: Notification) -> dict[str, Any]:
    """The body of a delivery in Firecrawl's format; `webhookId` is the same for every attempt."""
    task = notification.task
    kind = _KIND_BY_SOURCE.get(task.spec.kind, "crawl")
    body: dict[str, Any] = {
        "success": notification.event is not HookEvent.FAILED,
        "type": f"{kind}.{notification.event}",
        "id": task.id,
        "webhookId": notification.id,
        "data": [] if notification.result is None else [document(notification.result, task)],
        "metadata": notification.hook_spec.metadata,
    }
    if notification.event is HookEvent.FAILED:
        body["error"] = warning_of(task)
    return body
