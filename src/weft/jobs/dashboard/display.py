"""Formats a task for pages and live updates: texts and shares, the same for both."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.jobs.dashboard import text
from weft.jobs.model import JobProgress, Task
from weft.jobs.service import JobEvent, ScrapedResult, TaskSnapshot
from weft.scraping import FinishReason, TaskState

LABELS: Mapping[str, str] = {
    TaskState.PENDING: "Waiting",
    TaskState.RUNNING: "Running",
    TaskState.PAUSED: "Paused",
    TaskState.COMPLETED: "Completed",
    TaskState.PARTIAL: "Partial",
    TaskState.FAILED: "Failed",
    TaskState.CANCELLED: "Cancelled",
}
REASONS: Mapping[str, str] = {
    FinishReason.DONE: "nothing was left to do",
    FinishReason.DEADLINE: "its time limit was reached",
    FinishReason.MAX_PAGES: "its limit of pages was reached",
    FinishReason.MAX_MEMORY: "its limit of memory was reached",
    FinishReason.CANCELLED: "it was cancelled",
    FinishReason.TOO_MANY_ERRORS: "no page could be scraped",
    FinishReason.REFUSED: "none of its URLs could be requested",
    FinishReason.EXPIRED: "it waited too long",
    FinishReason.ERROR: "the engine could not run it",
}
CLASSES: Mapping[str, str] = {
    "timeout": "Timed out",
    "connection": "Connection failed",
    "dns": "Host not found",
    "tls": "TLS failed",
    "http_4xx": "HTTP 4xx",
    "http_5xx": "HTTP 5xx",
    "robots": "Refused by robots.txt",
    "blocked": "Not asked for",
    "too_large": "Too large",
    "parse": "Could not be parsed",
    "other": "Other",
}
_CONTENTS = {  # keys of a document, and their labels
    "markdown": "Markdown", "text": "Text", "fields": "Fields", "summary": "Summary", "html": "HTML",
    "raw_html": "HTML as it came", "links": "Links", "metadata": "Metadata",
}  # fmt: skip
SEGMENTS = ("completed", "gone", "failed", "refused", "in_flight")  # parts of a progress bar, from the left


def row(status: TaskSnapshot, now: float) -> dict[str, Any]:
    """The values of a task in a list that change while it runs."""
    task, progress = status.task, status.progress
    return {
        "id": task.id,
        "state": str(task.state),
        "label": LABELS[task.state],
        "percent": progress.percent(task.spec.max_pages),
        "segments": segments(task, progress),
        "done": text.count(progress.completed),
        "known": text.count(progress.discovered),
        "errors": text.count(progress.failed),
        "rate": text.decimal(status.pages_per_s) if task.state is TaskState.RUNNING else "",
        "took": text.duration(task.duration_s(now)) if task.started_at is not None else "–",
    }


def described(task: Task, now: float) -> dict[str, Any]:
    """The values of a task that do not change: its URL and times."""
    host, path = text.split_url(task.url)
    return {
        "host": host,
        "path": path,
        "kind": text.one_line(task.spec.kind, 20) if task.spec.kind != "scrape" else "",
        "more_urls": task.url_count - 1,
        "created": text.machine_time(task.created_at),
        "created_said": text.clock(task.created_at),
        "age": text.ago(task.created_at, now),
    }


def stored(task: Task) -> TaskSnapshot:
    """The status of a task that does not run, from its stored row."""
    progress = task.progress if task.is_terminal else JobProgress(queued=task.url_count)
    return TaskSnapshot(
        task=task, progress=progress, errors_by_class=task.errors_by_class, duration_s=0.0, remaining_s=None,
        number=task.last_number,
    )  # fmt: skip


def segments(task: Task, progress: JobProgress) -> list[tuple[float, float]]:
    """The start and the width of each part of a progress bar, in percent."""
    whole, at, parts = max(1, progress.within(task.spec.max_pages)), 0.0, []
    for name in SEGMENTS:
        width = min(100 * getattr(progress, name) / whole, 100 - at)
        parts.append((round(at, 2), round(width, 2)))
        at += width
    return parts


def figures(status: TaskSnapshot, body_bytes: int, now: float) -> dict[str, str]:
    """The metrics on a task's own page."""
    task, progress = status.task, status.progress
    counts = {name: text.count(getattr(progress, name)) for name in (*SEGMENTS, "queued", "robots_blocked")}
    return counts | {
        "discovered": text.count(progress.discovered),
        "percent": f"{progress.percent(task.spec.max_pages):g} %",
        "rate": text.decimal(status.pages_per_s) if task.state is TaskState.RUNNING else "–",
        "success": text.percent(progress.success_rate),
        "took": text.duration(task.duration_s(now)) if task.started_at is not None else "–",
        "remaining": text.duration(task.remaining_s(now)),
        "bytes": text.size(body_bytes),
        "waiting": "" if status.waiting_before is None else text.count(status.waiting_before),
        "message": text.one_line(status.message, 500),
    }


