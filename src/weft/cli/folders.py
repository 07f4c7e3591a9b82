"""How every command that reads a crawl is given its data dirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from weft.cli.settings import several

if TYPE_CHECKING:
    from weft.crawl.folder import CrawlFolder


def further_data_dirs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--data-dir` to a command that has the first data dir, or some, as arguments."""
    return click.option(
        "--data-dir",
        "more",
        multiple=True,
        metavar="A,B",
        help="Further data dirs of the crawl; they are found by themselves unless they were moved. Repeatable.",
    )(command)


def crawl_in(crawl_dirs: Sequence[str], more: Sequence[str]) -> CrawlFolder:
    """The crawl that the data dirs belong to, with all of them; BadInput where there is none."""
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.siblings import all_data_dirs

    folder = CrawlFolder(all_data_dirs([*crawl_dirs, *several(more)]))
    folder.go_on()
    return folder
