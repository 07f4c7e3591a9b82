"""`weft up`, `down`, `status`, `restart` and `logs`: run all services, and report on them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.service.serve import ServeCommand
from weft.cli.service.service_flags import config_of, folder_flags
from weft.cli.terminal.output import output_flags, print_document, printable
from weft.cli.terminal.settings import config_flags, given, help_all

if TYPE_CHECKING:
    from weft.config import ServiceConfig
    from weft.system.state import SystemState

FOLLOW_S = 0.2
WATCH_S = 0.25


class UpCommand(ServeCommand):
    """A command with the service's flags, and those of the supervisor."""

    groups = {"services": "What to run", **ServeCommand.groups}  # noqa: RUF012 - never changed


@click.command(cls=UpCommand, context_settings={"max_content_width": 120})
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
@click.option(
    "--foreground",
    is_flag=True,
    help="Stay in the foreground, and stop everything at exit: for systemd or a container.",
)
@lambda command: config_flags(command, "service")
@output_flags
@help_all
def up(config_file: str | None, foreground: bool, as_json: bool, quiet: bool, **values: Any) -> int:
    """Start all services, and keep them running: the engine and the API; with --cluster Redis, a Celery worker and its
    scheduler, too.

    \b
    weft up                      returns when all services are healthy
    weft status                  their status
    weft down                    stops them all

    A supervisor in the background restarts services that die. Running services are left as they are.
    """
    from weft.cli.service.system_display import show_services
    from weft.config import load_service
    from weft.system.background import LOG
    from weft.system.background import up as bring_up
    from weft.system.recorder import digest
    from weft.system.services import wanted

    config = load_service(config_file, flags=given(values, "service"))
    if config.services.redis_url is not None and "redis" not in wanted(config):
        click.echo("weft: redis_url is not used: add --cluster, or `redis` to `services`", err=True)
    if foreground:
        return _in_foreground(config, as_json, quiet)
    try:
        with show_services(config.server.data_dir, quiet=quiet or as_json) as watch:
            state, is_new = bring_up(config, watch)
    except KeyboardInterrupt:
        click.echo("weft: the services continue to start in the background; `weft down` stops them", err=True)
        raise
    if not is_new and state.settings != digest(config):
        click.echo("weft: they run with other settings; `weft down`, then `weft up`, applies these", err=True)
    if as_json:
        print_document({"started": is_new, **_state_facts(state), "urls": state.urls})
    elif not quiet:
        click.echo(_services_table(state))
        at = f" at {state.urls['api']}" if "api" in state.urls else ""
        what = "up" if is_new else "up already"
        click.echo(
            f"weft: all services are {what}{at}; the supervisor logs to {Path(config.log.log_dir) / LOG}", err=True
        )
    return 0


def _in_foreground(config: ServiceConfig, as_json: bool, quiet: bool) -> int:
    from weft.system.background import LOG, log_in_foreground
    from weft.system.supervisor import Supervisor

    supervisor = Supervisor(config)

    def say() -> None:
        state = supervisor.status()
        if as_json:
            print_document({"started": True, **_state_facts(state), "urls": state.urls})
        elif not quiet:
            click.echo(_services_table(state), err=True)
            at = f" at {state.urls['api']}" if "api" in state.urls else ""
            click.echo(
                f"weft: all services are up{at}; the supervisor logs to {Path(config.log.log_dir) / LOG}", err=True
            )

    supervisor.run(say, is_open=lambda: log_in_foreground(config))
    return 0


