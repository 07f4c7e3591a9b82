"""`weft watch DIR`: the live display of crawls that other processes run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from weft.cli.crawls.commands_to_copy import resume
from weft.cli.reports.folders import report_in, which_crawl
from weft.cli.terminal.output import output_flags, print_document

if TYPE_CHECKING:
    from weft.crawl.reports.crawls import ReportFolder
    from weft.engine.loop.progress import CrawlStatus

ENDED = frozenset({"finished", "limit", "cancelled", "interrupted", "failed"})
POLL_S = 0.25


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@which_crawl
@output_flags
def watch(crawl_dirs: tuple[str, ...], crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Attach the live display to a running crawl, until it ends. Ctrl-C leaves the crawl alone.

    For an engine or a service it shows all running crawls until the engine ends, or the one that --crawl names.
    """
    from weft.cli.crawls.display import Watched, show_watched
    from weft.crawl.reports.report import status_document

    with report_in(crawl_dirs, more) as report:
        looks = _status_updates(report, crawl)
        status, each = next(looks)
        if as_json:
            several = [{"crawl": name} | status_document(one, 1) for name, one in each.items()]
            facts = status_document(status, report.folder.pods)
            print_document(facts | ({"crawls": several} if report.is_engines and crawl is None else {}))
            return 0
        title = "weft engine" if report.is_engines else "weft crawl"
        with show_watched(str(report.folder.home), title, quiet=quiet) as show:
            while status.state not in ENDED:
                show(Watched(status, each))
                time.sleep(POLL_S)
                status, each = next(looks)
    if not quiet:
        click.echo(f"{status.state}: {status.pages:,} pages, {status.queued:,} URLs queued", err=True)
        if status.state == "interrupted" and not report.is_engines:
            click.echo(f"Continue: {resume(report.folder.data_dirs)}", err=True)
    return 0


def _status_updates(report: ReportFolder, name: str | None) -> Iterator[tuple[CrawlStatus, Mapping[str, CrawlStatus]]]:
    """Yields the current status at each iteration; for several crawls their sum, and the running ones by name."""
    from weft.crawl.reports.combined_status import current_status
    from weft.crawl.reports.engine_status import status_from_snapshot, statuses, total_status

    if not report.is_engines:
        report.crawls(name)  # raises BadInput for an unknown name
    while not report.is_engines:
        yield current_status(report.folder), {}
    while name is not None:
        yield statuses(report, report.crawls(name))[name], {}
    while (live := report.live_snapshots()) is not None:
        each = {snapshot.name: status_from_snapshot(snapshot) for snapshot in live.values()}
        yield total_status(each.values(), is_running=True), each
    ended = statuses(report, report.crawls())
    while True:
        yield total_status(ended.values(), is_running=False), {}
