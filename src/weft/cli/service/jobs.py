"""`weft jobs`: tasks of a running scrape service, from the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.cli.service.job_webhooks import webhooks
from weft.cli.service.service_flags import client, service_flags
from weft.cli.terminal.output import print_document, printable
from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.client import Weft
    from weft.scraping import TaskStatus

EXIT_CODES = {"COMPLETED": 0, "PARTIAL": 3}  # FAILED and CANCELLED: 1


@click.group()
def jobs() -> None:
    """Submit, watch and stop tasks of a scrape service.

    `weft serve` runs one. An API key, where the service needs one, comes from the variable WEFT_API_KEY or from a file.
    """


jobs.add_command(webhooks)


@jobs.command()
@click.argument("url")
@click.option("--max-depth", metavar="N", type=int, help="Links from the URL; 0 for the URL only. [default: 2]")
@click.option("--max-pages", metavar="N", type=int, help="Pages to scrape, at most.")
@click.option("--timeout-minutes", metavar="N", type=int, help="Until the task ends, 5 to 120. [default: 30]")
@click.option("--max-concurrent-articles", metavar="N", type=int, help="Pages in flight. [default: 10]")
@click.option("--retry-attempts", metavar="N", type=int, help="Retries of a failed request. [default: 3]")
@click.option("--proxies", is_flag=True, default=None, help="Send all requests through the service's proxies.")
@click.option("--workers", metavar="NAME", help="Which machines request: local, cluster or prefer-cluster.")
@click.option("--login", metavar="NAME", help="Log in first, with a login configured in the service.")
@click.option("--scope", metavar="NAME", help="Where links may lead: any, domain, host or prefix.")
@click.option("--include", metavar="GLOB", multiple=True, help="Only URLs that match.")
@click.option("--exclude", metavar="GLOB", multiple=True, help="No URLs that match.")
@click.option(
    "--trap-rules/--no-trap-rules", default=None, help="Reject links that seem to be part of an endless space."
)
@click.option(
    "--formats", metavar="NAME[,NAME]", multiple=True, help="What is stored of a page: markdown, text, html, links, ..."
)
@click.option("--links", metavar="NAME", help="In Markdown: keep links, their text alone (text), or neither (drop).")
@click.option("--extract", metavar="FILE", help="Rules for the fields of a page, in JSON or YAML.")
@click.option("--webhook", metavar="URL", help="URL that receives signed events.")
@click.option("--no-partial", is_flag=True, help="A task with partial results counts as failed.")
@click.option("--idempotency-key", metavar="TEXT", help="A repeated key returns the first task.")
@click.option("--watch", "follow", is_flag=True, help="Show its progress until it ends.")
@service_flags
def submit(
    url: str, extract: str | None, no_partial: bool, idempotency_key: str | None, follow: bool, server: str | None,
    key_file: str | None, as_json: bool, quiet: bool, **given: Any,
) -> int:  # fmt: skip
    """Start a task, and print its id.

    The task runs in the service: this command need not wait for it.
    """
    options: Any = {name: _join_list(value) for name, value in given.items() if value not in (None, ())}
    if "formats" in options:
        options["formats"] = [name for part in options["formats"] for name in part.split(",")]
    if extract is not None:
        options["extract"] = _read_rules(extract)
    if no_partial:
        options["partial_results_ok"] = False
    weft = client(server, key_file)
    done = weft.submit(url, idempotency_key=idempotency_key, **options)
    if follow:
        if not as_json:
            click.echo(done.task_id)
        return _watch_task(weft, done.task_id, as_json, quiet)
    if as_json:
        print_document(msgspec.to_builtins(done))
    else:
        click.echo(done.task_id)
        if not quiet:
            click.echo(f"weft jobs watch {done.task_id}   # shows its progress", err=True)
    return 0


@jobs.command()
@click.argument("task_id")
@service_flags
def watch(task_id: str, server: str | None, key_file: str | None, as_json: bool, quiet: bool) -> int:
    """Show the progress of a task until it ends.

    Ctrl-C leaves the task alone. The exit code is 0 for COMPLETED, 3 for PARTIAL and 1 for FAILED or CANCELLED.
    """
    return _watch_task(client(server, key_file), task_id, as_json, quiet)


@jobs.command()
@click.argument("task_id")
@click.option(
    "--format",
    "kind",
    metavar="NAME",
    default="jsonl",
    show_default=True,
    help="Format: jsonl, csv, markdown, parquet or warc.",
)
@click.option("--errors", "include_errors", is_flag=True, help="Include the URLs without a page.")
@click.option("--out", metavar="FILE", help="Output file. [default: stdout]")
@service_flags
def results(
    task_id: str, kind: str, include_errors: bool, out: str | None, server: str | None, key_file: str | None,
    as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Write the pages of a task so far, also while it runs."""
    weft = client(server, key_file)
    if as_json:
        pages, errors = [], []
        cursor: str | None = None
        while True:
            results = weft.results(task_id, include_errors=include_errors, cursor=cursor)
            pages += [page.document for page in results.pages]
            errors += [msgspec.to_builtins(error) for error in results.errors]
            if (cursor := results.next_cursor) is None:
                break
        print_document({"task_id": task_id, "status": results.status, "results": pages, "errors": errors})
        return 0
    if kind == "json":  # two JSON documents one after the other are not a valid document
        raise BadInput("--format: 'json' is not accepted; use jsonl, or --json for one document on stdout")
    written = _write_pieces(_result_pieces(weft, task_id, kind, include_errors), out)
    if not quiet and out is not None:
        click.echo(f"{out}: {written:,} bytes", err=True)
    return 0


