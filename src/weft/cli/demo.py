"""`weft demo`: crawls a synthetic web on loopback, with a live display. Installs nothing, and uses no network."""

from __future__ import annotations

import click

from weft.cli.crawls.commands_to_copy import CrawlArguments
from weft.cli.terminal.output import output_flags
from weft.cli.terminal.settings import several

DELAY_S = 0.1
MOST_PAGES = 10_000_000


@click.command()
@click.option(
    "--hosts", metavar="N", default=110, show_default=True, type=click.IntRange(1, 4000), help="How many hosts."
)
@click.option(
    "--pages",
    metavar="N",
    default=2000,
    show_default=True,
    type=click.IntRange(1, MOST_PAGES),
    help="How many ordinary pages.",
)
@click.option("--seed", metavar="N", default=7, show_default=True, help="The same seed gives the same web.")
@click.option(
    "--data-dir",
    metavar="DIR",
    default="./weft-demo",
    show_default=True,
    help="Folder of the corpus; an existing one is replaced.",
)
@click.option("--no-progress", is_flag=True, help="No live display; one line every few seconds.")
@output_flags
def demo(hosts: int, pages: int, seed: int, data_dir: str, no_progress: bool, as_json: bool, quiet: bool) -> int:
    """Serve a small synthetic web on loopback and crawl it, live.

    The web is messy on purpose: robots.txt of all kinds, redirects, traps, errors that pass and errors that stay.
    """
    from weft.cli.crawls.crawl import run
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.start import prepare
    from weft.testing.web import synthetic_web

    folders = several([data_dir])
    folder = CrawlFolder(folders)
    flags = {
        "scope": "any",
        "politeness_delay_seconds": DELAY_S,
        "allow_private": True,
        "data_dirs": folders,
        "prometheus_port": 0,
        "robots_patience_seconds": 2.0,  # some hosts fail permanently, and a demo should not wait for them
        "fresh": folder.exists(),
    }
    if not quiet and not as_json:
        click.echo(
            f"Serving {hosts} messy hosts on loopback: {pages:,} ordinary pages, and odd ones between them ...",
            err=True,
        )
    with synthetic_web(hosts=hosts, pages=pages, seed=seed, profile="messy") as web:
        prepared = prepare(web.seeds, flags, environment={})
        code = run(prepared, CrawlArguments(web.seeds, flags), no_progress=no_progress, as_json=as_json, quiet=quiet)
        first = web.seeds[0]
        if code == 0 and not quiet and not as_json:
            more = "".join(f" --data-dir {other}" for other in folders[1:])
            violations = web.judge(delay_s=DELAY_S)
            click.echo(
                f"The servers' own log: {violations.requests:,} requests, "
                f"{len(violations.delay) + len(violations.robots)} of them impolite.\n"
                f"Next: weft get {folders[0]} {first} --text{more}   ·   "
                "weft crawl https://example.com --email you@example.com",
                err=True,
            )
    return code
