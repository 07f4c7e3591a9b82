"""`weft crawl`: starts or resumes a crawl, with a live display on a terminal and plain lines elsewhere."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from weft.cli.crawls.commands_to_copy import CrawlArguments, resume
from weft.cli.crawls.own_items import check_flags, item_flags, output_of
from weft.cli.terminal.messages import as_flags
from weft.cli.terminal.output import output_flags, print_document, printable
from weft.cli.terminal.settings import SettingsCommand, config_flags, given, help_all
from weft.records import Reason

if TYPE_CHECKING:
    from weft.crawl.items.writing import ItemOutput
    from weft.crawl.reports.outcome import CrawlOutcome
    from weft.crawl.start import Prepared
    from weft.engine.loop.progress import CrawlStatus

OUTCOMES = (0, 3, 130)  # exit codes of a crawl that has run
CANCELLED = "cancelled"  # the state of a crawl that was ended for good


@click.command(cls=SettingsCommand, context_settings={"max_content_width": 120})
@click.argument("urls", metavar="[URL]...", nargs=-1)
@item_flags
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
@click.option("--no-progress", is_flag=True, help="No live display; one line every few seconds.")
@config_flags
@output_flags
@help_all
def crawl(
    urls: tuple[str, ...],
    out: str | None,
    overwrite: bool,
    append: bool,
    config_file: str | None,
    no_progress: bool,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Crawl from the given URLs, or those of a file, until nothing is left or a limit is reached.

    \b
    weft crawl https://example.com --email you@example.com --max-pages 1000
    weft crawl --resume --data-dir ./weft-data

    Ctrl-C ends cleanly, and the crawl can be resumed; twice ends at once, and still nothing is lost. Exit codes: 0
    finished, 3 stopped by a limit that left work, 4 finished and nothing stored, or every seed failed (the summary says
    why), 2 bad usage, 130 interrupted, 1 anything else.
    """
    return start(
        urls, given(values), config_file, out=out, overwrite=overwrite, append=append, no_progress=no_progress,
        as_json=as_json, quiet=quiet,
    )  # fmt: skip


