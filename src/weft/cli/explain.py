"""`weft explain CRAWL_DIR URL`: why this URL was, or was not, crawled."""

from __future__ import annotations

import click

from weft.cli.folders import crawl_in, further_data_dirs
from weft.cli.messages import as_flags
from weft.cli.output import output_flags, print_document, shown


@click.command()
@click.argument("crawl_dir")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@further_data_dirs
@output_flags
def explain(crawl_dir: str, urls: tuple[str, ...], more: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Say why a URL was, or was not, crawled: one reason, with its evidence. Works while the crawl runs, too."""
    from msgspec.structs import replace

    from weft.crawl.reports.explain import Explainer

    folder = crawl_in([crawl_dir], more)
    explainer = Explainer(folder, folder.config())
    try:
        answers = [explainer.explain(url) for url in urls]
    finally:
        explainer.close()
    if as_json:
        told = [replace(one, summary=as_flags(one.summary), evidence=[*map(as_flags, one.evidence)]) for one in answers]
        print_document({"urls": told})
        return
    for answer in answers:
        mark = "crawled" if answer.crawled else "failed" if answer.reason == "error" else "not crawled"
        click.echo(shown(f"{answer.url}\n  {mark}: {as_flags(answer.summary)} [{answer.reason}]"))
        for line in () if quiet else answer.evidence:
            click.echo(shown(f"    {as_flags(line)}"))
