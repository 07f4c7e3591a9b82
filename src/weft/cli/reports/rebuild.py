"""`weft rebuild DIR`: rebuilds index and texts from the WARC files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.crawls.commands_to_copy import resume
from weft.cli.reports.folders import further_data_dirs, report_in
from weft.cli.terminal.output import output_flags, print_document, printable, visible

if TYPE_CHECKING:
    from weft.jobs.rebuild import RebuiltService
    from weft.store.repair.rebuild import RebuildReport

MOST_SHOWN = 10


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@further_data_dirs
@click.option("--text", is_flag=True, help="Make text files too, where the crawl kept none.")
@click.option(
    "--frontier", is_flag=True, help="Replace a damaged frontier by one from the seeds and the stored pages' links."
)
@output_flags
def rebuild(
    crawl_dirs: tuple[str, ...], more: tuple[str, ...], text: bool, frontier: bool, as_json: bool, quiet: bool
) -> int:
    """Rebuild the index and texts of a folder from its WARC files: of `weft crawl`, of an engine, of a service.

    Of a scrape service, give its data dir: the engine's index and the file of tasks are rebuilt if they are damaged.
    An index holds all crawls of its folder, so they are rebuilt together.

    Nothing may be running in the folder. The new index replaces the old one when it is complete: an interrupted
    rebuild changes nothing, and can be repeated. Pages that crash or block their parser get no text and are named, and
    the exit code is 1.
    """
    from dataclasses import asdict

    from weft.crawl.reports.rebuild import rebuild as run

    silent = quiet or as_json or not sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if not silent:
            click.echo(f"\r\x1b[K{done / 1e6:,.0f} of {total / 1e6:,.0f} MB read", err=True, nl=False)

    if len(crawl_dirs) == 1 and not frontier and (made := _rebuild_service(Path(crawl_dirs[0]), show)) is not None:
        _print_service(made, as_json, quiet)
        return 0
    with report_in(crawl_dirs, more) as folder:
        dirs, is_engines = folder.folder.data_dirs, folder.is_engines
    if frontier:
        _rebuild_frontier(dirs, as_json, quiet)
        return 0
    report = run(dirs, text=text, watch=show)
    if as_json:
        print_document(asdict(report))
    if not silent:
        click.echo("\r\x1b[K", err=True, nl=False)
    if not quiet and not as_json:
        click.echo(
            f"{report.rows:,} rows, {report.pages:,} of them pages, "
            f"from {report.records:,} records in {report.files} files"
        )
        for count, what in (
            (report.texts, "texts written"),
            (report.duplicates, "duplicate records left out"),
            (report.kept, "rows without a record kept from the old index"),
            (report.gone, "rows of the old index dropped, their records are gone"),
            (report.foreign, "responses without a row left out: another program wrote them"),
            (
                report.unfinished,
                "records of pages that were incomplete when the crawl was killed: they will be fetched again",
            ),
            (len(report.torn), f"files end in an incomplete record: {', '.join(report.torn)}"),
        ):
            if count:
                click.echo(f"{count:,} {what}")
        _print_losses(report, dirs, is_engines)
    if report.unparsed:
        _report_unparsed(report)
    return 1 if report.unparsed else 0


def _rebuild_service(folder: Path, show: Callable[[int, int], None]) -> RebuiltService | None:
    """Rebuilds the folder of a service; None if it is not a service's."""
    from weft.jobs.layout import ENGINE, STORE
    from weft.jobs.rebuild import is_service, rebuild_service
    from weft.system.state import acquire_lock

    if folder.name == ENGINE and (folder.parent / STORE).exists():
        folder = folder.parent  # messages about the index name this folder
    if not is_service(folder):
        return None
    lock = acquire_lock(folder)
    try:
        return rebuild_service(folder, watch=show)
    finally:
        os.close(lock)


def _print_service(made: RebuiltService, as_json: bool, quiet: bool) -> None:
    import msgspec

    if as_json:
        print_document(msgspec.to_builtins(made))
        return
    if quiet:
        return
    if (index := made.index) is None:
        click.echo("the engine's index is intact: it was not changed")
    else:
        click.echo(
            f"the engine's index: {index.rows:,} rows, {index.pages:,} of them pages, from {index.files:,} files"
        )
        if index.lost:
            click.echo(f"{index.lost:,} pages are lost: those of running tasks are fetched again")
    if made.tasks_kept is not None:
        click.echo(f"the file of tasks: {made.tasks_kept:,} kept, {made.tasks_from_crawls:,} rebuilt from their pages")
        click.echo(
            f"the damaged file was kept as {made.kept_as}; sites and webhooks that are missing must be added again"
        )


def _report_unparsed(report: RebuildReport) -> None:
    """Reports pages without text. An error, so it is printed even with --quiet."""
    click.echo(f"weft: {report.unparsed:,} pages could not be parsed, they have no text:", err=True)
    for page in report.unparsed_pages[:MOST_SHOWN]:
        click.echo(f"      {printable(page, err=True)}", err=True)
    if report.unparsed > MOST_SHOWN:
        click.echo(f"      ... and {report.unparsed - MOST_SHOWN:,} more (--json names them)", err=True)


def _print_losses(report: RebuildReport, dirs: list[Path], is_engines: bool) -> None:
    """Reports where the files are damaged, what is lost, and how to restore it."""
    for one in report.damage[:MOST_SHOWN]:
        pages = f", with {', '.join(one.urls[:MOST_SHOWN])}" if one.urls else ""
        click.echo(visible(f"damaged: {one.file} at {one.offset:,}, {one.bytes:,} bytes skipped{pages}"))
    if len(report.damage) > MOST_SHOWN:
        click.echo(f"... and {len(report.damage) - MOST_SHOWN:,} more damaged locations (--json has all)")
    if report.lost:
        whom = " crawls that have not ended" if is_engines else f": {resume(dirs)}"
        click.echo(f"{report.lost:,} URLs have lost their row, and are queued again for{whom}")
        for url in report.lost_urls[:MOST_SHOWN]:
            click.echo(visible(f"lost: {url}"))
        if report.lost > MOST_SHOWN:
            click.echo(f"... and {report.lost - MOST_SHOWN:,} more (--json has {len(report.lost_urls):,} of them)")


def _rebuild_frontier(dirs: list[Path], as_json: bool, quiet: bool) -> None:
    from weft.crawl.reports.rebuild import rebuild_frontier

    made = rebuild_frontier(dirs)
    if as_json:
        print_document({"new_frontiers": [str(path) for path in made]})
    elif not quiet:
        for path in made:
            kept_as = path.with_name(f"{path.name}.damaged")
            click.echo(f"{path}: new" + (f"; the damaged one was kept as {kept_as.name}" if kept_as.exists() else ""))
        click.echo(f"The links of the stored pages are read again when the crawl is resumed: {resume(dirs)}")
