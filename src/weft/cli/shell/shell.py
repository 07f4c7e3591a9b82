"""`weft shell URL` and `weft shell DIR URL`: a prompt with a page."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.terminal.settings import SettingsCommand, config_flags, given, help_all

if TYPE_CHECKING:
    from weft.cli.shell.page_sources import PageSource
    from weft.config import Loaded
    from weft.engine.user_code.page import Page
    from weft.spiders.spider import Spider


def _page_flags(command: Any) -> Any:
    return config_flags(command, only=("fetch", "politeness"))


@click.command(cls=SettingsCommand, context_settings={"max_content_width": 120})
@click.argument("targets", metavar="[DIR] URL", nargs=-1, required=True)
@click.option("--spider", metavar="FILE.py[:CLASS]", help="A spider, whose callbacks can be called.")
@click.option("-c", "code", metavar="CODE", help="Run these statements instead of the prompt.")
@click.option("--crawl", metavar="NAME", help="With DIR: one crawl of an engine or a service, by name.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@_page_flags
@help_all
def shell(
    targets: tuple[str, ...],
    spider: str | None,
    code: str | None,
    crawl: str | None,
    config_file: str | None,
    quiet: bool,
    **values: Any,
) -> int:
    """Open a prompt with a page, to try selectors and callbacks.

    \b
    weft shell https://example.com --email you@example.com
    weft shell https://example.com/quotes/ --spider quotes.py
    weft shell ./weft-data https://example.com -c 'page.css("h1").text'

    The page is requested as in a crawl: robots.txt holds, and the delay between two pages of a site. With DIR it is a
    stored page of a crawl, and nothing is requested. The prompt has `page`, `fetch(url)` and, with a spider, `spider`
    and `try_callback(name)`. Without a terminal it reads statements from standard input, and ends with exit code 1 at
    the first exception.
    """
    from weft.cli.shell.session import ShellSession
    from weft.cli.shell.statements import parse_statements, run_prompt, run_statements

    quiet = quiet or bool((click.get_current_context().find_root().obj or {}).get("quiet"))
    folder, url = _folder_and_url(targets, crawl)
    own, loaded = _loaded_spider(spider, given(values), config_file)
    script: str | bytes | None = code
    name = "<code>"
    if script is None and not (sys.stdin is not None and sys.stdin.isatty()):
        script, name = sys.stdin.buffer.read() if sys.stdin is not None else b"", "<stdin>"
    statements = None if script is None else parse_statements(script, name)
    with ExitStack() as stack:
        source = _page_source(folder, crawl, loaded, quiet=quiet)
        stack.callback(source.close)
        session = ShellSession(source, own)
        page = session.fetch(url)
        if statements is not None:
            return run_statements(statements, name, session.names)
        return run_prompt(session.names, "" if quiet else _banner(page, has_spider=own is not None))


def _folder_and_url(targets: tuple[str, ...], crawl: str | None) -> tuple[str | None, str]:
    """The folder, if there is one, and the URL."""
    from weft.errors import BadInput

    if len(targets) > 2:
        raise BadInput("one page at a time: `weft shell URL`, or `weft shell DIR URL`; `fetch(url)` gets others")
    if len(targets) == 2:
        return targets[0], targets[1]
    if Path(targets[0]).is_dir():
        raise BadInput(f"{targets[0]}: is a folder; name the page, too: weft shell {targets[0]} URL")
    if crawl is not None:
        raise BadInput("--crawl: is for stored pages: weft shell DIR URL")
    return None, targets[0]


def _loaded_spider(text: str | None, flags: dict[str, Any], config_file: str | None) -> tuple[Spider | None, Loaded]:
    """The spider, imported in this process, and the settings, of which its own precede the defaults."""
    from weft.config import load

    if text is None:
        return None, load(config_file, flags=flags)
    from weft.crawl.own_code import SETTINGS_ORIGIN, settings_in
    from weft.engine.user_code.sources import code_named
    from weft.spiders.child import SpiderRunner
    from weft.spiders.loading import load_spider

    code = code_named(text)
    spider = load_spider(code)
    settings = settings_in(SpiderRunner(spider, code).describe())
    return spider, load(config_file, flags=flags, earlier=settings, earlier_origin=SETTINGS_ORIGIN)


def _page_source(folder: str | None, crawl: str | None, loaded: Loaded, *, quiet: bool) -> PageSource:
    from weft.cli.shell.page_sources import FolderPages, RequestedPages
    from weft.cli.terminal.output import printable

    def note(text: str) -> None:
        if not quiet:
            click.echo(printable(text, err=True), err=True)

    return FolderPages(folder, crawl) if folder is not None else RequestedPages(loaded, note)


def _banner(page: Page, *, has_spider: bool) -> str:
    from weft.cli.terminal.output import visible

    rows = [
        ("page", 'the page: page.css("h1"), page.xpath("//a/@href"), page.title, page.links, page.markdown'),
        ("fetch(url)", "another page, which is `page` then; also a request: fetch(page.follow(...))"),
    ]
    if has_spider:
        rows.append(("try_callback(name)", "what a method of the spider yields for the page; `spider` is the object"))
    listed = "\n".join(f"  {name:<20}{text}" for name, text in rows)
    return f"{visible(repr(page))}\n{visible(page.title)}\n{listed}\nThe tab key completes names. Ctrl-D ends."