@click.command()
@folder_flags
def down(data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Stop everything that `weft up` has started, dependent services first."""
    from weft.system import control

    folder = Path(config_of(data_dir, config_file).server.data_dir)
    ended = control.down(folder)
    if as_json:
        print_document({"stopped": ended})
    elif not quiet:
        click.echo(f"weft: stopped {', '.join(ended)}" if ended else f"weft: nothing was running in {folder}", err=True)
    return 0


@click.command()
@folder_flags
@click.option("--watch", "is_watched", is_flag=True, help="Show it live, until Ctrl-C.")
def status(data_dir: str | None, config_file: str | None, is_watched: bool, as_json: bool, quiet: bool) -> int:
    """Show the status of all services. The exit code is 0 if all are healthy, else 1."""
    from weft.cli.service.system_display import show_services
    from weft.system import control

    folder = Path(config_of(data_dir, config_file).server.data_dir)
    if is_watched and not as_json:
        with show_services(str(folder), quiet=quiet) as watch:
            while True:
                state, _ = control.status(folder)
                if state is not None:
                    watch(state)
                time.sleep(WATCH_S)
    state, _ = control.status(folder)
    if as_json:
        print_document({"services": []} if state is None else _state_facts(state))
    elif state is None:
        if not quiet:
            click.echo(f"weft: nothing has run in {folder} yet: `weft up` starts it", err=True)
    else:
        click.echo(_services_table(state))
        if state.supervisor_error:
            click.echo(f"weft: {printable(state.supervisor_error)}", err=True)
    return 0 if state is not None and state.rows and all(row.healthy for row in state.rows) else 1


@click.command()
@click.argument("service")
@folder_flags
def restart(service: str, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Stop a service cleanly and start it again; returns when it is healthy."""
    from weft.cli.service.system_display import show_services
    from weft.system import control

    folder = Path(config_of(data_dir, config_file).server.data_dir)
    with show_services(str(folder), quiet=quiet or as_json) as watch:
        control.restart(folder, service, watch)
    if as_json:
        print_document({"restarted": service})
    elif not quiet:
        click.echo(f"weft: {service} is healthy again", err=True)
    return 0


@click.command()
@click.argument("service")
@folder_flags
@click.option(
    "-n",
    "--lines",
    "count",
    metavar="N",
    default=50,
    show_default=True,
    type=click.IntRange(0),
    help="Number of lines.",
)
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines, until Ctrl-C.")
def logs(
    service: str, data_dir: str | None, config_file: str | None, count: int, follow: bool, as_json: bool, quiet: bool
) -> int:
    """Print the end of a service's log: redis, celery, engine, api, or the supervisor's own."""
    from weft.errors import BadInput
    from weft.system.logs import files_of

    files = files_of(config_of(data_dir, config_file), service)
    existing = [path for path in files if path.exists()]
    if not existing:
        raise BadInput(f"{service} has not logged anything yet: there is no {files[0]}")
    lines = {path: _last_lines(path, count) for path in existing}
    if as_json:
        print_document({"service": service, "files": [{"path": str(path), "lines": lines[path]} for path in existing]})
        return 0
    for path in existing:
        if len(existing) > 1 and not quiet:
            click.echo(f"==> {path} <==", err=True)
        for line in lines[path]:
            click.echo(printable(line))
    if follow:
        _follow(existing[-1], lambda line: click.echo(printable(line)))
    return 0


def _state_facts(state: SystemState) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = {"services": [msgspec.to_builtins(row) for row in state.rows]}
    return facts | ({"supervisor_error": state.supervisor_error} if state.supervisor_error else {})


def _services_table(state: SystemState) -> str:
    wide = max(len(name) for name in ("service", *(row.name for row in state.rows)))
    lines = [f"{'service':{wide}}  {'state':9} {'healthy':8} {'pid':>8} {'restarts':>8}  since"]
    for row in state.rows:
        pid = "-" if row.pid is None else str(row.pid)
        healthy = "yes" if row.healthy else "no"
        lines.append(f"{row.name:{wide}}  {row.state:9} {healthy:8} {pid:>8} {row.restarts:>8}  {row.since or '-'}")
        if row.note:
            lines.append(f"{'':{wide}}  {printable(row.note)}")
    return "\n".join(lines)


def _last_lines(path: Path, count: int) -> list[str]:
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


def _follow(path: Path, say: Callable[[str], None]) -> None:
    """Follows a log; continues in the new file when the log is rotated."""
    file = path.open(errors="replace")
    file.seek(0, 2)
    while True:
        for line in file:
            say(line.rstrip("\n"))
        try:
            is_same = os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except OSError:
            is_same = True  # the log is being rotated: the new file does not exist yet
        if not is_same:
            file.close()
            file = path.open(errors="replace")
        time.sleep(FOLLOW_S)