def start(
    urls: Sequence[str],
    flags: dict[str, Any],
    config_file: str | None,
    *,
    out: str | None = None,
    overwrite: bool = False,
    append: bool = False,
    no_progress: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Prepares a crawl and runs it; returns the exit code. `out`: the file for a spider's items."""
    from weft.crawl.start import prepare
    from weft.errors import BadInput, Occupied

    check_flags(out, overwrite=overwrite, append=append)

    def say(text: str) -> None:
        click.echo(f"weft: {as_flags(text)}", err=True)

    announcements: list[str] = []
    arguments = CrawlArguments(urls, flags, config_file, out)
    try:
        prepared = prepare(urls, arguments.flags, config_file, complain=say, announce=announcements.append)
    except Occupied as taken:
        dirs = arguments.flags.get("data_dirs", [taken.home])
        raise BadInput(f"{taken}\nContinue:   {resume(dirs)}\nStart over: {arguments.fresh(dirs)}") from None
    # printed only after everything that can be refused: a refusal is a single message
    for text in () if quiet or as_json else announcements:
        say(text)
    try:
        output = output_of(prepared, out, overwrite=overwrite, append=append)
    except BaseException:
        if not flags.get("resume"):
            prepared.folder.clear()  # it was created for this crawl, which does not start
        prepared.close()
        raise
    return run(prepared, arguments, no_progress=no_progress, as_json=as_json, quiet=quiet, output=output)


def run(
    prepared: Prepared,
    arguments: CrawlArguments,
    *,
    no_progress: bool,
    as_json: bool,
    quiet: bool,
    output: ItemOutput | None = None,
) -> int:
    """Runs a prepared crawl with its display; returns the exit code. `output`: the file for its items."""
    from weft.cli.crawls.display import show_crawl
    from weft.crawl.processes.ends import EXIT_NOTHING
    from weft.crawl.reports.outcome import CrawlOutcome
    from weft.errors import LoginFailed
    from weft.supervise.notify import ServiceManager

    orchestrator, manager = prepared.orchestrator, ServiceManager.from_environment()
    interrupts = 0
    is_announced = quiet

    def interrupt(_signal: int, _frame: Any) -> None:
        nonlocal interrupts
        interrupts += 1
        orchestrator.stop(at_once=interrupts > 1)

    def watch(status: CrawlStatus) -> None:
        nonlocal is_announced
        manager.ready(str(prepared.folder.home))
        if interrupts:
            manager.stopping()
        manager.turn()
        if interrupts and not is_announced:
            # Not in the signal handler, which may interrupt the display while it is being drawn.
            is_announced = True
            getattr(show, "say", _print_line)(
                "stopping: requests in flight are finished first (Ctrl-C again stops at once)"
            )
        show(status)
        if output is not None:
            output.write_new_items()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        try:
            home, limits = str(prepared.folder.home), prepared.loaded.config.limits
            with show_crawl(home, limits.max_pages, quiet=quiet or as_json, plain=no_progress) as show:
                try:
                    code = orchestrator.run(watch, is_watched=sys.stderr.isatty() and not (quiet or as_json))
                except LoginFailed as failed:
                    command = _resume_command(prepared, arguments, orchestrator.status())
                    raise LoginFailed(
                        f"{failed}\nNothing of the queue is lost. Correct it, and continue: {command}"
                    ) from None
                finally:
                    if output is not None:
                        output.close()
                outcome = prepared.outcome() if code in OUTCOMES else CrawlOutcome()
        finally:
            prepared.close()
        if code == 0 and outcome.is_nothing:
            code = EXIT_NOTHING
        _report_end(prepared, arguments, outcome, code, as_json=as_json, quiet=quiet)
    finally:
        for number, handler in before.items():
            # An additional Ctrl-C must not suppress the summary or the exit code: this process is about to end.
            signal.signal(number, signal.SIG_IGN if interrupts else handler)
    return code


def _report_end(
    prepared: Prepared, arguments: CrawlArguments, outcome: CrawlOutcome, code: int, *, as_json: bool, quiet: bool
) -> None:
    """Reports the end: for programs on stdout, for people on stderr."""
    status = prepared.orchestrator.status()
    if as_json:
        from weft.crawl.reports.report import status_document

        folder = prepared.folder
        facts = status_document(status, folder.pods)
        causes = [
            {"cause": one.cause, "urls": one.urls, "message": as_flags(one.message), "hint": as_flags(one.hint)}
            for one in outcome.causes
        ]
        explanation = {"causes": causes, "unmatched": [as_flags(one) for one in outcome.unmatched]}
        print_document({"exit_code": code, "data_dir": str(folder.home), "status": facts} | explanation)
    elif code == 2:
        click.echo(printable(f"weft: {as_flags(status.note)}", err=True), err=True)
    elif not quiet:
        click.echo(printable(summary(prepared, arguments, status, outcome, code), err=True), err=True)
    elif outcome.is_nothing:
        click.echo(printable("weft: " + as_flags("\n".join(outcome.message_lines())), err=True), err=True)


def _print_line(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(err=True)  # the terminal shows ^C: start a new line
    click.echo(text, err=True)


# URLs that were not requested because their site cannot be reached: for the user these are errors.
GIVEN_UP = (Reason.ROBOTS_UNREACHABLE, Reason.BREAKER, Reason.RETRY_AFTER)


def summary(
    prepared: Prepared, arguments: CrawlArguments, status: CrawlStatus, outcome: CrawlOutcome, code: int
) -> str:
    """The summary for people; its last line has the location of the corpus and the command to continue."""
    from weft.crawl.items.failures import has_failed_at_end
    from weft.crawl.processes.ends import EXIT_NOTHING
    from weft.crawl.reports.changes import last_changes
    from weft.engine.loop.stop import Stop

    home = prepared.folder.home
    pages = status.pages - status.pages_at_start
    seconds = max(status.updated_at - status.started_at, 0.001)
    failed = status.errors | {str(kind): status.refused[kind] for kind in GIVEN_UP if status.refused.get(kind)}
    errors = ", ".join(f"{kind} {count}" for kind, count in sorted(failed.items(), key=lambda e: -e[1])[:6])
    ends = {0: "Finished", EXIT_NOTHING: "Finished", 3: f"Stopped by a limit ({status.note})", 130: "Interrupted"}
    end = "Cancelled" if status.state == CANCELLED else ends.get(code, "Ended")
    if status.stop and status.note == Stop.CLOSED:
        end = f"Ended by the spider ({status.stop})"
    before = f" ({status.pages:,} in all)" if status.pages_at_start else ""
    stored = f"{pages:,} {'page' if pages == 1 else 'pages'}{before}"
    lines = [
        f"{end}: {stored} in {seconds:,.1f} s, {pages / seconds:,.1f} pages/s, {status.body_bytes / 1e6:,.1f} MB.",
    ]
    if status.queued:
        lines.append(f"{status.queued:,} {'URL is' if status.queued == 1 else 'URLs are'} left in the queue.")
    if errors or not outcome.is_nothing:  # rejections (robots.txt, scope) are not errors, but listed as causes
        lines.append(f"Errors: {errors or 'none'}. Retries: {status.retries:,}.")
    if prepared.loaded.config.spider.is_given:
        lines += items_of(prepared)
        if has_failed_at_end(prepared.folder.data_dirs):
            lines.append(f"The spider failed at the end of the crawl: {shlex.join(['weft', 'errors', str(home)])}")
    if prepared.loaded.config.run.recrawl and (report := last_changes(prepared.folder)) is not None:
        lines.append(
            f"Since the last visit: {report.summary()} ({shlex.join(['weft', 'stats', str(home), '--changes'])})."
        )
    if status.repairs:
        lines.append(f"Repaired: {'; '.join(map(_repair_text, status.repairs.items()))}.")
    if status.rendered:
        each = status.rendering_s / status.rendered
        lines.append(
            f"Rendered: {status.rendered:,} pages, {each:.1f} s each, {status.parts:,} requests for their parts."
        )
    if (unread := status.shells - status.rendered) > 0:
        how = " (`--render auto` renders them)" if prepared.loaded.config.fetch.render == "never" else ""
        lines.append(f"Pages that need JavaScript: {unread:,}{how}.")
    if status.poisoned:
        lines.append(f"Stored unparsed, because parsing crashed: {', '.join(status.poisoned[:5])}")
    if slowed := ", ".join(f"HTTP {kind} ({count:,})" for kind, count in sorted(status.slowed.items()) if count):
        lines.append(f"Asked to slow down: {slowed}.")
    section = prepared.loaded.config.pods
    if len(section.here) < section.num_pods:
        lines.append(f"This node ran {len(section.here)} of {section.num_pods} pods; other nodes have the rest.")
    if pages > 1 and _waits_for_its_own_machine(prepared):
        lines.append("The server is on this machine: `--delay 0` crawls it without waiting.")
    lines += map(as_flags, outcome.message_lines())
    lines.append(f"The corpus is in {home}.{_next_commands(prepared, arguments, status, outcome, code)}")
    return "\n".join(lines)


def _waits_for_its_own_machine(prepared: Prepared) -> bool:
    """Whether a crawl of this machine alone kept the delay that is meant for other people's servers."""
    from weft import urls
    from weft.config import was_given
    from weft.fetch.guard import is_loopback

    if was_given(prepared.loaded.origins, "politeness_delay_seconds"):
        return False
    seeds = prepared.folder.seeds()
    return bool(seeds) and all(is_loopback(urls.host_of(seed)) for seed in seeds)


def items_of(prepared: Prepared) -> list[str]:
    """The number of a crawl's items, and of those that its pipelines dropped or failed at, as lines."""
    from weft.crawl.items.processed import has_pipelines, read_state
    from weft.store.pages import PageStore

    data_dirs = prepared.folder.data_dirs
    store = PageStore.open(data_dirs, read_only=True)
    try:
        made = store.items_made()
    finally:
        store.abandon()
    if not has_pipelines(data_dirs):
        return [f"{made:,} items."]
    state = read_state(data_dirs)
    left = made - state.items - state.dropped - state.losses
    lines = [f"{state.items:,} items from the pipelines, which dropped {state.dropped:,}."]
    if state.losses:
        lines.append(f"Pipelines failed at {state.losses:,} items: {shlex.join(['weft', 'errors', str(data_dirs[0])])}")
    if left:
        lines.append(f"{left:,} items wait for the pipelines.")
    return lines


def _next_commands(
    prepared: Prepared, arguments: CrawlArguments, status: CrawlStatus, outcome: CrawlOutcome, code: int
) -> str:
    """The most likely next commands, complete; several are on lines of their own for copying."""
    folder = prepared.folder
    if code in (3, 130) and status.state != CANCELLED:
        return f" Continue: {_resume_command(prepared, arguments, status)}"
    if not outcome.is_nothing:
        report = "errors" if status.errors.get("callback_error") else "stats"
        return f" See: {shlex.join(['weft', report, str(folder.home)])}"
    seeds, first = folder.seeds(), outcome.causes[0]
    if prepared.loaded.config.run.resume:
        arguments = CrawlArguments.of_resumed(seeds, prepared.loaded.given())
    over = f"\nStart over: {arguments.fresh(folder.data_dirs, as_flags(first.settings))}"
    if first.may_pass:
        needed = as_flags(f"`retry_failed=True` {first.settings}".strip())
        return f"\nTry again: {resume(folder.data_dirs, needed)}{over}"
    if first.settings or not seeds:
        return over
    return f"\nSee: {shlex.join(['weft', 'explain', str(folder.home), seeds[0]])}{over}"


# Repairs at a resume, with their consequences.
REPAIRS = {
    "lost_pages": "{:,} pages that cannot be read were queued again",
    "rows_read_back": "{:,} rows that the index had lost were read back from the WARC files",
    "links_read_again": "{:,} stored pages had their links read again, which the frontier had lost",
    "visited_again": "{:,} of them could not be read, and were queued again",
    "request_log_lines": "{:,} lines of the request log cannot be read, so that sites had to wait a full delay",
    "request_log_bytes": "{:,} bytes of the request log are missing, so that sites had to wait a full delay",
}


def _repair_text(repair: tuple[str, int]) -> str:
    name, count = repair
    return REPAIRS.get(name, name.replace("_", " ") + " {:,}").format(count)


def _resume_command(prepared: Prepared, arguments: CrawlArguments, status: CrawlStatus) -> str:
    """The command that continues a crawl, with a higher limit if a limit has stopped it."""
    limits = prepared.loaded.config.limits
    out = arguments.out if arguments.out != "-" else None
    command = resume(prepared.folder.data_dirs, f"-o {shlex.quote(out)}" if out else "")
    if status.note == "max_pages":
        command += f" --max-pages {2 * (limits.max_pages or 1)}"
    if status.note == "callback_errors":
        command += f" --max-callback-errors {2 * status.errors.get('callback_error', 1)}"
    if status.note == "max_items":
        command += f" --max-items {2 * status.items}"
    if status.note == "budget":
        command += f" --max-pages-per-domain {2 * (limits.max_pages_per_domain or 1)}"
    return command
