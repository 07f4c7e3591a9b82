"""`weft watch CRAWL_DIR`: the live display of a crawl that runs elsewhere."""

from __future__ import annotations

import time

import click

from weft.cli.folders import crawl_in, further_data_dirs
from weft.cli.output import output_flags, print_document
from weft.cli.suggestions import resume

ENDED = frozenset({"finished", "limit", "interrupted", "cancelled", "failed"})


@click.command()
@click.argument("crawl_dirs", metavar="CRAWL_DIR...", nargs=-1, required=True)
@further_data_dirs
@output_flags
def watch(crawl_dirs: tuple[str, ...], more: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Attach the live display to a running crawl, until it ends. Ctrl-C leaves the crawl alone."""
    from weft.cli.display import show_crawl
    from weft.crawl.reports.report import document
    from weft.crawl.reports.standing import current_status

    folder = crawl_in(crawl_dirs, more)
    status = current_status(folder)
    if as_json:
        print_document(document(status, folder.pods))
        return 0
    with show_crawl(str(folder.home), quiet=quiet) as show:
        while status.state not in ENDED:
            show(status)
            time.sleep(0.25)
            status = current_status(folder)
    if not quiet:
        click.echo(f"{status.state}: {status.pages:,} pages, {status.queued:,} URLs queued", err=True)
        if status.state == "interrupted":
            click.echo(f"Go on: {resume(folder.data_dirs)}", err=True)
    return 0
