"""The collector of `modules`: one JSON catalogue, and a report page that is on its own.

A row says what is known of a repository, whether it was worked out in this run or an earlier one: an unchanged
repository's row is the same in every run of a day. (Ages in days are reckoned here: what was cached has dates.)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from weft.pipelines.builtin.modules import report_page
from weft.pipelines.builtin.modules.analysis import signs
from weft.pipelines.stage import CollectContext, ItemResult

CATALOGUE, REPORT = "catalogue.json", "report.html"
OK = "ok"


def collect(results: Iterator[ItemResult], context: CollectContext) -> Iterator[Mapping[str, Any]]:
    """Yields the rows in the order of the list, then writes the catalogue and the report."""
    given = context.settings.get("today")
    today = date.fromisoformat(str(given)) if given else datetime.now(UTC).date()
    page = report_page.ReportPage(str(context.settings.get("title") or "Modules"), today)
    with context.files.create(CATALOGUE) as file:
        file.write(b"[")
        for result in results:
            row = row_of(result, today)
            page.add(row, _read_thumbnail(row, context))
            file.write((b",\n" if page.total > 1 else b"\n") + json.dumps(row, ensure_ascii=False).encode())
            yield row
        file.write(b"\n]\n")
    context.files.write(REPORT, page.html())
    _drop_old_answers(context.files.path("registry"))


def row_of(result: ItemResult, today: date) -> dict[str, Any]:
    """The catalogue's row of one repository; values of stages that it has not reached are None."""
    clone, enrich, analyse, outdated = (result.values.get(name) for name in ("clone", "enrich", "analyse", "outdated"))
    skipped = result.stages.get("outdated")
    is_ok = result.status in (OK, "skipped")  # skipped: nothing had to be done, and what is known is still so
    return {
        "id": result.id,
        **{name: result.item.get(name) for name in ("url", "name", "maintainer", "category")},
        "status": OK if is_ok else result.status,
        "failure_phase": result.failure_phase,
        "error": None if is_ok else result.error,
        "repository": _repository_facts(clone, today) if clone else None,
        "about": enrich,
        "analysis": analyse,
        "outdated": outdated,
        "outdated_skipped": skipped.reason if skipped and outdated is None else None,
    }


def _repository_facts(clone: Mapping[str, Any], today: date) -> dict[str, Any]:
    history = {name: value for name, value in clone["history"].items() if name != "dates"}
    return {**clone, "history": history, **signs.of_history(clone, today)}


def _read_thumbnail(row: Mapping[str, Any], context: CollectContext) -> bytes | None:
    name = (row["about"] or {}).get("thumbnail")
    try:
        return context.files.path(name).read_bytes() if name else None
    except OSError:
        return None  # somebody is deleting files: the page does without


def _drop_old_answers(folder: Path) -> None:
    """Deletes cached answers of registries, except those of the newest period."""
    periods = sorted((int(path.name), path) for path in folder.glob("*") if path.name.isdigit())
    for _, path in periods[:-1]:
        shutil.rmtree(path, ignore_errors=True)
