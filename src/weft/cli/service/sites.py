"""`weft sites`: saved scrapes with schedules and dependencies, in the data dir of a service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.service.service_flags import config_of, folder_flags
from weft.cli.terminal.output import print_document, printable
from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.jobs.sites.registry import SiteRegistry
    from weft.jobs.sites.status import SiteStatus

WATCH_S = 0.5
STOP_S = 10.0
ENDED = ("idle", "paused")


@click.group()
def sites() -> None:
    """Run many sites on their schedules, and see what changed on them.

    \b
    weft sites add shop.yaml     add a site, or update it
    weft sites run shop          now, after its dependencies
    weft sites status --watch    live status of all sites

    The service of the same data dir runs them: `weft up`, or `weft serve`.
    """


def _open_registry(data_dir: str | None, config_file: str | None) -> SiteRegistry:
    from weft.jobs.sites.registry import SiteRegistry

    return SiteRegistry(Path(config_of(data_dir, config_file).server.data_dir))


@sites.command("list")
@folder_flags
def list_(data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """List the sites that were added."""
    from weft.jobs.sites.site_documents import file_document

    with _open_registry(data_dir, config_file) as registry:
        files = [registry.file(name) for name in registry.names()]
    if as_json:
        print_document({"sites": [file_document(file) for file in files]})
        return 0
    for file in files:
        needs = f"  after {', '.join(file.depends_on)}" if file.depends_on else ""
        when = f"{file.schedule} {file.timezone}" if file.schedule else "when asked"
        click.echo(printable(f"{file.name:20}  {when:24}  {file.start_urls[0]}{needs}"))
    if not files and not quiet:
        click.echo("weft: no sites; `weft sites add FILE` adds one", err=True)
    return 0


@sites.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@folder_flags
def add(files: tuple[str, ...], data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Add sites from YAML or JSON files (docs/sites.md).

    A site of the same name is replaced; what is known of its pages is kept. Several files are added together, or none.
    """
    from weft.jobs.sites.files import read_site

    files_read = [read_site(Path(file), time.time()) for file in files]
    if twice := {one.name for one in files_read if sum(one.name == other.name for other in files_read) > 1}:
        raise BadInput(f"name: {', '.join(sorted(twice))} is in two of these files")
    with _open_registry(data_dir, config_file) as registry:
        before = registry.names()
        added = registry.add(files_read)
    if as_json:
        replaced = [site.name for site in added if site.name in before]
        print_document({"added": [site.name for site in added], "replaced": replaced})
    elif not quiet:
        for site in added:
            when = f"; next run {_time_text(site.next_at)}" if site.next_at else ""
            what = "replaced; what is known of its pages is kept" if site.name in before else "added"
            click.echo(f"weft: {site.name} is {what}{when}", err=True)
    return 0


