"""`weft extract DIR --spider FILE -o OUT`: a spider over the stored pages of a crawl, without a request."""

from __future__ import annotations

import click

from weft.cli.crawls.own_items import check_flags
from weft.cli.terminal.output import output_flags, print_document, shown


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@click.option("--spider", metavar="FILE.py[:CLASS]", help="The spider; without it that of the crawl.")
@click.option("-o", "--out", metavar="FILE", required=True, help="FILE.jsonl, .csv, .json or .parquet.")
@click.option("--overwrite", is_flag=True, help="Replace the file if there is one.")
@output_flags
def extract(
    crawl_dirs: tuple[str, ...], spider: str | None, out: str, overwrite: bool, as_json: bool, quiet: bool
) -> int:
    """Call a spider again for every stored page of a crawl, and write the items.

    \b
    weft extract ./weft-data --spider quotes.py -o again.jsonl

    Each page goes to the callback, with the meta, that it was fetched for. Nothing is requested, and what the crawl has
    committed stays as it is. The exit code is 1 where a callback failed.
    """
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.items.extracting import extract_items
    from weft.crawl.reports.crawls import ReportFolder
    from weft.engine.user_code.describing import describe
    from weft.engine.user_code.sources import code_in, code_of
    from weft.errors import BadInput

    check_flags(out, overwrite=overwrite, append=False)
    if out == "-":
        raise BadInput("--out: name a file; `weft items` writes to standard output")
    folder = ReportFolder(list(crawl_dirs))
    folder.close()
    dirs = folder.folder.data_dirs
    config = CrawlFolder(dirs).config()
    code = code_of(spider) if spider is not None else code_in(config)
    if code is None:
        raise BadInput("the crawl was started without a spider: name one, `--spider FILE.py`")
    describe(code)  # names what is wrong with it
    made = extract_items(dirs, config, code, out, overwrite=overwrite)
    if as_json:
        print_document({"path": out, "pages": made.pages, "items": made.items, "failed": made.failed})
    elif not quiet:
        click.echo(f"{made.items:,} items of {made.pages:,} pages in {out}", err=True)
    for cause, count in made.failed.items():
        click.echo(shown(f"weft: {count:,} pages: {cause}", err=True), err=True)
    if made.failed and not as_json and not quiet:
        click.echo(shown(f"The first of them: {made.first_failure}", err=True), err=True)
    return 1 if made.failed else 0
