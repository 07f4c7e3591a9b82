"""`weft get CRAWL_DIR URL`: one stored page."""

from __future__ import annotations

import shlex
import sys
from base64 import b64encode
from typing import Any

import click

from weft.cli.folders import crawl_in, further_data_dirs
from weft.cli.output import output_flags, print_document, visible
from weft.cli.suggestions import resume


@click.command()
@click.argument("crawl_dir")
@click.argument("url")
@click.option("--headers", "what", flag_value="headers", help="The response's status line and headers.")
@click.option("--body", "what", flag_value="body", help="The body as bytes, decompressed.")
@click.option("--text", "what", flag_value="text", help="The page's text.")
@click.option("--links", "what", flag_value="links", help="The page's links, one a line.")
@further_data_dirs
@output_flags
def get(crawl_dir: str, url: str, what: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> None:  # noqa: ARG001
    """Print the stored page of a URL: headers, body, text or links; without an option, what is known about it.

    On a terminal control characters are shown as escapes; elsewhere everything comes as it is stored.
    """
    from weft import urls
    from weft.crawl.reports.report import row_facts
    from weft.engine.parsers import Parsers
    from weft.engine.stored_page import read_page
    from weft.errors import BadInput, Unparsed, WeftError
    from weft.store.errors import StoreError, Unreadable
    from weft.store.pages import PageStore

    folder = crawl_in([crawl_dir], more)
    store = PageStore.open(folder.data_dirs, read_only=True)
    try:
        wanted = urls.stored_as(url)
        row = next(filter(None, map(store.row_of, wanted)), None)
        if row is None:
            looked_for = f" (looked for {' and '.join(wanted)})" if wanted != [url] else ""
            command = shlex.join(["weft", "explain", crawl_dir, wanted[0]])
            raise BadInput(f"{url}: is not in {crawl_dir}{looked_for}; `{command}` says why")
        facts = row_facts(row, store)
        if what is None:
            print_document(facts)
            return
        stored = store.read(row)
        page = read_page(stored)
        text = store.text(row) if what == "text" and page is None else None
    except Unreadable as error:
        command = shlex.join(["weft", "rebuild", *map(str, folder.data_dirs)])
        hint = f"`{command}` and `{resume(folder.data_dirs)}` have it fetched again"
        raise StoreError(error.path, f"the stored page of {url} is damaged ({error}); {hint}") from error
    finally:
        store.abandon()
    if text is None and page is None:
        raise BadInput(f"{url}: no response is stored ({row.error or 'the crawl keeps texts alone'})")
    if what == "headers" and page is not None and stored.http is not None:
        headers = "\n".join([stored.http.start, *(f"{name}: {value}" for name, value in page.headers)])
        _show(facts | {"start": stored.http.start, "headers": page.headers}, headers, "latin-1", as_json)
    elif what == "body" and page is not None:
        if as_json:
            print_document(facts | {"body_base64": b64encode(page.body).decode()})
        elif sys.stdout.isatty():
            click.echo(visible(page.body.decode("utf-8", "replace")))
        else:
            click.echo(page.body, nl=False)
    elif page is None:
        _show(facts | {"text": text}, text or "", "utf-8", as_json)
    else:
        try:
            with Parsers() as parsers:
                part = "hrefs" if what == "links" else "text"
                read = parsers.result(parsers.submit(page.body, page.url, page.header("content-type"), [part]))
        except Unparsed as error:
            raise WeftError(f"{url} cannot be parsed ({error}); --body and --headers give what is stored") from error
        if what == "links":
            links = list(urls.join_all(read.base, read.hrefs, read.charset or "utf-8"))
            _show(facts | {"links": links}, "\n".join(links), "utf-8", as_json, nl=bool(links))
        else:
            _show(facts | {"text": read.text}, read.text, "utf-8", as_json)


def _show(facts: dict[str, Any], text: str, charset: str, as_json: bool, *, nl: bool = True) -> None:
    """The facts as JSON, or the text: visible on a terminal, elsewhere as the bytes that are stored."""
    if as_json:
        print_document(facts)
    elif sys.stdout.isatty():
        click.echo(visible(text), nl=nl)
    else:
        click.echo(text.encode(charset, "replace"), nl=nl)  # as text, click would take escape codes out of it
