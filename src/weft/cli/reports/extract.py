"""`weft extract DIR --spider FILE -o OUT`: runs a spider on the stored pages of a crawl, without requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from weft.cli.crawls.own_items import check_flags
from weft.cli.terminal.output import output_flags, print_document, printable


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@click.option("--spider", metavar="FILE.py[:CLASS]", help="The spider; without it that of the crawl.")
@click.option("-o", "--out", metavar="FILE", help="FILE.jsonl, .csv, .json or .parquet.")
@click.option("--overwrite", is_flag=True, help="Replace the file if there is one.")
@click.option("--failed", is_flag=True, help="Only the pages whose callback has failed; their items join the crawl's.")
@output_flags
def extract(
    crawl_dirs: tuple[str, ...],
    spider: str | None,
    out: str | None,
    overwrite: bool,
    failed: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Call a spider again for the stored pages of a crawl. Nothing is requested.

    \b
    weft extract ./weft-data --spider quotes.py -o again.jsonl
    weft extract ./weft-data --failed

    Each page is passed to the callback that it was fetched for, with its meta. With --out the items of all pages are
    written to that file, and what the crawl has committed stays as it is. With --failed only the pages are read whose
    callback has failed, and what it makes of them is committed as if it had not: `weft items` has the items, and
    `weft run --resume` continues with the requests. The crawl may run meanwhile. The exit code is 1 where a callback
    failed.
    """
    from weft.crawl.reports.crawls import ReportFolder
    from weft.errors import BadInput

    check_flags(out, overwrite=overwrite, append=False)
    folder = ReportFolder(list(crawl_dirs))
    folder.close()
    if folder.is_engines:
        raise BadInput(f"{crawl_dirs[0]}: has the crawls of an engine, which have no spider")
    dirs = folder.folder.data_dirs
    if failed:
        if out is not None:
            raise BadInput(
                "--failed: its items join those of the crawl: leave `--out` out; `weft items` writes them all"
            )
        return _extract_failed(dirs, spider, as_json=as_json, quiet=quiet)
    if out is None:
        raise BadInput("name the file for the items: `--out FILE`; or give `--failed`, which commits them to the crawl")
    if out == "-":
        raise BadInput("--out: name a file; `weft items` writes to standard output")
    return _extract_all(dirs, spider, out, overwrite=overwrite, as_json=as_json, quiet=quiet)


def _extract_all(
    dirs: Sequence[Path], spider: str | None, out: str, *, overwrite: bool, as_json: bool, quiet: bool
) -> int:
    """Extracts from all pages into a file."""
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.items.extracting import extract_items
    from weft.engine.user_code.describing import describe
    from weft.engine.user_code.sources import code_of_crawl, replacement_code
    from weft.errors import BadInput

    config = CrawlFolder(dirs).config()
    code = replacement_code(config, spider) if spider is not None else code_of_crawl(config)
    if code is None:
        raise BadInput("the crawl was started without a spider: name one, `--spider FILE.py`")
    describe(code)  # raises what is wrong with it
    made = extract_items(dirs, config, code, out, overwrite=overwrite)
    if as_json:
        print_document({"path": out, "pages": made.pages, "items": made.items, "failed": made.failed})
    elif not quiet:
        click.echo(f"{made.items:,} items of {made.pages:,} pages in {out}", err=True)
    return _print_failures(made.failed, made.first_failure, with_first=not (as_json or quiet))


def _extract_failed(dirs: Sequence[Path], spider: str | None, *, as_json: bool, quiet: bool) -> int:
    """Extracts from the pages that have failed, and commits the items to the crawl."""
    from weft.cli.crawls.commands_to_copy import resume
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.items.failed import extract_failed
    from weft.crawl.reports.combined_status import current_status

    made = extract_failed(dirs, spider)
    folder = CrawlFolder(dirs)
    queued = current_status(folder).queued
    if as_json:
        print_document(
            {"pages": made.pages, "items": made.items, "requests": made.requests, "queued": queued,
             "failed": made.failed}
        )  # fmt: skip
    elif not quiet:
        nothing = "there are no pages with a failed callback"
        done = f"{made.items:,} items of {made.pages:,} pages that had failed are committed"
        click.echo(done if made.pages or made.failed else nothing, err=True)
        if queued and not folder.is_held():
            click.echo(printable(f"{queued:,} URLs are queued. Continue: {resume(dirs)}", err=True), err=True)
    return _print_failures(made.failed, made.first_failure, with_first=not (as_json or quiet))


def _print_failures(failed: Mapping[str, int], first: str, *, with_first: bool) -> int:
    for cause, count in failed.items():
        click.echo(printable(f"weft: {count:,} pages: {cause}", err=True), err=True)
    if failed and with_first:
        click.echo(printable(f"The first of them: {first}", err=True), err=True)
    return 1 if failed else 0
