"""`weft explain DIR URL`: why this URL was, or was not, crawled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from weft.cli.reports.folders import report_in, which_crawl
from weft.cli.terminal.messages import as_flags
from weft.cli.terminal.output import output_flags, print_document, printable

SHOWN_EVERY_S = 2.0


@click.command()
@click.argument("crawl_dir", metavar="DIR")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--search-pages",
    is_flag=True,
    help="Search every stored page for links to a URL that the crawl does not know: it reads all of them.",
)
@which_crawl
@output_flags
def explain(
    crawl_dir: str,
    urls: tuple[str, ...],
    search_pages: bool,
    crawl: str | None,
    more: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Say why a URL was, or was not, crawled: one reason, with its evidence. Works while the crawl runs, too.

    For an engine or a service, every crawl that has the URL answers; if none has it, the latest ones do.
    """
    from msgspec import to_builtins
    from msgspec.structs import replace

    from weft.crawl.reports.explain import Explanations

    with report_in([crawl_dir], more) as report:
        explanations = Explanations(report, crawl, _search_progress() if search_pages else None)
        try:
            answers = [answer for url in urls for answer in explanations.explain(url)]
        finally:
            explanations.close()
    if as_json:
        with_flags = [
            replace(one, summary=as_flags(one.summary), evidence=[*map(as_flags, one.evidence)]) for one in answers
        ]
        facts = [
            {name: value for name, value in to_builtins(one).items() if name != "crawl" or value} for one in with_flags
        ]
        print_document({"urls": facts})
        return
    for answer in answers:
        mark = "crawled" if answer.crawled else "failed" if answer.reason == "error" else "not crawled"
        whose = f" ({answer.crawl})" if answer.crawl else ""
        click.echo(printable(f"{answer.url}{whose}\n  {mark}: {as_flags(answer.summary)} [{answer.reason}]"))
        for line in () if quiet else answer.evidence:
            click.echo(printable(f"    {as_flags(line)}"))


def _search_progress() -> Callable[[str, int], None]:
    """Displays the number of searched rows and pages regularly, on a terminal."""
    last = time.monotonic()

    def searched(what: str, number: int) -> None:
        nonlocal last
        if number % 1000 == 0 and time.monotonic() - last > SHOWN_EVERY_S and sys.stderr.isatty():
            last = time.monotonic()
            click.echo(f"{number:,} {what} searched", err=True)

    return searched
