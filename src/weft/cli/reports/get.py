"""`weft get DIR URL`: prints one stored page."""

from __future__ import annotations

import shlex
import sys
from base64 import b64encode
from typing import Any

import click

from weft.cli.crawls.commands_to_copy import resume
from weft.cli.reports.folders import report_in, which_crawl
from weft.cli.terminal.output import output_flags, print_document, printable, visible

# What a browser makes of a page, and how a crawl has it made.
_LACK_TEXTS = {
    "rendered": "had it; crawl with `--render`",
    "screenshot": "taken a picture of it; crawl with `--render` and `--render-screenshot`",
    "pdf": "printed it; crawl with `--render` and `--render-pdf`",
}


@click.command()
@click.argument("crawl_dir", metavar="DIR")
@click.argument("url")
@click.option("--headers", "what", flag_value="headers", help="The response's status line and headers.")
@click.option("--body", "what", flag_value="body", help="The body as bytes, decompressed.")
@click.option("--text", "what", flag_value="text", help="The page's text.")
@click.option("--main-text", "what", flag_value="main_text", help="The main text of the page.")
@click.option("--comments", "what", flag_value="comments", help="The readers' comments.")
@click.option("--markdown", "what", flag_value="markdown", help="The same as Markdown; see --markdown-links.")
@click.option("--markdown-links", type=click.Choice(("keep", "text", "drop")), default="keep", show_default=True,
              help="What becomes of links in Markdown: kept, their text alone, or neither.")  # fmt: skip
@click.option("--rendered", "what", flag_value="rendered", help="The page after rendering in a browser, with `render`.")
@click.option("--screenshot", "what", flag_value="screenshot", help="Its screenshot, a PNG.")
@click.option("--pdf", "what", flag_value="pdf", help="The page as a PDF, with `render_pdf`.")
@click.option("--links", "what", flag_value="links", help="The page's links, one a line.")
@which_crawl
@output_flags
def get(
    crawl_dir: str,
    url: str,
    what: str | None,
    markdown_links: str,
    crawl: str | None,
    more: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the stored page of a URL: headers, body, text, Markdown, links; without an option, its record.

    On a terminal control characters are shown as escapes; elsewhere everything is printed as stored. For an engine or a
    service it is the latest page of any crawl, and `crawl` names the crawl.
    """
    from weft import urls
    from weft.crawl.reports.report import row_document
    from weft.engine.parsing.parsers import Parsers
    from weft.engine.stored.stored_page import read_page
    from weft.errors import BadInput, Unparsed, WeftError
    from weft.store.errors import StoreError, UnreadableData

    with report_in([crawl_dir], more) as report:
        store, dirs = report.store, report.folder.data_dirs
        number = report.crawls(crawl)[0].number if crawl is not None else 0
        wanted = urls.stored_as(url)
        row = next(filter(None, (store.row_of(one, number) for one in wanted)), None)
        if row is None:
            searched = f" (looked for {' and '.join(wanted)})" if wanted != [url] else ""
            which = ["--crawl", crawl] if crawl is not None else []
            command = shlex.join(["weft", "explain", crawl_dir, wanted[0], *which])
            raise BadInput(f"{url}: is not in {crawl_dir}{searched}; `{command}` says why")
        facts = row_document(row, store)
        if report.is_engines:
            having = report.crawls_numbered({one.crawl for one in store.rows_of_url(row.url)})
            facts = {"crawl": next((one.name for one in having if one.number == row.crawl), None)} | facts
            facts["crawls"] = [one.name for one in having]
        if what is None:
            print_document(facts)
            return
        try:
            stored = store.read_page(row)
            page = read_page(stored)
            text = store.text(row) if what == "text" and page is None else None
        except UnreadableData as error:
            command = shlex.join(["weft", "rebuild", *map(str, dirs)])
            again = "a running task" if report.is_engines else f"`{resume(dirs)}`"
            hint = f"`{command}` takes it out, and {again} fetches it again"
            raise StoreError(error.path, f"the stored page of {url} is damaged ({error}); {hint}") from error
    if report.is_engines and not as_json and not quiet:
        click.echo(printable(f"of crawl {facts['crawl']}, fetched {facts['fetched_at']}", err=True), err=True)
    if text is None and page is None:
        raise BadInput(f"{url}: no response is stored ({row.error or 'the crawl stores only texts'})")
    if what == "headers" and page is not None and stored.http is not None:
        headers = "\n".join([stored.http.start, *(f"{name}: {value}" for name, value in page.headers)])
        _print_part(facts | {"start": stored.http.start, "headers": page.headers}, headers, "latin-1", as_json)
    elif what == "body" and page is not None:
        if as_json:
            print_document(facts | {"body_base64": b64encode(page.body).decode()})
        elif sys.stdout.isatty():
            click.echo(visible(page.body.decode("utf-8", "replace")))
        else:
            click.echo(page.body, nl=False)
    elif what in _LACK_TEXTS and page is not None:
        kept = {"rendered": page.rendered, "screenshot": page.screenshot, "pdf": page.drawn.pdf}[what]
        if not kept:
            raise BadInput(f"{url}: no browser has {_LACK_TEXTS[what]}")
        if as_json:
            print_document(facts | {f"{what}_base64": b64encode(kept).decode()})
        else:
            click.echo(kept, nl=False)
    elif page is None and what != "text":
        raise BadInput(f"{url}: the crawl stores only texts, no {what}; `--text` prints its text")
    elif page is None:
        _print_part(facts | {"text": text}, text or "", "utf-8", as_json)
    else:
        try:
            with Parsers() as parsers:
                part = _page_property(what, markdown_links)
                read = parsers.result(parsers.submit(page.readable, page.url, page.readable_type, [part]))
        except Unparsed as error:
            raise WeftError(f"{url} cannot be parsed ({error}); --body and --headers print what is stored") from error
        if what == "links":
            links = list(urls.join_all(read.base, read.hrefs, read.charset or "utf-8"))
            _print_part(facts | {"links": links}, "\n".join(links), "utf-8", as_json, nl=bool(links))
        else:
            content = getattr(read, part)
            _print_part(facts | {what or "text": content}, content, "utf-8", as_json)


def _page_property(what: str | None, markdown_links: str) -> str:
    """The property of a page to print."""
    if what == "markdown" and markdown_links != "keep":
        return f"markdown_{markdown_links}"
    return "hrefs" if what == "links" else what or "text"


def _print_part(facts: dict[str, Any], text: str, charset: str, as_json: bool, *, nl: bool = True) -> None:
    """Prints the facts as JSON, or the text: with control characters escaped on a terminal, as stored elsewhere."""
    if as_json:
        print_document(facts)
    elif sys.stdout.isatty():
        click.echo(visible(text), nl=nl)
    else:
        click.echo(text.encode(charset, "replace"), nl=nl)  # bytes, because click would remove escape codes from text
