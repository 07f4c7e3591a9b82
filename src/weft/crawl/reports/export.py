"""Exports a crawl: puts the store, which writes the formats, together with the reading of pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from weft.crawl.folder import CrawlFolder
from weft.engine.exporting import info_of
from weft.engine.page_reader import PageReader
from weft.engine.parsers import Parsers, as_many_as_cores
from weft.store.export.job import Done, Export
from weft.store.export.request import ExportRequest


def export(
    data_dirs: Sequence[str | Path],
    order: ExportRequest,
    out: str | Path | BinaryIO,
    *,
    watch: Callable[[int, int], None] = lambda _read, _all: None,
) -> Done:
    """Writes a crawl's pages to a path, to `-` (standard output) or to an open file."""
    folder = CrawlFolder(data_dirs)
    identity = folder.go_on()
    rules = folder.settings().get("extract")
    with Parsers(as_many_as_cores()) as parsers:
        job = Export(
            order, folder.data_dirs, PageReader(parsers), crawl_id=identity.id,
            info=info_of(identity.id), watch=watch, rules=tuple(rules) if isinstance(rules, dict) else (),
        )  # fmt: skip
        if out == "-":
            return job.to_stream(sys.stdout.buffer)
        return job.to_path(Path(out)) if isinstance(out, str | Path) else job.to_stream(out)
