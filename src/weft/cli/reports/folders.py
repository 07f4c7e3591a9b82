"""Arguments for the folder and the crawl of all report commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.terminal.settings import several

if TYPE_CHECKING:
    from weft.crawl.reports.crawls import ReportFolder


def further_data_dirs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--data-dir` to a command that takes the first data dir, or some, as arguments."""
    return click.option(
        "--data-dir",
        "more",
        multiple=True,
        metavar="A,B",
        help="Further data dirs of the crawl; they are found automatically unless they were moved. Repeatable.",
    )(command)


def which_crawl(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--crawl` and `--data-dir` to a report command."""
    option = click.option(
        "--crawl",
        metavar="NAME",
        help="One crawl of an engine or a service, by name (of a task: its id). [default: all there are]",
    )
    return option(further_data_dirs(command))


def engine_dir(folder: str) -> str:
    """The folder with the crawls: in a service's folder it is a subfolder."""
    from weft.jobs.layout import ENGINE

    inside = Path(folder, ENGINE)
    return str(inside) if (inside / "engine.json").exists() and not Path(folder, "engine.json").exists() else folder


@contextmanager
def report_in(dirs: Sequence[str], more: Sequence[str]) -> Iterator[ReportFolder]:
    """Opens the folder that the data dirs belong to; raises BadInput if there is no crawl."""
    from weft.crawl.reports.crawls import ReportFolder

    report = ReportFolder([engine_dir(dirs[0]), *dirs[1:], *several(more)])
    try:
        yield report
    finally:
        report.close()
