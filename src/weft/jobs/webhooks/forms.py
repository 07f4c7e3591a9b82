"""Makes the bodies of deliveries from stored data: the same bytes for every attempt. Pure functions.

A form converts a notification to JSON values; FORMS has them by the name in the webhook's `form`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from weft.jobs.compat.hooks import firecrawl_form
from weft.jobs.service import ScrapedResult
from weft.jobs.webhooks.notification import Notification
from weft.jobs.webhooks.signatures import body_signature, signature
from weft.scraping import HookEvent
from weft.store.export.facts import iso_time

LARGEST_BODY = 8 << 20  # a page that is larger is sent without its document


Form = Callable[[Notification], dict[str, Any]]


def weft_form(notification: Notification) -> dict[str, Any]:
    """Weft's own format."""
    task = notification.task
    if notification.result is not None:
        data = notification.result.whole
    elif notification.event is HookEvent.STARTED:
        data = {"url": task.url, "status": "RUNNING", "urls": task.url_count}
    else:
        progress = {name: getattr(task.progress, name) for name in task.progress.__struct_fields__}
        data = {
            "url": task.url, "status": task.state, "finish_reason": task.finish_reason, "message": task.message,
            "progress": {"discovered": task.progress.discovered, **progress}, "errors_by_class": task.errors_by_class,
        }  # fmt: skip
        if notification.changes is not None:
            data |= {"site": notification.changes.site, "changes": msgspec.to_builtins(notification.changes)}
    body = {
        "type": notification.event,
        "id": notification.id,
        "task_id": task.id,
        "number": notification.number,
        "at": iso_time(notification.at),
    }
    return body | {"data": data, "metadata": notification.hook_spec.metadata}


FORMS: Mapping[str, Form] = {"weft": weft_form, "firecrawl": firecrawl_form}


def body_of(notification: Notification) -> bytes:
    """The body of a delivery."""
    form = FORMS[notification.hook_spec.form]
    body = msgspec.json.encode(form(notification))
    if len(body) > LARGEST_BODY and notification.result is not None:
        brief = {
            "url": notification.result.url,
            "omitted": f"{len(body):,} bytes are too many: ask for the task's results",
        }
        body = msgspec.json.encode(
            form(msgspec.structs.replace(notification, result=_with_document(notification.result, brief)))
        )
    return body


def headers_of(notification: Notification, secret: str, body: bytes, timestamp: int) -> list[tuple[str, str]]:
    """The headers of a delivery; the webhook's own headers cannot replace ours."""
    ours = [
        ("Content-Type", "application/json"),
        ("webhook-id", notification.id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature(secret, notification.id, timestamp, body)),
    ]
    if notification.hook_spec.form != "weft":
        ours.append(("X-Firecrawl-Signature", body_signature(secret, body)))
    names = {name.lower() for name, _ in ours}
    return [pair for pair in notification.hook_spec.headers.items() if pair[0].lower() not in names] + ours


def _with_document(result: ScrapedResult, document: dict[str, Any]) -> ScrapedResult:
    return msgspec.structs.replace(result, document=document)
