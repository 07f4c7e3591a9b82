"""`weft new NAME`: creates a spider to start from, with a test."""

from __future__ import annotations

import re
from pathlib import Path

import click

from weft.cli.terminal.output import output_flags, print_document

_CODE = '''"""A spider: `weft run {name}.py -o {name}.jsonl` runs it, `python -m pytest test_{name}.py` tests it."""

import weft


class {title}(weft.Spider):
    start_urls = ["{url}"]
    settings = {{"max_pages": 100}}  # any setting of a crawl: docs/settings.md

    def parse(self, page):
        yield {{"url": page.url, "title": page.title, "headings": page.css("h1, h2").texts}}
        yield from page.follow_all("a[rel=next]")
'''
_TEST_TEMPLATE = """import weft
from {name} import {title}

PAGE = "<title>A page</title><h1>First</h1><h2>Second</h2><a rel=next href='/2'>next</a>"


def test_a_page_becomes_an_item_and_leads_on():
    tried = weft.try_spider({title}, pages={{"{url}": PAGE}})
    assert tried.items == [{{"url": "{url}", "title": "A page", "headings": ["First", "Second"]}}]
    assert len(tried.missing) == 1
"""


@click.command()
@click.argument("name")
@click.option("--url", default="https://example.com/", show_default=True, help="The start URL of the spider.")
@output_flags
def new(name: str, url: str, as_json: bool, quiet: bool) -> int:
    """Create a spider NAME.py to start from, with a test.

    \b
    weft new quotes --url https://example.com/quotes/
    """
    from weft import urls
    from weft.errors import BadInput

    stem = name.removesuffix(".py").replace("-", "_")
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", stem):
        raise BadInput(f"{name}: is not a name of a module: lower-case letters, digits and _, no digit first")
    values = {"name": stem, "title": "".join(part.capitalize() for part in stem.split("_")), "url": urls.seed(url)}
    files = {Path(f"{stem}.py"): _CODE, Path(f"test_{stem}.py"): _TEST_TEMPLATE}
    if there := [str(path) for path in files if path.exists()]:
        raise BadInput(f"{there[0]} exists already: choose another name")
    for path, text in files.items():
        path.write_text(text.format(**values), encoding="utf-8")
    if as_json:
        print_document({"files": [str(path) for path in files]})
    elif not quiet:
        click.echo(f"Created {stem}.py and test_{stem}.py. Run it: weft run {stem}.py -o {stem}.jsonl", err=True)
    return 0
