"""`weft get CRAWL_DIR URL`: one stored page."""

from __future__ import annotations

import click

from weft.cli.output import output_flags, print_json


@click.command()
@click.argument("crawl_dir")
@click.argument("url")
@click.option("--headers", "what", flag_value="headers", help="The response's status line and headers.")
@click.option("--body", "what", flag_value="body", help="The body as bytes, decompressed.")
@click.option("--text", "what", flag_value="text", help="The page's text.")
@click.option("--links", "what", flag_value="links", help="The page's links, one a line.")
@click.option("--data-dir", "more", multiple=True, help="Further data dirs of the crawl, in their order.")
@output_flags
def get(crawl_dir: str, url: str, what: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> None:  # noqa: ARG001
    """Print the stored page of a URL: headers, body, text or links; without an option, what is known about it."""
    import msgspec

    from weft import urls
    from weft.crawl.api import read_page
    from weft.crawl.folder import CrawlFolder
    from weft.errors import BadInput
    from weft.store.pages import PageStore

    folder = CrawlFolder([crawl_dir, *more])
    folder.go_on()
    store = PageStore.open(folder.data_dirs, read_only=True)
    try:
        stored = store.get(urls.seed(url))
        if stored is None:
            raise BadInput(f"{url}: is not in {crawl_dir}")
        page = read_page(stored)
        text = store.text(stored.row.url) if what == "text" and page is None else None
    finally:
        store.abandon()
    if what is None or as_json:
        facts = msgspec.to_builtins(stored.row)
        print_json(facts)
        return
    if text is not None:
        click.echo(text)
        return
    if page is None:
        why = stored.row.error or "the crawl keeps texts alone"
        raise BadInput(f"{url}: no response is stored ({why})")
    if what == "headers":
        assert stored.http is not None
        click.echo("\n".join([stored.http.start, *(f"{name}: {value}" for name, value in page.headers)]))
    elif what == "body":
        click.echo(page.body, nl=False)
    elif what == "links":
        for link in urls.join_all(page.page.base, page.page.hrefs, page.page.charset or "utf-8"):
            click.echo(link)
    else:
        click.echo(page.page.text)
