"""Bodies of answers as plain values, in the form that schemas.py describes."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from weft.jobs.api import cursors
from weft.jobs.model import Task, waiting_of, waiting_text
from weft.jobs.service import Failure, Health, ResultSlice, TaskSnapshot
from weft.jobs.store.contract import Listing
from weft.store.export.facts import iso_time


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response that must not be cached."""
    own = {"Cache-Control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(value), status, own, "application/json")


def moment(at: float | None) -> str | None:
    """A timestamp in the format of all JSON answers; None stays None."""
    return None if at is None else iso_time(at)


def links(task_id: str) -> dict[str, str]:
    """The URLs of a task's status, results and events."""
    task = f"/scraping/tasks/{task_id}"
    return {"status": f"{task}/status", "results": f"{task}/results", "events": f"{task}/events", "cancel": task}


def submitted(task: Task) -> dict[str, Any]:
    """The body for a task that was submitted."""
    return {"task_id": task.id, "status": task.state, "links": links(task.id)}


def changed(task: Task) -> dict[str, Any]:
    """The body after cancel, pause and resume."""
    return {"task_id": task.id, "status": task.state, "finish_reason": task.finish_reason}


def _task_facts(task: Task, message: str, waiting_for: str, waiting_until: float | None) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "url": task.url,
        "status": task.state,
        "finish_reason": task.finish_reason,
        "message": message,
        "waiting_for": waiting_for or None,
        "waiting_until": moment(waiting_until),
        "created_at": moment(task.created_at),
        "started_at": moment(task.started_at),
        "finished_at": moment(task.finished_at),
    }


def status_of(status: TaskSnapshot) -> dict[str, Any]:
    """The body with a task's status."""
    task = status.task
    return _task_facts(task, status.message, status.waiting_for, status.waiting_until) | {
        "progress": status.progress.counts(task.spec.max_pages),
        "success_rate": status.progress.success_rate,
        "duration_seconds": round(status.duration_s, 3),
        "remaining_seconds": None if status.remaining_s is None else round(status.remaining_s, 3),
        "deadline_at": moment(task.deadline_at),
        "errors_by_class": status.errors_by_class,
        "waiting_before": status.waiting_before,
        "last_event": status.number,
    }


def results_of(task: Task, results: ResultSlice, include_errors: bool) -> dict[str, Any]:
    """The body with one page of results."""
    answer: dict[str, Any] = {
        "task_id": task.id,
        "status": task.state,
        "results": [page.whole for page in results.results],
        "next_cursor": None if results.next_cursor is None else cursors.encode(task.id, results.next_cursor),
        "cursor": cursors.encode(task.id, results.cursor),
    }
    if include_errors:
        answer["errors"] = [error_of(error) for error in results.errors]
    return answer


def error_of(error: Failure) -> dict[str, Any]:
    """The entry for a URL that gave no page."""
    return {**msgspec.structs.asdict(error), "at": iso_time(error.at)}


def listed(listing: Listing) -> dict[str, Any]:
    """The body with a list of tasks."""
    return {"tasks": [summary_of(task) for task in listing.tasks], "next_cursor": listing.next_cursor}


def summary_of(task: Task) -> dict[str, Any]:
    """The entry of a task in a list, from its stored row: progress is final or empty."""
    waiting = waiting_of(task)
    return _task_facts(task, task.message or waiting_text(task, *waiting), *waiting) | {"links": links(task.id)}


def service_of(health: Health, streams: int) -> dict[str, Any]:
    """The body with the status of the whole service."""
    lanes = {
        name: {"available_slots": lane.available}
        | {one: getattr(lane, one) for one in ("slots", "running", "waiting", "paused", "pending")}
        for name, lane in health.lanes.items()
    }
    tasks = lanes.get("task", {"slots": 0, "available_slots": 0, "pending": 0})
    same = ("problems", "errors_by_class", "success_rate")
    times = [f"{what}_seconds_{share}" for what in ("page", "task") for share in ("p50", "p95")]
    return {name: getattr(health, name) for name in (*same, *times)} | {
        "status": "healthy" if health.is_healthy else "unhealthy",
        "slots": tasks["slots"],
        "available_slots": tasks["available_slots"],
        "queued": tasks["pending"],
        "active_tasks": health.active,
        "lanes": lanes,
        "tasks_by_status": health.tasks_by_state,
        "blocked_domains": [{"domain": one.site, "until": iso_time(one.until)} for one in health.blocked_domains],
        "pages_per_second": health.pages_per_s,
        "event_streams": streams,
    }
