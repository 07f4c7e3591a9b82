"""A stretch of results in another format than JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from weft.jobs.api import answers, cursors
from weft.jobs.model import Task
from weft.jobs.service import Results
from weft.store.export.lines import FORMULA

MEDIA_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv", "markdown": "text/markdown"}
Rows = Sequence[dict[str, Any]]


async def export(task: Task, found: Results, wanted: str, include_errors: bool) -> Response:
    """The answer; where there is more, the cursor is in its header `Next-Cursor`."""
    rows: list[dict[str, Any]] = [answers.page_of(page) for page in found.results]
    if include_errors:
        rows += [msgspec.to_builtins(error) for error in found.errors]
        rows.sort(key=lambda row: row["number"])
    headers = {"Cache-Control": "no-store", "Cursor": cursors.encode(task.id, found.cursor)}
    if found.next_cursor is not None:
        headers["Next-Cursor"] = cursors.encode(task.id, found.next_cursor)
    if wanted != "markdown":
        headers["Content-Disposition"] = f'attachment; filename="{task.id}.{wanted}"'
    return Response(_WRITERS[wanted](rows), 200, headers, MEDIA_TYPES[wanted])


def _json_lines(rows: Rows) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def _csv(rows: Rows) -> bytes:
    """What is no plain value is written as JSON, and no cell is a formula."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_cell(name) for name in columns)
    for row in rows:
        writer.writerow(_cell(row.get(name)) for name in columns)
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        value = msgspec.json.encode(value).decode()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _markdown(rows: Rows) -> bytes:
    return "".join(_section(row) for row in rows).encode("utf-8", "replace")


def _section(row: dict[str, Any]) -> str:
    said = row.get("markdown") or row.get("text") or row.get("error") or ""
    return f"<!-- {row['url'].replace('--', '%2D%2D')} -->\n\n{said}\n\n"


_WRITERS: dict[str, Callable[[Rows], bytes]] = {"jsonl": _json_lines, "csv": _csv, "markdown": _markdown}