def errors(classes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Failures and refusals by class, most frequent first, with their share of the largest class."""
    most = max(classes.values(), default=0) or 1
    return [
        {
            "name": name,
            "title": CLASSES.get(name, name),
            "count": text.count(number),
            "share": round(100 * number / most, 1),
        }
        for name, number in sorted(classes.items(), key=lambda one: (-one[1], one[0]))
    ]


def page(result: ScrapedResult, now: float, most: int) -> dict[str, Any]:
    """A stored page with its content: each format as text of at most `most` characters, the most readable first."""
    document = result.document
    host, path = text.split_url(result.url)
    forms = [(title, document.get(name)) for name, title in _CONTENTS.items()]
    contents = [(title, value if isinstance(value, str) else _json_text(value)) for title, value in forms if value]
    drawn = pictures(result)
    why = str(document.get("unparsed") or "its task has no `formats`: submit it with one, for example markdown")
    return {
        "number": result.number, "title": text.one_line(result.title), "status": result.status or "–",
        "link": text.link(result.url), "host": host, "path": path, "depth": result.depth,
        "type": text.one_line(str(document.get("content_type") or ""), 80),
        "size": text.size(int(document.get("length") or 0)),
        "at": text.machine_time(result.fetched_at), "clock": text.clock(result.fetched_at),
        "ago": text.ago(result.fetched_at, now),
        "contents": [
            {"title": title, "text": text.paragraph(value, most), "length": len(value), "is_cut": len(value) > most}
            for title, value in contents
        ],
        "pictures": [name for name in drawn if name.endswith(".png")],
        "pdf": "page.pdf" if "page.pdf" in drawn else "",
        "empty": f"There is no content to show: {text.one_line(why, 300)}.",
    }  # fmt: skip


def pictures(result: ScrapedResult) -> dict[str, tuple[str, bytes]]:
    """What a browser has made of a page, by the name under which it is served: content type and bytes."""
    document = result.document
    urls = {f"{number}.png": one for number, one in enumerate(document.get("screenshots", ()), 1)}
    urls = {"page.png": document.get("screenshot", "")} | urls | {"page.pdf": document.get("pdf", "")}
    split = {name: url.removeprefix("data:").partition(";base64,") for name, url in urls.items() if url}
    return {name: (kind, b64decode(content)) for name, (kind, _, content) in split.items()}


def _json_text(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def event(job_event: JobEvent, now: float) -> dict[str, Any]:
    """One page, failure or change of state."""
    data = job_event.data
    host, path = text.split_url(str(data.get("url", "")))
    kind = str(data.get("error_class", ""))
    return {
        "number": job_event.number,
        "kind": job_event.kind,
        "status": data.get("status") or "–",
        "link": text.link(str(data.get("url", ""))),
        "host": host,
        "path": path,
        "title": text.one_line(str(data.get("title", ""))),
        "error": text.one_line(str(data.get("error", "")) or CLASSES.get(kind, kind), 200) if kind else "",
        "class": CLASSES.get(kind, kind),
        "depth": data.get("depth", 0),
        "size": text.size(int(data.get("length", 0) or 0)) if job_event.kind == "page" else "",
        "state": LABELS.get(str(data.get("state", "")), ""),
        "at": text.machine_time(job_event.at),
        "clock": text.clock(job_event.at),
        "ago": text.ago(job_event.at, now),
    }
