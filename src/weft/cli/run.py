"""`weft run FILE[:CLASS]`: runs a user's spider, and writes its items to a file."""

from __future__ import annotations

from typing import Any

import click

from weft.cli.crawls.own_items import item_flags
from weft.cli.terminal.output import output_flags
from weft.cli.terminal.settings import SettingsCommand, config_flags, given, help_all


@click.command(cls=SettingsCommand, context_settings={"max_content_width": 120})
@click.argument("source", metavar="[FILE.py[:CLASS]]", required=False)
@item_flags
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
@click.option("--no-progress", is_flag=True, help="No live display; one line every few seconds.")
@config_flags
@output_flags
@help_all
def run(
    source: str | None,
    out: str | None,
    overwrite: bool,
    append: bool,
    config_file: str | None,
    no_progress: bool,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Run a spider: a Python class that says where to begin, what to take from each page, and where to go next.

    \b
    weft run quotes.py -o quotes.jsonl --email you@example.com
    weft run quotes.py:Quotes --resume -o quotes.jsonl
    weft run --scrapy quotes_spider.py -a tag=love -o quotes.jsonl

    Items are kept with the pages that they come from, and written as they are committed: after a Ctrl-C or a kill
    --resume continues the same file. `weft items DIR` writes them again. Exit codes are those of `weft crawl`.
    """
    from weft.cli.crawls.crawl import start
    from weft.errors import BadInput

    flags = given(values)
    if source is not None:
        if "spider" in flags or "scrapy" in flags:
            raise BadInput("the spider is given twice: as `weft run FILE.py`, or as `weft run --scrapy FILE.py`")
        flags["spider"] = source
    elif not (flags.get("resume") or "scrapy" in flags):
        raise BadInput("which spider? `weft run FILE.py`, or `weft run --resume --data-dir DIR` to continue one")
    return start(
        (), flags, config_file, out=out, overwrite=overwrite, append=append, no_progress=no_progress, as_json=as_json,
        quiet=quiet,
    )  # fmt: skip
