"""`weft pause|resume|edit|seed|cancel CRAWL_DIR`: controls a running crawl from another terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from weft.cli.crawls.commands_to_copy import resume as resume_command
from weft.cli.reports.folders import engine_dir, report_in, which_crawl
from weft.cli.terminal.messages import as_flags
from weft.cli.terminal.output import output_flags, print_document, printable
from weft.cli.terminal.settings import SettingsCommand, config_flags, given


class EditCommand(SettingsCommand):
    """The flags of the settings that can be changed while a crawl runs."""

    all_of = frozenset({"scope", "limits", "politeness"})

    def _answer(self, flag: str) -> str:
        """The error for an unknown flag; a flag of `weft crawl` that cannot be changed gets a message of its own."""
        from weft.config import keys, own_names

        if flag.lstrip("-").replace("-", "_") in own_names(keys()):
            return ": it cannot be changed while a crawl runs; stop the crawl, and set it with `weft crawl --resume`"
        return super()._answer(flag)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes nothing: the notes on flags of `weft crawl` do not apply."""


def folder_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the arguments for the folder and the crawl in it, and the flags of the output."""
    return click.argument("crawl_dir", metavar="DIR")(which_crawl(output_flags(command)))


@click.command()
@folder_flags
def pause(crawl_dir: str, crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Pause a crawl until `weft resume`. Requests in flight are finished; nothing is lost.

    A paused crawl stays paused when its processes die. Paused time does not count for --max-duration.
    """
    _send_command("pause", "Paused", crawl_dir, crawl, more, as_json, quiet)


@click.command()
@folder_flags
def resume(crawl_dir: str, crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Continue a crawl that `weft pause` has paused. (A crawl that has ended continues with `weft crawl --resume`.)"""
    _send_command("resume", "Resumed", crawl_dir, crawl, more, as_json, quiet)


@click.command()
@folder_flags
def cancel(crawl_dir: str, crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Cancel a crawl for good: requests in flight are aborted, queued URLs are dropped. Its pages are kept."""
    _send_command("cancel", "Cancelled", crawl_dir, crawl, more, as_json, quiet)


@click.command()
@folder_flags
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
def seed(
    crawl_dir: str, urls: tuple[str, ...], crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool
) -> None:
    """Add URLs to a crawl. They extend its scope as its first seeds do; credentials are not sent to their sites."""
    _send_command("seed", "Added", crawl_dir, crawl, more, as_json, quiet, given=list(urls))


def _edit_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    from weft.engine.crawls.settings import EDITABLE

    return config_flags(command, only=sorted(EDITABLE))


@click.command(cls=EditCommand)
@_edit_flags
@folder_flags
def edit(crawl_dir: str, crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool, **values: Any) -> None:
    """Change patterns, delay or limits of a crawl while it runs.

    \b
    weft edit ./weft-data --exclude '/private/*' --delay 2

    A list replaces the one before it; --exclude '' excludes nothing. URLs that an exclusion removes from the queue
    return when the exclusion is removed.
    """
    settings = given(values)
    if not settings:
        raise click.UsageError("nothing to change: give at least one of the flags that `weft edit --help` lists")
    _send_command("edit", "Changed", crawl_dir, crawl, more, as_json, quiet, settings=settings)


def _send_command(
    verb: str, done: str, crawl_dir: str, crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool,
    **arguments: Any,
) -> None:  # fmt: skip
    """Sends a command and prints its outcome."""
    from weft.crawl.commands import command, engine_command
    from weft.errors import BadInput

    if engine_dir(crawl_dir) != crawl_dir:
        raise BadInput(f"{crawl_dir}: holds the tasks of a service, which controls them itself: see `weft jobs --help`")
    with report_in([crawl_dir], more) as report:
        folder = report.folder
        if report.is_engines:
            result = engine_command(folder, verb, crawl, **arguments)
        else:
            report.crawls(crawl)  # raises BadInput for an unknown name
            result = command(folder, verb, **arguments)
    if as_json:
        print_document(result)
        return
    if quiet:
        return
    lines = [f"{done}: {_outcome_text(verb, result)}"]
    for url, reason in result.get("refused_urls", {}).items():
        lines.append(f"Refused: {url}: {reason}")
    if verb == "cancel":
        pass
    elif not result["is_running"]:
        lines.append(f"No process runs this crawl now. Continue it: {resume_command(folder.data_dirs)}")
    elif not result["is_in_force"]:
        lines.append("The change is recorded; some processes of the crawl have not read it yet, but will.")
    click.echo(printable(as_flags("\n".join(lines))))


def _outcome_text(verb: str, result: dict[str, Any]) -> str:
    if verb == "edit":
        changes = (
            f"{key}: {new}" if old is None else f"{key}: {old} -> {new}"
            for key, (old, new) in result["changed"].items()
        )
        return "; ".join(changes) or "nothing, the crawl has these settings already"
    if verb == "seed":
        return f"{result['new']:,} new {'seed' if result['new'] == 1 else 'seeds'}"
    if not result["is_running"]:
        return "recorded in the folder"
    return f"{result['pages']:,} pages stored, {result['queued']:,} URLs queued, {result['in_flight']:,} in flight"
