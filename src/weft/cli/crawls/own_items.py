"""Flags for a spider's items, and the output file that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.crawl.items.writing import ItemOutput
    from weft.crawl.start import Prepared


def item_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `-o`, `--overwrite` and `--append`."""
    out = click.option(
        "-o", "--out", metavar="FILE", help="Write the items to FILE.jsonl, .csv, .json or .parquet; - is stdout."
    )
    overwrite = click.option("--overwrite", is_flag=True, help="Replace the file of --out if there is one.")
    append = click.option("--append", is_flag=True, help="Add to the file of --out (.jsonl).")
    return out(overwrite(append(command)))


def check_flags(out: str | None, *, overwrite: bool, append: bool) -> None:
    """Refuses an invalid output before anything is started."""
    from weft.crawl.items.writing import check_output

    if out is None and (overwrite or append):
        raise BadInput("--overwrite and --append need the file of `--out`: give it, too")
    if overwrite and append:
        raise BadInput("--overwrite and --append cannot be combined")
    if out is not None:
        check_output(out)


def output_of(prepared: Prepared, out: str | None, *, overwrite: bool, append: bool) -> ItemOutput | None:
    """The output for the items of a crawl that is about to run."""
    from weft.crawl.items.feeds import open_feeds
    from weft.crawl.items.writing import open_output

    if out is None:
        return open_feeds(prepared.folder, is_resumed=prepared.loaded.config.run.resume)
    if not prepared.loaded.config.spider.is_given:
        raise BadInput("--out is for the items of a spider: `weft run FILE.py`, or `--on-page FILE.py:FUNCTION`")
    return open_output(prepared.folder.data_dirs, out, overwrite=overwrite, append=append)
