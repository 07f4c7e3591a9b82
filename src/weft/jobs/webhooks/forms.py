"""The bodies of deliveries, made of what is stored: the same bytes for every attempt. Pure.

A form is a function of what is told; FORMS has them by the name that an order carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from weft.jobs.compat.hooks import firecrawl_form
from weft.jobs.service import ScrapedResult
from weft.jobs.webhooks.notification import Telling
from weft.jobs.webhooks.signatures import body_signature, signature
from weft.scraping import HookEvent
from weft.store.export.facts import iso

LARGEST_BODY = 8 << 20  # a page that is larger is told without its document


Form = Callable[[Telling], dict[str, Any]]


def weft_form(told: Telling) -> dict[str, Any]:
    """Weft's own."""
    task = told.task
    if told.result is not None:
        data = told.result.whole
    elif told.event is HookEvent.STARTED:
        data = {"url": task.url, "status": "RUNNING", "urls": task.url_count}
    else:
        progress = {name: getattr(task.progress, name) for name in task.progress.__struct_fields__}
        data = {
            "url": task.url, "status": task.state, "finish_reason": task.finish_reason, "message": task.message,
            "progress": {"discovered": task.progress.discovered, **progress}, "errors_by_class": task.errors_by_class,
        }  # fmt: skip
        if told.changes is not None:
            data |= {"site": told.changes.site, "changes": msgspec.to_builtins(told.changes)}
    body = {"type": told.event, "id": told.id, "task_id": task.id, "number": told.number, "at": iso(told.at)}
    return body | {"data": data, "metadata": told.order.metadata}


FORMS: Mapping[str, Form] = {"weft": weft_form, "firecrawl": firecrawl_form}


def body_of(told: Telling) -> bytes:
    """What is sent."""
    form = FORMS[told.order.form]
    body = msgspec.json.encode(form(told))
    if len(body) > LARGEST_BODY and told.result is not None:
        brief = {"url": told.result.url, "omitted": f"{len(body):,} bytes are too many: ask for the task's results"}
        body = msgspec.json.encode(form(msgspec.structs.replace(told, result=_with_document(told.result, brief))))
    return body


def headers_of(told: Telling, secret: str, body: bytes, timestamp: int) -> list[tuple[str, str]]:
    """What is sent with it; a caller's own headers cannot replace ours."""
    ours = [
        ("Content-Type", "application/json"),
        ("webhook-id", told.id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature(secret, told.id, timestamp, body)),
    ]
    if told.order.form != "weft":
        ours.append(("X-Firecrawl-Signature", body_signature(secret, body)))
    names = {name.lower() for name, _ in ours}
    return [pair for pair in told.order.headers.items() if pair[0].lower() not in names] + ours


def _with_document(result: ScrapedResult, document: dict[str, Any]) -> ScrapedResult:
    return msgspec.structs.replace(result, document=document)
