"""Exports one crawl of a folder, or all, also while they run: connects the store's formats with the reading of
pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from weft import __version__
from weft.engine.parsing.page_reader import PageReader
from weft.engine.parsing.parsers import Parsers, one_per_core
from weft.store.export.job import Export, ExportResult, Watch
from weft.store.export.request import ExportRequest
from weft.store.warc.warc_records import CONFORMS_TO


def warcinfo_of(crawl: str) -> dict[str, str]:
    """The fields of the first record of a WARC export."""
    return {
        "software": f"Weft/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": CONFORMS_TO,
        "isPartOf": crawl,
        "description": "records of a crawl put together by weft export",
    }


def export_pages(
    data_dirs: Sequence[Path],
    name: str,
    order: ExportRequest,
    out: str | Path | BinaryIO,
    *,
    crawl: int = 0,
    crawls: Mapping[int, str] = MappingProxyType({}),
    rules: Iterable[str] = (),
    watch: Watch = lambda _read, _all: None,
) -> ExportResult:
    """Writes the pages of one crawl, or of all in a folder (`crawl` is 0), to a path, to `-` (standard output) or to an
    open file. `name` is the name of the output; for the other arguments see `Export`.
    """
    with Parsers(one_per_core()) as parsers:
        job = Export(
            order, data_dirs, PageReader(parsers), crawl_id=name, info=warcinfo_of(name), crawl=crawl, crawls=crawls,
            rules=tuple(rules), watch=watch,
        )  # fmt: skip
        if out == "-":
            return job.to_stream(sys.stdout.buffer)
        return job.to_path(Path(out)) if isinstance(out, str | Path) else job.to_stream(out)
