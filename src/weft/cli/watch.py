"""`weft watch CRAWL_DIR`: the live display of a crawl that runs elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from weft.cli.output import output_flags, print_document

ENDED = frozenset({"finished", "limit", "interrupted", "failed"})


@click.command()
@click.argument("crawl_dir")
@output_flags
def watch(crawl_dir: str, as_json: bool, quiet: bool) -> int:
    """Attach the live display to a running crawl, until it ends. Ctrl-C leaves the crawl alone."""
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.reports.report import document
    from weft.engine.loop.progress import CrawlStatus, read_status

    folder = CrawlFolder([crawl_dir])
    folder.identity()
    status = read_status(folder.status) or CrawlStatus()
    if as_json:
        print_document(document(status, folder.pods))
        return 0
    show = _shower(crawl_dir, quiet)
    try:
        while status.state not in ENDED and _alive(status.orchestrator or status.pid):
            show(status)
            time.sleep(0.25)
            status = read_status(folder.status) or status
    finally:
        getattr(show, "close", lambda: None)()
    if not quiet:
        state = status.state if status.state in ENDED else "not running (it can be resumed)"
        click.echo(f"{state}: {status.pages:,} pages, {status.queued:,} URLs queued", err=True)
    return 0


def _shower(crawl_dir: str, quiet: bool):  # type: ignore[no-untyped-def]
    if quiet:
        return lambda _: None
    if sys.stderr.isatty():
        from weft.cli.display import Display

        return Display(crawl_dir)
    from weft.cli.crawl import Lines

    return Lines()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
