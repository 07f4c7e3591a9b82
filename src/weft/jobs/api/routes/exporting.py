"""One page of results in a format other than JSON.

Consecutive answers in JSON lines, CSV, Markdown or WARC can be concatenated: the columns of a task never change, and
the header of such a file is only in its first part.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from weft.errors import Missing
from weft.jobs.api import answers, cursors
from weft.jobs.api.problems import Refusal
from weft.jobs.model import Task
from weft.jobs.service import RecordSlice, ResultSlice
from weft.store.export.lines import FORMULA_STARTS

MEDIA_TYPES = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "markdown": "text/markdown",
    "parquet": "application/vnd.apache.parquet",
    "warc": "application/warc",
}
Rows = Sequence[dict[str, Any]]
_PAGE_COLUMNS = ("number", "url", "status", "title", "depth", "fetched_at", "final_url", "content_type", "length")
_RULE_COLUMNS = ("fields", "field_errors")
_ERROR_COLUMNS = ("error", "error_class", "at")


async def export(task: Task, results: ResultSlice, wanted: str, *, include_errors: bool, is_first: bool) -> Response:
    """The response; its header `Next-Cursor` has the cursor while there is more."""
    rows: list[dict[str, Any]] = [page.whole for page in results.results]
    if include_errors:
        rows += [answers.error_of(error) for error in results.errors]
        rows.sort(key=lambda row: row["number"])
    body = await asyncio.to_thread(_write_rows, wanted, rows, _columns_of_task(task, include_errors), is_first)
    return _export_response(task, results, wanted, body)


def export_records(task: Task, records: RecordSlice) -> Response:
    """The response with WARC records; see `export`."""
    return _export_response(task, records, "warc", records.data)


def _export_response(task: Task, results: ResultSlice | RecordSlice, wanted: str, body: bytes) -> Response:
    headers = {"Cache-Control": "no-store", "Cursor": cursors.encode(task.id, results.cursor)}
    if results.next_cursor is not None:
        headers["Next-Cursor"] = cursors.encode(task.id, results.next_cursor)
    if wanted != "markdown":
        ending = "warc.gz" if wanted == "warc" else wanted
        headers["Content-Disposition"] = f'attachment; filename="{task.id}.{ending}"'
    return Response(body, 200, headers, MEDIA_TYPES[wanted])


def _columns_of_task(task: Task, include_errors: bool) -> list[str]:
    rules = _RULE_COLUMNS if task.spec.extract else ()
    return [*_PAGE_COLUMNS, *task.spec.formats, *rules, *(_ERROR_COLUMNS if include_errors else ())]


def _write_rows(wanted: str, rows: Rows, columns: list[str], is_first: bool) -> bytes:
    if wanted == "jsonl":
        return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    if wanted == "markdown":
        return "".join(map(_markdown_section, rows)).encode("utf-8", "replace")
    return _write_csv(rows, columns, is_first) if wanted == "csv" else _write_parquet(rows, columns)


def _write_csv(rows: Rows, columns: list[str], is_first: bool) -> bytes:
    """CSV by RFC 4180. Nested values are written as JSON; cells that look like formulas are escaped."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    if is_first:
        writer.writerow(columns)
    for row in rows:
        writer.writerow(_cell(_plain(row.get(name))) for name in columns)
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> object:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def _markdown_section(row: dict[str, Any]) -> str:
    content = row.get("markdown") or row.get("text") or row.get("error") or ""
    return f"<!-- {row['url'].replace('--', '%2D%2D')} -->\n\n{content}\n\n"


def _write_parquet(rows: Rows, columns: list[str]) -> bytes:
    """Parquet; nested values are written as JSON."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        missing = Missing.of_extra("pyarrow", "parquet")
        raise Refusal.of_field("format", f"this service cannot write Parquet: {missing}") from None
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({name: [_plain(row.get(name)) for row in rows] for name in columns}), out)
    return out.getvalue()


def _plain(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value