@jobs.command()
@click.argument("task_id")
@service_flags
def errors(task_id: str, server: str | None, key_file: str | None, as_json: bool, quiet: bool) -> int:  # noqa: ARG001
    """List the URLs without a page, each with the reason."""
    page_errors = list(client(server, key_file).errors(task_id))
    if as_json:
        print_document({"task_id": task_id, "errors": msgspec.to_builtins(page_errors)})
        return 0
    for error in page_errors:
        message = f"HTTP {error.status}" if error.status and not error.error else error.error
        click.echo(printable(f"{error.error_class:10}  {error.url}  {message}"))
    return 0


def _state_command(name: str, summary: str) -> None:
    """Creates a command that changes the state of a task."""

    @jobs.command(name, help=summary)
    @click.argument("task_id")
    @service_flags
    def change(task_id: str, server: str | None, key_file: str | None, as_json: bool, quiet: bool) -> int:
        done = getattr(client(server, key_file), name)(task_id)
        if as_json:
            print_document(msgspec.to_builtins(done))
        elif not quiet:
            click.echo(f"{done.task_id}: {done.status}", err=True)
        return 0


_state_command("cancel", "Cancel a task; what was scraped is kept.")
_state_command("pause", "Pause a task; its deadline is not extended.")
_state_command("resume", "Resume a paused task.")


@jobs.command("list")
@click.option("--status", metavar="NAME", help="Only those in this state, like RUNNING.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@service_flags
def list_(status: Any, limit: int, server: str | None, key_file: str | None, as_json: bool, quiet: bool) -> int:
    """List tasks, newest first."""
    from itertools import islice

    tasks = list(islice(client(server, key_file).tasks(status.upper() if status else None), limit))
    if as_json:
        print_document({"tasks": msgspec.to_builtins(tasks)})
        return 0
    for task in tasks:
        state = f"{task.status} ({task.finish_reason})" if task.finish_reason not in (None, "done") else task.status
        click.echo(printable(f"{task.task_id}  {task.created_at:%Y-%m-%d %H:%M:%S}  {state:22}  {task.url}"))
    if not tasks and not quiet:
        click.echo("no tasks", err=True)
    return 0


def _watch_task(weft: Weft, task_id: str, as_json: bool, quiet: bool) -> int:
    from weft.cli.service.job_display import TaskPicture, task_lines
    from weft.cli.terminal.live import showing

    picture = TaskPicture(task_id)
    with showing(picture, task_lines(), quiet=as_json or quiet) as show:
        for status in _task_statuses(weft, task_id, picture.happened):
            if not status.has_ended:
                show(status)
    if as_json:
        print_document(msgspec.to_builtins(status))
    elif not quiet:
        from weft.client.progress_display import progress_text

        reason = f" ({status.finish_reason})" if status.finish_reason else ""
        click.echo(f"{progress_text(status)}{reason}{': ' + status.message if status.message else ''}", err=True)
        if status.errors_by_class and status.status in ("PARTIAL", "FAILED"):
            click.echo(f"weft jobs errors {task_id}   # lists the pages, with reasons", err=True)
    return EXIT_CODES.get(status.status, 1)


def _task_statuses(weft: Weft, task_id: str, happened: Callable[[Any], None]) -> Iterator[TaskStatus]:
    """Yields the current status, the status after each event, and the last one."""
    status = weft.status(task_id)
    yield status
    if not status.has_ended:
        for event in weft.events(task_id, after=status.last_event):
            happened(event)
            if event.kind in ("progress", "state"):
                yield weft.status(task_id)
        yield weft.status(task_id)


def _result_pieces(weft: Weft, task_id: str, kind: str, include_errors: bool) -> Iterator[bytes]:
    cursor: str | None = None
    while True:
        piece, cursor = weft.export(task_id, kind, include_errors=include_errors, cursor=cursor, limit=1000)
        if kind == "parquet" and cursor is not None:
            raise BadInput("there are too many pages for one Parquet file: take `--format jsonl`")
        yield piece
        if cursor is None:
            return


def _write_pieces(pieces: Iterator[bytes], out: str | None) -> int:
    """Writes all pieces. An error response arrives as the first piece, and must leave an existing file unchanged."""
    from itertools import chain
    from pathlib import Path

    written = 0
    pieces = chain([next(pieces)], pieces)
    try:
        with Path(out).open("wb") if out is not None else os.fdopen(os.dup(sys.stdout.fileno()), "wb") as file:
            for piece in pieces:
                written += file.write(piece)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(f"out {out}: cannot be written: {error.strerror}") from None
    return written


def _join_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read_rules(path: str) -> dict[str, Any]:
    from weft.config.values import rules_file

    try:
        return rules_file(path)
    except ValueError as error:
        raise BadInput(f"extract: {error}") from None
