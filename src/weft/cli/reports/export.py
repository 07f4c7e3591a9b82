"""`weft export DIR --format F --out PATH`: writes a crawl's pages for other programs."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from weft.cli.reports.folders import report_in, which_crawl
from weft.cli.terminal.output import VisibleStream, output_flags, print_document, printable
from weft.cli.terminal.settings import several
from weft.errors import BadInput
from weft.store.export.request import FORMATS, LINK_FORMS

if TYPE_CHECKING:
    from weft.store.export.job import ExportResult

MOST_SHOWN = 10
SHOW_EVERY_S = 0.2


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--format",
    "format_",
    metavar="FORMAT",
    required=True,
    type=click.Choice(FORMATS),
    help=f"What to write: {', '.join(FORMATS)}.",
)
@click.option(
    "--out",
    required=True,
    metavar="PATH",
    help="Where to write it; - is standard output (not for markdown and parquet).",
)
@click.option("--content", default="none", show_default=True, metavar="KIND",
              help="Add the page: text, main_text, markdown or html.")  # fmt: skip
@click.option("--links", default="keep", show_default=True, metavar="keep|text|drop", type=click.Choice(LINK_FORMS),
              help="In Markdown: keep links, their text alone, or neither.")  # fmt: skip
@click.option("--fields", multiple=True, metavar="A,B", help="Only these columns, in this order. Repeatable.")
@click.option("--status", multiple=True, metavar="A,B", help="Only these: 200, 2xx, 0 for no response. Repeatable.")
@click.option("--host", multiple=True, metavar="A,B", help="Only these; *.HOST for it and all below it. Repeatable.")
@click.option(
    "--since", default="", metavar="WHEN", help="Only what was fetched since a date, a time, or 90m, 12h, 7d."
)
@click.option("--all-visits", is_flag=True, help="Every visit of a URL, not only the current one; gone pages, too.")
@click.option(
    "--max-bytes", metavar="N", type=click.IntRange(1), help="Write a folder of WARC files of at most this size."
)
@which_crawl
@output_flags
def export(
    crawl_dirs: tuple[str, ...],
    format_: str,
    out: str,
    content: str,
    links: str,
    fields: tuple[str, ...],
    status: tuple[str, ...],
    host: tuple[str, ...],
    since: str,
    all_visits: bool,
    max_bytes: int | None,
    crawl: str | None,
    more: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> int:
    """Write what a crawl has stored as JSONL, JSON, CSV, Markdown files, Parquet, WARC or CDXJ.

    \b
    weft export ./weft-data --format jsonl --out pages.jsonl --status 2xx
    weft export ./weft-data --format parquet --out pages.parquet --since 7d

    A URL that was visited several times has one row: its latest good page. Pages that are gone are left out. For an
    engine or a service all crawls are written, with a column `crawl`, unless --crawl names one.

    The output appears when it is complete. An interrupted export continues when it is called again. Pages that
    cannot be read are left out and named, and the exit code is 1.
    """
    from weft.crawl.reports.page_export import export as run
    from weft.store.export.request import ExportRequest

    lists = [tuple(several(texts)) for texts in (fields, status, host)]
    order = ExportRequest(format_, lists[0], content, lists[1], lists[2], since, max_bytes, all_visits, links)
    on_terminal = out == "-" and sys.stdout.isatty()
    show = _ExportProgressLine(quiet or as_json or on_terminal or not sys.stderr.isatty())
    with report_in(crawl_dirs, more) as report:
        dirs = [str(path) for path in report.folder.data_dirs]
    done = run(dirs, order, _visible_stdout(format_) if on_terminal else out, crawl=crawl, watch=show)
    show.clear()
    if done.path is not None and as_json:
        facts = {"path": str(done.path), "rows": done.rows, "resumed_rows": done.resumed}
        print_document(facts | {"unread": done.unread, "unread_pages": done.unread_pages})
    elif done.path is not None and not quiet:
        resumed_text = f" ({done.resumed:,} of them before it was interrupted)" if done.resumed else ""
        click.echo(f"{done.rows:,} {_unit_of(format_, done.rows)}{resumed_text} in {done.path}", err=True)
    if done.unread:
        _report_unread(done, dirs)
    return 1 if done.unread else 0


def _unit_of(format_: str, count: int) -> str:
    """The unit that an export of this format is counted in."""
    unit = {"markdown": "file", "warc": "response", "cdxj": "line"}.get(format_, "row")
    return unit if count == 1 else f"{unit}s"


def _visible_stdout(format_: str) -> BinaryIO:
    """Standard output; on a terminal with control characters of pages escaped."""
    if format_ == "warc":
        raise BadInput("--out - writes compressed records, which a terminal cannot show: give a path, or a pipe")
    return cast(BinaryIO, VisibleStream(sys.stdout.buffer, as_json=format_ != "csv"))


def _report_unread(done: ExportResult, dirs: list[str]) -> None:
    """Reports pages that are missing, and how to restore them. An error, so it is printed even with --quiet."""
    click.echo(f"weft: {done.unread:,} pages could not be read, their content is not in it:", err=True)
    for page in done.unread_pages[:MOST_SHOWN]:
        click.echo(f"      {printable(page, err=True)}", err=True)
    if done.unread > MOST_SHOWN:
        click.echo(
            f"      ... and {done.unread - MOST_SHOWN:,} more (--json names {len(done.unread_pages):,})", err=True
        )
    if done.unread > done.unparsed:
        command = shlex.join(["weft", "rebuild", *dirs])
        click.echo(f"      `{command}` takes damaged ones out, and a resumed crawl fetches them again.", err=True)
    if done.unparsed:
        click.echo("      Pages that crash their parser are stored completely: `weft get --body` has them.", err=True)


class _ExportProgressLine:
    """A progress line on a terminal, redrawn in place."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._next_at = 0.0

    def __call__(self, read: int, total: int) -> None:
        now = time.monotonic()
        if not self._silent and now >= self._next_at:
            self._next_at = now + SHOW_EVERY_S
            click.echo(f"\r\x1b[K{read:,} of {total:,} rows read", err=True, nl=False)

    def clear(self) -> None:
        """Erases the line."""
        if not self._silent:
            click.echo("\r\x1b[K", err=True, nl=False)
