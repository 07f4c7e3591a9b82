"""`weft rebuild DIR`: index and texts made again from the WARC files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.crawls.suggestions import resume
from weft.cli.reports.folders import further_data_dirs, report_in
from weft.cli.terminal.output import output_flags, print_document, shown, visible

if TYPE_CHECKING:
    from weft.jobs.rebuild import RebuiltService
    from weft.store.repair.rebuild import Rebuilt

SHOWN = 10


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
    """Make the index and texts of a folder again from its WARC files: of `weft crawl`, of an engine, of a service.

    Of a scrape service, give its data dir: the engine's index and the file of tasks are made again if they are damaged.
    An index holds all crawls of its folder, so they are made again together.

    Nothing may be running in the folder. The new index takes the old one's place when it is whole: an interrupted
    rebuild changes nothing, and is called again. Pages that kill or hold their parser get no text and are named, and
    the exit code is 1.
    """
    from dataclasses import asdict

    from weft.crawl.reports.rebuild import rebuild as run

    silent = quiet or as_json or not sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if not silent:
            click.echo(f"\r\x1b[K{done / 1e6:,.0f} of {total / 1e6:,.0f} MB read", err=True, nl=False)

    if len(crawl_dirs) == 1 and not frontier and (made := _service_rebuilt(Path(crawl_dirs[0]), show)) is not None:
        _print_service(made, as_json, quiet)
        return 0
    with report_in(crawl_dirs, more) as folder:
        dirs, is_engines = folder.folder.data_dirs, folder.is_engines
    if frontier:
        _make_frontier(dirs, as_json, quiet)
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
            (report.duplicates, "records of items that were there already, left out"),
            (report.kept, "rows without a record kept from the old index"),
            (report.gone, "rows of the old index dropped, their records are gone"),
            (report.foreign, "responses that carry no row left out: another program wrote them"),
            (report.unfinished, "records of pages that were not done when the crawl died: they will be fetched again"),
            (len(report.torn), f"files end in half a record: {', '.join(report.torn)}"),
        ):
            if count:
                click.echo(f"{count:,} {what}")
        _print_losses(report, dirs, is_engines)
    if report.unparsed:
        _tell_unparsed(report)
    return 1 if report.unparsed else 0


def _service_rebuilt(folder: Path, show: Callable[[int, int], None]) -> RebuiltService | None:
    """Rebuilds the folder of a service; None where it is none."""
    from weft.jobs.layout import ENGINE, STORE
    from weft.jobs.rebuild import is_service, rebuild_service
    from weft.system.state import acquire_lock

    if folder.name == ENGINE and (folder.parent / STORE).exists():
        folder = folder.parent  # what messages about the index name
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
        click.echo("the engine's index is whole: it was left as it is")
    else:
        click.echo(
            f"the engine's index: {index.rows:,} rows, {index.pages:,} of them pages, from {index.files:,} files"
        )
        if index.lost:
            click.echo(f"{index.lost:,} pages are lost: those of tasks that run are fetched again")
    if made.tasks_kept is not None:
        click.echo(
            f"the file of tasks: {made.tasks_kept:,} kept, {made.tasks_from_crawls:,} made again from their pages"
        )
        click.echo(
            f"the damaged file was kept as {made.kept_as}; sites and webhooks that are missing must be added again"
        )


def _tell_unparsed(report: Rebuilt) -> None:
    """An error, and so told whatever the flags say."""
    click.echo(f"weft: {report.unparsed:,} pages could not be parsed, they have no text:", err=True)
    for page in report.unparsed_pages[:SHOWN]:
        click.echo(f"      {shown(page, err=True)}", err=True)
    if report.unparsed > SHOWN:
        click.echo(f"      ... and {report.unparsed - SHOWN:,} more (--json names them)", err=True)


def _print_losses(report: Rebuilt, dirs: list[Path], is_engines: bool) -> None:
    """Where the files are damaged, what that cost, and how to have it again."""
    for one in report.damage[:SHOWN]:
        pages = f", with {', '.join(one.urls[:SHOWN])}" if one.urls else ""
        click.echo(visible(f"damaged: {one.file} at {one.offset:,}, {one.bytes:,} bytes passed over{pages}"))
    if len(report.damage) > SHOWN:
        click.echo(f"... and {len(report.damage) - SHOWN:,} more damaged places (--json has all)")
    if report.lost:
        whom = " crawls that have not ended" if is_engines else f": {resume(dirs)}"
        click.echo(f"{report.lost:,} URLs have lost their row, and are queued again for{whom}")
        for url in report.lost_urls[:SHOWN]:
            click.echo(visible(f"lost: {url}"))
        if report.lost > SHOWN:
            click.echo(f"... and {report.lost - SHOWN:,} more (--json has {len(report.lost_urls):,} of them)")


def _make_frontier(dirs: list[Path], as_json: bool, quiet: bool) -> None:
    from weft.crawl.reports.rebuild import rebuild_frontier

    made = rebuild_frontier(dirs)
    if as_json:
        print_document({"new_frontiers": [str(path) for path in made]})
    elif not quiet:
        for path in made:
            aside = path.with_name(f"{path.name}.damaged")
            click.echo(f"{path}: new" + (f"; the damaged one was kept as {aside.name}" if aside.exists() else ""))
        click.echo(f"The links of the stored pages are read again when the crawl is resumed: {resume(dirs)}")
