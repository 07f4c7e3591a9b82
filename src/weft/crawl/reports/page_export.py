"""Exports the pages of one crawl of a folder, or of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from weft.crawl.reports.crawls import ReportFolder
from weft.engine.stored.exporting import export_pages
from weft.store.export.job import ExportResult
from weft.store.export.request import ExportRequest


def export(
    data_dirs: Sequence[str | Path],
    order: ExportRequest,
    out: str | Path | BinaryIO,
    *,
    crawl: str | None = None,
    watch: Callable[[int, int], None] = lambda _read, _all: None,
) -> ExportResult:
    """Writes the pages of a crawl, or of all in the folder, to a path, to `-` (standard output) or to an open file."""
    report = ReportFolder(data_dirs)
    try:
        chosen = report.crawls(crawl)
        is_one = crawl is not None or not report.is_engines
        return export_pages(
            report.folder.data_dirs,
            chosen[0].name if report.is_engines and is_one else report.identity.id,
            order, out, watch=watch,
            crawl=chosen[0].number if is_one else 0,
            crawls={} if is_one else {one.number: one.name for one in chosen},
            rules=dict.fromkeys(name for one in chosen for name in one.rules),
        )  # fmt: skip
    finally:
        report.close()
