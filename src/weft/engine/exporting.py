"""Exports of one crawl of an engine, also while it runs: the store's formats, over the rows of that crawl alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from weft import __version__
from weft.engine.page_reader import PageReader
from weft.engine.parsers import Parsers, as_many_as_cores
from weft.store.export.job import Done, Export
from weft.store.export.request import ExportRequest
from weft.store.warc import CONFORMS_TO


def info_of(crawl: str) -> dict[str, str]:
    """What the first record of a WARC export says."""
    return {
        "software": f"Weft/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": CONFORMS_TO,
        "isPartOf": crawl,
        "description": "records of a crawl put together by weft export",
    }


def export_crawl(
    data_dir: Path,
    name: str,
    number: int,
    settings: Mapping[str, Any],
    order: ExportRequest,
    out: str | Path | BinaryIO,
) -> Done:
    """Writes the pages of a crawl to a path, to `-` (standard output) or to an open file."""
    with Parsers(as_many_as_cores()) as parsers:
        job = Export(
            order, [data_dir], PageReader(parsers), crawl_id=name, info=info_of(name), crawl=number,
            rules=tuple(settings.get("extract") or ()),
        )  # fmt: skip
        if out == "-":
            return job.to_stream(sys.stdout.buffer)
        return job.to_path(Path(out)) if isinstance(out, str | Path) else job.to_stream(out)
