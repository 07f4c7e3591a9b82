"""`weft items DIR` and `weft errors DIR`: the items that a spider has yielded, and its failures."""

from __future__ import annotations

import sys

import click

from weft.cli.crawls.own_items import check_flags
from weft.cli.terminal.output import output_flags, print_document, printable


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@click.option("-o", "--out", metavar="FILE", default="-", show_default=True,
              help="Where to: FILE.jsonl, .csv, .json or .parquet; - is stdout.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace the file if there is one.")
@output_flags
def items(crawl_dirs: tuple[str, ...], out: str, overwrite: bool, as_json: bool, quiet: bool) -> int:
    """Write the items of a crawl, in the order in which they were committed.

    \b
    weft items ./weft-data | head
    weft items ./weft-data -o quotes.csv

    It may be called while the crawl runs.
    """
    from weft.crawl.items.item_export import write_items
    from weft.crawl.reports.crawls import ReportFolder

    check_flags(out, overwrite=overwrite, append=False)
    folder = ReportFolder(list(crawl_dirs))
    folder.close()
    count = write_items(folder.folder.data_dirs, out, overwrite=overwrite, on_terminal=sys.stdout.isatty())
    if as_json and out != "-":
        print_document({"path": out, "items": count})
    elif out != "-" and not quiet:
        click.echo(f"{count:,} {'item' if count == 1 else 'items'} in {out}", err=True)
    return 0


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@click.option("--top", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="Causes, at most.")
@output_flags
def errors(crawl_dirs: tuple[str, ...], top: int, as_json: bool, quiet: bool) -> int:
    """List the failures of a crawl by cause: of its callbacks with their tracebacks, and of its requests.

    \b
    weft errors ./weft-data

    After a fix of the spider, `weft extract DIR --failed` calls it again for the pages that failed, without a request.
    """
    from weft.crawl.items.failures import failure_causes
    from weft.crawl.reports.crawls import ReportFolder

    del quiet
    folder = ReportFolder(list(crawl_dirs))
    folder.close()
    causes = failure_causes(folder.folder.data_dirs, top)
    if as_json:
        print_document({
            "failures": [
                {"cause": one.cause, "count": one.count, "urls": one.urls, "traceback": one.traceback} for one in causes
            ]
        })  # fmt: skip
        return 0
    for one in causes:
        click.echo(printable(f"{one.count:>7,}  {one.cause}"))
        for url in one.urls:
            click.echo(printable(f"         {url}"))
        for line in one.traceback.strip().splitlines():
            click.echo(printable(f"           {line}"))
    if not causes:
        click.echo("nothing has failed", err=True)
    return 0
