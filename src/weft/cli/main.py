"""The command line: lists the commands, imports only the one that is called, and reports every error as one message.

A command is a row in COMMANDS; its module is imported when it runs, so `weft --help` only costs the import of click.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from importlib import import_module
from typing import Any

import click

from weft import __version__
from weft.cli.terminal.output import printable
from weft.errors import NoCrawl, WeftError

# Imported modules hardly contain reference cycles: run the garbage collector rarely.
GC_THRESHOLDS = (20_000, 20, 100)
# name → (module with a click command of that name, its line in `weft --help`)
COMMANDS = {
    "audit": ("weft.cli.reports.audit", "Check every request that was made against robots.txt and its delay."),
    "cancel": ("weft.cli.crawls.control", "Cancel a crawl for good, from another terminal; its pages are kept."),
    "crawl": ("weft.cli.crawls.crawl", "Start or resume a crawl."),
    "cluster": ("weft.cli.service.cluster", "Make a cluster's key, and show what its workers do."),
    "compose": ("weft.cli.compose", "Write a Docker Compose file for the Redis servers of a crawl's pods."),
    "completion": ("weft.cli.completion", "Print the shell completion script for bash, zsh or fish."),
    "config": ("weft.cli.config", "Show, check and describe the configuration."),
    "pause": ("weft.cli.crawls.control", "Pause a running crawl until `weft resume`."),
    "pipeline": ("weft.cli.pipelines.pipeline", "Run items through stages; unchanged items are skipped."),
    "pool": ("weft.cli.pipelines.pool", "Run a Python function over many items in worker processes that may crash."),
    "demo": ("weft.cli.demo", "Serve a small synthetic web on loopback and crawl it, live."),
    "edit": ("weft.cli.crawls.control", "Change patterns, delay or limits of a crawl while it runs."),
    "errors": ("weft.cli.items", "List the failures of a spider's crawl by cause."),
    "explain": ("weft.cli.reports.explain", "Say why a URL was, or was not, crawled, with the evidence."),
    "extract": ("weft.cli.reports.extract", "Call a spider again for the stored pages of a crawl, without a request."),
    "export": ("weft.cli.reports.export", "Write a crawl as JSONL, CSV, Markdown, Parquet, WARC or CDXJ."),
    "items": ("weft.cli.items", "Write the items that a spider has yielded."),
    "jobs": ("weft.cli.service.jobs", "Submit, watch and stop tasks of a running scrape service."),
    "keys": ("weft.cli.service.keys", "Make, list and revoke the API keys of a scrape service."),
    "new": ("weft.cli.new", "Create a spider to start from, with a test."),
    "proxies": ("weft.cli.proxies", "Collect and test proxies, list those that work, test them with a page."),
    "get": ("weft.cli.reports.get", "Print a stored page: headers, body, text or links."),
    "rebuild": ("weft.cli.reports.rebuild", "Rebuild a crawl's index and texts from its WARC files."),
    "run": ("weft.cli.run", "Run a spider of your own, and write its items."),
    "serve": ("weft.cli.service.serve", "Run the scrape service: tasks over HTTP, in the background."),
    "sites": ("weft.cli.service.sites", "Run many sites on their schedules, and see what changed on them."),
    "shell": ("weft.cli.shell.shell", "Open a prompt with a page, to try selectors and callbacks."),
    "stats": ("weft.cli.reports.stats", "Show what a crawl has stored: pages, statuses, errors, hosts, rate."),
    "doctor": ("weft.cli.doctor", "Check what Weft needs on this machine, and say how to fix problems."),
    "down": ("weft.cli.service.system", "Stop everything that `weft up` has started."),
    "logs": ("weft.cli.service.system", "Print the end of a service's log."),
    "resume": ("weft.cli.crawls.control", "Continue a crawl that `weft pause` has paused."),
    "seed": ("weft.cli.crawls.control", "Add URLs to a crawl while it runs."),
    "restart": ("weft.cli.service.system", "Stop a service and start it again."),
    "status": ("weft.cli.service.system", "Show the status of the services of `weft up`."),
    "up": ("weft.cli.service.system", "Start all services, and keep them running."),
    "url": ("weft.cli.url", "Show how Weft interprets a URL: canonical form, domain, pod."),
    "worker": ("weft.cli.service.cluster", "Work for a cluster on this machine."),
    "watch": ("weft.cli.crawls.watch", "Attach the live display to a running crawl."),
    "web": ("weft.cli.web", "Serve a deterministic synthetic web on loopback, with an oracle."),
}


class LazyGroup(click.Group):
    """A command group that imports a command's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[name][0]), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from weft.names import nearest

            near = nearest(args[0], COMMANDS)
            hint = f" Did you mean {near!r}?" if near else f" Commands: {', '.join(sorted(COMMANDS))}."
            raise click.UsageError(f"no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="weft %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.pass_context
def weft(ctx: click.Context, as_json: bool, quiet: bool) -> None:
    """Collect the web politely, and never lose what you have.

    Data goes to stdout, progress and logs to stderr. NO_COLOR is respected.
    Exit codes: 0 finished, 1 failed, 2 bad usage or config, 3 stopped by a limit that left work (resumable), 4 finished
    with nothing to show (the summary says why), 130 interrupted (resumable).
    """
    ctx.obj = {"json": as_json, "quiet": quiet}


def main(args: list[str] | None = None) -> None:
    """Runs the command line and exits with its code; users never see a traceback."""
    gc.set_threshold(*GC_THRESHOLDS)
    if os.getpid() == 1:  # the main process of a container
        from weft.supervise import first_process

        first_process.begin()
    code = run(sys.argv[1:] if args is None else args)
    gc.freeze()  # at exit the interpreter would search everything for cycles, several times
    sys.exit(code)


def run(args: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    if (bad := _not_utf8_message(args)) is not None:
        _print_error(bad)
        return 2
    try:
        result: Any = weft.main(args=args, prog_name="weft", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _print_error(_usage_message(error))
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except NoCrawl as error:
        import shlex

        command = "weft run FILE.py" if args[:1] == ["run"] else "weft crawl URL"
        _print_error(f"{error}\n{command} --data-dir {shlex.quote(str(error.home))}")
        return error.exit_code
    except WeftError as error:
        _print_error(_api_key_message(error) or str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # The reader of stdout has closed it; without this the interpreter would print another error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("WEFT_DEBUG"):
            raise
        _print_error(f"internal error: {type(error).__name__}: {error} (WEFT_DEBUG=1 shows where)")
        return 1


def _api_key_message(error: WeftError) -> str:
    """The message for a missing or wrong API key: the service's own is for HTTP clients."""
    if getattr(error, "status", None) != 401:
        return ""
    from weft.client.errors import Refused

    if not isinstance(error, Refused):
        return ""
    message = error.detail.partition(":")[0]
    return (
        f"{message}: put one into WEFT_API_KEY, or into a file that --key-file names; `weft keys create NAME` creates "
        "one, in the data dir of the service"
    )


def _usage_message(error: click.ClickException) -> str:
    """The message for a wrong command line, in the form of all other messages."""
    message = _refused_value_message(error) or error.format_message().rstrip(".")
    ctx = getattr(error, "ctx", None)
    help_ = f"\n`{ctx.command_path} --help` shows how it is used" if ctx is not None else ""
    return message[:1].lower() + message[1:] + help_


def _refused_value_message(error: click.ClickException) -> str:
    """The message for a refused value in the form of the configuration: `--top: 'x' is not accepted; use a whole number
    from 0 up`."""
    from weft.config import accepted

    match = re.match(r"(.+) is not (a valid|in the range|one of) ", error.message)
    if not isinstance(error, click.BadParameter) or error.param is None or match is None:
        return ""
    kind, flag = error.param.type, max(error.param.opts, key=len)
    if isinstance(kind, click.Choice):
        schema: dict[str, Any] = {"enum": kind.choices}
    else:
        schema = {"type": "integer" if kind.name.startswith("integer") else "number"}
        limits = {"minimum": getattr(kind, "min", None), "maximum": getattr(kind, "max", None)}
        schema |= {name: limit for name, limit in limits.items() if limit is not None}
    return f"{flag}: {match[1]} is not accepted; use {accepted(schema)}"


def _not_utf8_message(args: list[str]) -> str | None:
    """The message for an argument that is not UTF-8, and could not be stored or sent."""
    for before, arg in zip(["", *args], args, strict=False):  # `before` has one more
        try:
            arg.encode()
        except UnicodeEncodeError:
            flag, mark, value = arg.rpartition("=") if arg.startswith("--") else ("", "", arg)
            name = flag if mark else before if before.startswith("-") else "argument"
            return f"{name}: {str(os.fsencode(value))[1:]} is not UTF-8 text; write it in UTF-8"
    return None


def _print_error(message: str) -> None:
    from weft.cli.terminal.messages import as_flags

    lines = printable(as_flags(message), err=True).splitlines() or [""]
    print("\n".join([f"weft: {lines[0]}", *(f"      {line}" for line in lines[1:])]), file=sys.stderr)
