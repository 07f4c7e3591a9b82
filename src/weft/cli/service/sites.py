"""`weft sites`: saved scrapes with schedules and dependencies, of the service in a data dir."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.service.service_flags import config_of, folder_flags
from weft.cli.terminal.output import print_document, shown
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
    weft sites add shop.yaml     keep a site; again: with what the file says now
    weft sites run shop          now, after those that it depends on
    weft sites status --watch    all of them, live

    The service of the same data dir runs them: `weft up`, or `weft serve`.
    """


def _registry(data_dir: str | None, config_file: str | None) -> SiteRegistry:
    from weft.jobs.sites.registry import SiteRegistry

    return SiteRegistry(Path(config_of(data_dir, config_file).server.data_dir))


@sites.command("list")
@folder_flags
def list_(data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """List the sites that were added."""
    from weft.jobs.sites.site_documents import file_document

    with _registry(data_dir, config_file) as registry:
        files = [registry.file(name) for name in registry.names()]
    if as_json:
        print_document({"sites": [file_document(file) for file in files]})
        return 0
    for file in files:
        needs = f"  after {', '.join(file.depends_on)}" if file.depends_on else ""
        when = f"{file.schedule} {file.timezone}" if file.schedule else "when asked"
        click.echo(shown(f"{file.name:20}  {when:24}  {file.start_urls[0]}{needs}"))
    if not files and not quiet:
        click.echo("weft: no sites; `weft sites add FILE` adds one", err=True)
    return 0


@sites.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@folder_flags
def add(files: tuple[str, ...], data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Keep sites that are described in YAML or JSON files (docs/sites.md).

    A site of the same name is replaced; what is known of its pages stays. Several files are added together, or none.
    """
    from weft.jobs.sites.files import read_site

    found = [read_site(Path(file), time.time()) for file in files]
    if twice := {one.name for one in found if sum(one.name == other.name for other in found) > 1}:
        raise BadInput(f"name: {', '.join(sorted(twice))} is in two of these files")
    with _registry(data_dir, config_file) as registry:
        before = registry.names()
        added = registry.add(found)
    if as_json:
        replaced = [site.name for site in added if site.name in before]
        print_document({"added": [site.name for site in added], "replaced": replaced})
    elif not quiet:
        for site in added:
            when = f"; next run {_at(site.next_at)}" if site.next_at else ""
            what = "replaced; what is known of its pages stays" if site.name in before else "added"
            click.echo(f"weft: {site.name} is {what}{when}", err=True)
    return 0


@sites.command()
@click.argument("name")
@folder_flags
def remove(name: str, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Forget a site and what is known of its pages."""
    with _registry(data_dir, config_file) as registry:
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
    """Run sites now, each after those that it depends on.

    A site that runs already is left as it is. With --watch the exit code is 0 if all have ended well, else 1.
    """
    from weft.cli.service.site_display import show_sites

    with _registry(data_dir, config_file) as registry:
        tasks = registry.run(_chosen(names, is_all, "run"))
        if not registry.is_served and not quiet:
            click.echo("weft: no service runs here, so they wait: `weft up` or `weft serve` starts one", err=True)
        if not is_watched:
            _tell_started(tasks, registry, as_json, quiet)
            return 0
        with show_sites(quiet=quiet or as_json) as watch:
            found = registry.status()
            while not have_ended(found, tasks, may_get_proxies=not registry.lacks_proxies):
                watch(found)
                time.sleep(WATCH_S)
                found = registry.status()
            watch(found)
        return _tell(found, as_json, only=tasks)


def _tell_started(tasks: dict[str, str], registry: SiteRegistry, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_document({"runs": [{"site": name, "task_id": task or None} for name, task in tasks.items()]})
    elif not quiet:
        waiting = {one.name: one.waiting for one in registry.status(list(tasks))}
        for name, task in tasks.items():
            click.echo(f"{name}: {task or waiting[name] or 'waits for its turn'}")


def have_ended(found: list[SiteStatus], names: dict[str, str], *, may_get_proxies: bool = True) -> bool:
    """Whether none runs, or can run before somebody does something or time passes."""
    by_name = {one.name: one for one in found}

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
    """Show how sites are: what runs, what waits for what, what is paused, what changed.

    The exit code is 0 if all are healthy, else 1.
    """
    from weft.cli.service.site_display import show_sites

    with _registry(data_dir, config_file) as registry:
        chosen = list(names) or None
        if is_watched and not as_json:
            with show_sites(quiet=quiet) as watch:
                while True:
                    watch(registry.status(chosen))
                    time.sleep(WATCH_S)
        return _tell(registry.status(chosen), as_json)


@sites.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All sites.")
@folder_flags
def stop(
    names: tuple[str, ...], is_all: bool, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool
) -> int:
    """End the runs of sites; what they have is kept, and their schedules go on."""
    with _registry(data_dir, config_file) as registry:
        chosen = _chosen(names, is_all, "stop")
        asked_for = [site.name for site in registry.status(chosen) if site.state in ("waiting", "paused")]
        stopped = registry.stop(chosen)
        unasked = [name for name in asked_for if name not in stopped]
        have_ended = registry.wait_stopped(stopped, STOP_S)
    if as_json:
        print_document({"stopped": stopped, "unasked": unasked, "have_ended": have_ended})
    elif not quiet:
        said = f"stopped {', '.join(stopped)}" if stopped else "none of them ran"
        if unasked:
            said += f"; no longer asked for: {', '.join(unasked)}"
        click.echo(f"weft: {said}{'' if have_ended else '; they end as soon as a service runs here'}", err=True)
    return 0


@sites.command()
@click.argument("name")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="The last so many.")
@folder_flags
def changes(name: str, limit: int, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Print which pages were new, changed, gone or moved in the last runs of a site."""
    from weft.jobs.sites.site_documents import document

    with _registry(data_dir, config_file) as registry:
        found = registry.reports(name, limit)
    if as_json:
        print_document({"site": name, "reports": [document(one) for one in found]})
        return 0
    if not found and not quiet:
        click.echo(f"weft: no run of {name} has ended yet; `weft sites run {name}` asks for one", err=True)
    for report in found:
        if not quiet:
            why = f"; every page was read: {report.why_full}" if report.why_full else ""
            click.echo(f"{_at(report.at)}  {report.summary}{why}", err=True)
        for what in ("new", "changed", "gone"):
            for url in getattr(report, what):
                click.echo(shown(f"{what:8}  {url}"))
        for old, new in report.moved:
            click.echo(shown(f"moved     {old}  {new}"))
    return 0


def _tell(found: list[SiteStatus], as_json: bool, only: dict[str, str] | None = None) -> int:
    from weft.cli.service.site_display import table
    from weft.jobs.sites.site_documents import document

    if as_json:
        print_document({"sites": [document(one) for one in found]})
    else:
        click.echo(table(found))
    judged = [one for one in found if only is None or one.name in only]
    return 0 if all(one.health.is_healthy and not (only and one.waits_for) for one in judged) else 1


def _at(moment: float | None) -> str:
    return "-" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