@sites.command()
@click.argument("name")
@folder_flags
def remove(name: str, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Remove a site and what is known of its pages."""
    with _open_registry(data_dir, config_file) as registry:
        registry.remove(name)
    if as_json:
        print_document({"removed": name})
    elif not quiet:
        click.echo(f"weft: {name} is removed", err=True)
    return 0


def _chosen(names: tuple[str, ...], is_all: bool, verb: str) -> list[str] | None:
    if is_all == bool(names):
        raise BadInput(f"name the sites to {verb}, or give --all")
    return None if is_all else list(names)


@sites.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All sites.")
@click.option("--watch", "is_watched", is_flag=True, help="Show all sites live, until these have ended.")
@folder_flags
def run(
    names: tuple[str, ...], is_all: bool, is_watched: bool, data_dir: str | None, config_file: str | None,
    as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Run sites now, each after its dependencies.

    A site that runs already is left as it is. With --watch the exit code is 0 if all have succeeded, else 1.
    """
    from weft.cli.service.site_display import show_sites

    with _open_registry(data_dir, config_file) as registry:
        tasks = registry.run(_chosen(names, is_all, "run"))
        if not registry.is_served and not quiet:
            click.echo("weft: no service runs here, so they wait: `weft up` or `weft serve` starts one", err=True)
        if not is_watched:
            _report_started(tasks, registry, as_json, quiet)
            return 0
        with show_sites(quiet=quiet or as_json) as watch:
            statuses = registry.status()
            while not have_ended(statuses, tasks, may_get_proxies=not registry.lacks_proxies):
                watch(statuses)
                time.sleep(WATCH_S)
                statuses = registry.status()
            watch(statuses)
        return _print_statuses(statuses, as_json, only=tasks)


def _report_started(tasks: dict[str, str], registry: SiteRegistry, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_document({"runs": [{"site": name, "task_id": task or None} for name, task in tasks.items()]})
    elif not quiet:
        waiting = {one.name: one.waiting for one in registry.status(list(tasks))}
        for name, task in tasks.items():
            click.echo(f"{name}: {task or waiting[name] or 'waits for its turn'}")


def have_ended(statuses: list[SiteStatus], names: dict[str, str], *, may_get_proxies: bool = True) -> bool:
    """Whether none of the sites runs, or can start before a user acts or time passes."""
    by_name = {one.name: one for one in statuses}

    def is_over(name: str) -> bool:
        site = by_name.get(name)
        if site is None:
            return not may_get_proxies
        if site.state in ENDED:
            return True
        return site.state == "waiting" and bool(site.waits_for) and all(map(is_over, site.waits_for))

    return all(map(is_over, names))


@sites.command()
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("--watch", "is_watched", is_flag=True, help="Show them live, until Ctrl-C.")
@folder_flags
def status(
    names: tuple[str, ...], is_watched: bool, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool
) -> int:
    """Show the status of sites: running, waiting, paused, and what changed.

    The exit code is 0 if all are healthy, else 1.
    """
    from weft.cli.service.site_display import show_sites

    with _open_registry(data_dir, config_file) as registry:
        chosen = list(names) or None
        if is_watched and not as_json:
            with show_sites(quiet=quiet) as watch:
                while True:
                    watch(registry.status(chosen))
                    time.sleep(WATCH_S)
        return _print_statuses(registry.status(chosen), as_json)


@sites.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All sites.")
@folder_flags
def stop(
    names: tuple[str, ...], is_all: bool, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool
) -> int:
    """Stop the runs of sites; what they have stored is kept, and their schedules continue."""
    with _open_registry(data_dir, config_file) as registry:
        chosen = _chosen(names, is_all, "stop")
        asked_for = [site.name for site in registry.status(chosen) if site.state in ("waiting", "paused")]
        stopped = registry.stop(chosen)
        unasked = [name for name in asked_for if name not in stopped]
        have_ended = registry.wait_stopped(stopped, STOP_S)
    if as_json:
        print_document({"stopped": stopped, "unasked": unasked, "have_ended": have_ended})
    elif not quiet:
        message = f"stopped {', '.join(stopped)}" if stopped else "none of them ran"
        if unasked:
            message += f"; no longer requested: {', '.join(unasked)}"
        click.echo(f"weft: {message}{'' if have_ended else '; they end as soon as a service runs here'}", err=True)
    return 0


@sites.command()
@click.argument("name")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="The last N.")
@folder_flags
def changes(name: str, limit: int, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """List new, changed, gone and moved pages in the last runs of a site."""
    from weft.jobs.sites.site_documents import document

    with _open_registry(data_dir, config_file) as registry:
        reports = registry.reports(name, limit)
    if as_json:
        print_document({"site": name, "reports": [document(one) for one in reports]})
        return 0
    if not reports and not quiet:
        click.echo(f"weft: no run of {name} has ended yet; `weft sites run {name}` requests one", err=True)
    for report in reports:
        if not quiet:
            why = f"; every page was read: {report.why_full}" if report.why_full else ""
            click.echo(f"{_time_text(report.at)}  {report.summary}{why}", err=True)
        for what in ("new", "changed", "gone"):
            for url in getattr(report, what):
                click.echo(printable(f"{what:8}  {url}"))
        for old, new in report.moved:
            click.echo(printable(f"moved     {old}  {new}"))
    return 0


def _print_statuses(statuses: list[SiteStatus], as_json: bool, only: dict[str, str] | None = None) -> int:
    from weft.cli.service.site_display import table
    from weft.jobs.sites.site_documents import document

    if as_json:
        print_document({"sites": [document(one) for one in statuses]})
    else:
        click.echo(table(statuses))
    judged = [one for one in statuses if only is None or one.name in only]
    return 0 if all(one.health.is_healthy and not (only and one.waits_for) for one in judged) else 1


def _time_text(moment: float | None) -> str:
    return "-" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
