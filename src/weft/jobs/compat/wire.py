"""Answers in Firecrawl's format: documents, job status, errors. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.extract.kind import BodyKind, kind_of
from weft.jobs.model import Task
from weft.jobs.service import Failure, ScrapedResult, TaskSnapshot
from weft.scraping import ErrorClass, FinishReason, TaskState
from weft.store.export.facts import iso_time

_STATE_NAMES = {
    TaskState.COMPLETED: "completed",
    TaskState.PARTIAL: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}
_ERROR_CODES = {
    ErrorClass.TIMEOUT: "SCRAPE_TIMEOUT",
    ErrorClass.DNS: "SCRAPE_DNS_RESOLUTION_ERROR",
    ErrorClass.TLS: "SCRAPE_SSL_ERROR",
    ErrorClass.TOO_LARGE: "SCRAPE_UNSUPPORTED_FILE_ERROR",
    ErrorClass.HTTP_4XX: "SCRAPE_SITE_ERROR",
    ErrorClass.HTTP_5XX: "SCRAPE_SITE_ERROR",
    ErrorClass.ROBOTS: "CRAWL_DENIAL",
    ErrorClass.BLOCKED: "UNSUPPORTED_SITE",
}
_TEXT_FORMATS = ("markdown", "html", "rawHtml", "links", "images")
_OPEN_GRAPH = {
    "title": "ogTitle", "description": "ogDescription", "url": "ogUrl", "image": "ogImage", "audio": "ogAudio",
    "locale": "ogLocale", "site_name": "ogSiteName", "video": "ogVideo",
}  # fmt: skip


def state_of(task: Task) -> str:
    """Firecrawl's name for the state of a task."""
    return _STATE_NAMES.get(task.state, "scraping")


def error_code(failure: Failure) -> str:
    """Firecrawl's error code for a page that failed."""
    return _ERROR_CODES.get(failure.error_class, "SCRAPE_ALL_ENGINES_FAILED")


def document(result: ScrapedResult, task: Task) -> dict[str, Any]:
    """One page. `url` is always set and unique within a job: clients identify documents by it."""
    document = result.document
    made: dict[str, Any] = {name: document[name] for name in (*_TEXT_FORMATS, "screenshot") if name in document}
    if pairs := task.spec.extra.get("attributes"):
        fields = document.get("fields") or {}
        made["attributes"] = [
            {"selector": selector, "attribute": attribute, "values": fields.get(f"a{number}") or []}
            for number, (selector, attribute) in enumerate(pairs)
        ]
    if any(name in document for name in ("screenshots", "pdf")):
        made["actions"] = {
            "screenshots": document.get("screenshots", []), "pdfs": [document["pdf"]] if "pdf" in document else [],
            "scrapes": [], "javascriptReturns": [],
        }  # fmt: skip
    kind = str(document.get("content_type") or "")
    if "unparsed" in document:
        made["warning"] = f"the page could not be parsed: {document['unparsed']}"
    elif document.get("markdown") == "" and kind_of(b"", kind) is BodyKind.OTHER:
        # Firecrawl reads PDF: say why there is no text here
        made["warning"] = f"{kind[:100]} is not read: there is no text of it"
    return made | {"url": result.url, "metadata": _metadata(result, task)}


def _metadata(result: ScrapedResult, task: Task) -> dict[str, Any]:
    document, metadata = result.document, result.document.get("metadata") or {}
    graph = metadata.get("open_graph") or {}
    facts = {
        "title": metadata.get("title") or result.title,
        "description": metadata.get("description"),
        "language": metadata.get("language"),
        "keywords": ", ".join(metadata["keywords"]) if metadata.get("keywords") else None,
        "publishedTime": metadata.get("published"),
        "modifiedTime": metadata.get("modified"),
        **{name: graph.get(own) for own, name in _OPEN_GRAPH.items()},
    }
    return {name: fact for name, fact in facts.items() if fact is not None} | {
        "url": document.get("final_url") or result.url,
        "sourceURL": result.asked_url or result.url,
        "statusCode": result.status,
        "contentType": document.get("content_type") or "",
        "scrapeId": task.id,
        "proxyUsed": "basic",
        "cacheState": "miss",
        "cachedAt": iso_time(result.fetched_at),
        "creditsUsed": 0,
    }


def answered_badly(failure: Failure, task: Task) -> dict[str, Any]:
    """A page that was answered with an error status: as in Firecrawl, the document has that status."""
    empty = {"markdown": "", "html": "", "rawHtml": "", "links": [], "images": []}
    made = {name: value for name, value in empty.items() if name in task.spec.formats}
    return made | {
        "url": failure.url,
        "metadata": {
            "url": failure.url, "sourceURL": task.url, "statusCode": failure.status, "scrapeId": task.id,
            "error": failure.error, "proxyUsed": "basic", "cacheState": "miss",
            "creditsUsed": 0,
        },
    }  # fmt: skip


def job_status(
    status: TaskSnapshot, version: int, documents: Sequence[dict[str, Any]], next_url: str | None, retention_s: float
) -> dict[str, Any]:
    """The status of a job with a page of its documents. Without `next` there are no more now."""
    task, progress = status.task, status.progress
    expires = (task.finished_at or task.created_at + task.spec.timeout_s) + retention_s
    body: dict[str, Any] = {
        "success": True,
        "status": state_of(task),
        "completed": progress.completed,
        "total": progress.ended if task.is_terminal else progress.within(task.spec.max_pages),
        "creditsUsed": 0,
        "expiresAt": iso_time(expires),
        "data": list(documents),
    }
    if next_url is not None:
        body["next"] = next_url
    if warning := warning_of(task):
        body["warning"] = warning
    if version == 2:
        body |= {"createdAt": iso_time(task.created_at), "duration": round(status.duration_s, 3)}
        if task.finished_at is not None:
            body["completedAt"] = iso_time(task.finished_at)
    return body


def warning_of(task: Task) -> str:
    """A warning for the client: what the state alone does not say."""
    warnings = list(task.spec.extra.get("warnings", ()))
    progress = task.progress
    if task.finish_reason is FinishReason.DEADLINE:
        warnings.append("the time limit was reached before everything was scraped")
    elif task.state is TaskState.PARTIAL:
        warnings.append(f"{progress.failed:,} of {progress.ended:,} pages failed: GET .../errors lists them")
    elif task.state is TaskState.FAILED:
        warnings.append(task.message or f"no page could be scraped ({task.finish_reason}): GET .../errors lists why")
    return "; ".join(warnings)


def error_line(task: Task, failure: Failure, version: int) -> dict[str, Any]:
    """The entry of a page that failed."""
    line = {
        "id": f"{task.id}-{failure.number}", "timestamp": iso_time(failure.at),
        "url": failure.url, "error": failure.error,
    }  # fmt: skip
    return line | ({"code": error_code(failure)} if version == 2 else {})
