"""`weft proxies`: collects and tests proxies, lists the usable ones, and tests them with a page."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.service.serve import ServeCommand
from weft.cli.terminal.output import output_flags, print_document, printable
from weft.cli.terminal.settings import config_flags, given, help_all

if TYPE_CHECKING:
    from weft.config import ServiceConfig
    from weft.fetch.proxies.live import Live
    from weft.fetch.proxies.probe import ProxyVerdict
    from weft.fetch.proxies.refresh import RefreshJob
    from weft.system.refresh_engine import Engine

_CLEAR_LINE = "\x1b[K"  # to the end of the line
_config_file = click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")


class ProxiesCommand(ServeCommand):
    """The flags of proxies and of requests."""

    all_of = frozenset({"proxy"})
    groups = {  # noqa: RUF012 - never changed
        "server": "Where",
        "proxy": "Proxies",
        "fetch": "How to ask",
        "cluster": "Workers",
    }


def _add_flags(command: Any) -> Any:
    return config_flags(command, "service", only=("proxy", "fetch", "data_dir", "cluster"))


@click.group()
def proxies() -> None:
    """Collect and test proxies, list those that work, test them with a page.

    Usable proxies are kept in live_proxies.json of the service's folder. Passwords are never shown.
    """


@proxies.command(cls=ProxiesCommand, context_settings={"max_content_width": 120})
@_config_file
@click.option(
    "--engine",
    type=click.Choice(("auto", "embedded", "celery")),
    default="auto",
    show_default=True,
    help="Who tests them: this process (embedded) or the workers of `weft up --cluster` (celery); auto: they, if well.",
)
@_add_flags
@output_flags
@help_all
def refresh(config_file: str | None, engine: Engine, as_json: bool, quiet: bool, **values: Any) -> int:
    """Collect proxies from their sources, test each, and keep those that pass.

    The exit code is 3 if fewer than `min_proxies` have passed.
    """
    from weft.engine.transports.transports import proxy_refresh
    from weft.fetch.proxies.refresh import KIND
    from weft.jobs.reading.progress import ProgressKeys
    from weft.system.refresh_engine import chosen_work

    config = _load_config(config_file, values)
    folder = Path(config.server.data_dir)
    keys = ProgressKeys(folder, config.jobs.retention_hours * 3600)

    progress = RefreshDisplay(quiet=quiet or as_json)

    def report_progress(job: RefreshJob) -> None:
        keys.put(job.kind, job.job_id, job.progress)
        progress(job)

    with closing(keys), closing(progress):
        refreshing = proxy_refresh(config.fetch, config.proxy, folder)
        done = refreshing.run(report_progress, work=chosen_work(engine, config, refreshing))
    enough = done.passed >= config.proxy.least
    if as_json:
        result = {"min_proxies": config.proxy.least, "enough": enough, "progress": keys.get(KIND, done.job_id)}
        print_document({**_struct_fields(done), **result})
        return 0 if enough else 3
    if not quiet:
        for problem in done.problems:
            click.echo(f"weft: {printable(problem, err=True)}", err=True)
        if done.duplicates:
            click.echo(f"weft: duplicates left out: {done.duplicates:,}", err=True)
        for why, count in done.failures.items():
            first = "" if count == 1 else "first: "
            click.echo(f"  {count:6,} failed: {printable(why)} ({first}{printable(done.examples[why])})")
    click.echo(f"{done.passed:,} of {done.tested:,} proxies work ({done.seconds:.1f} s)")
    if not enough:
        click.echo(f"weft: {config.proxy.least:,} are needed (`min_proxies`)", err=True)
    return 0 if enough else 3


@proxies.command("list", cls=ProxiesCommand, context_settings={"max_content_width": 120})
@_config_file
@_add_flags
@output_flags
@help_all
def list_(config_file: str | None, as_json: bool, quiet: bool, **values: Any) -> int:
    """List the proxies that have passed their last test, the fastest first."""
    from weft.fetch.proxies import live
    from weft.fetch.proxies.pool import live_of
    from weft.fetch.proxies.refresh import last_job

    config = _load_config(config_file, values)
    path = live_of(config.fetch.proxies, Path(config.server.data_dir))
    list_read, job = live.read(path), last_job(path)
    rows = list_read.proxies if list_read is not None else ()
    if as_json:
        tested_at = list_read.tested_at if list_read is not None else None
        refreshed = _struct_fields(job) if job is not None else None
        print_document({"tested_at": tested_at, "proxies": [_proxy_facts(one) for one in rows], "refresh": refreshed})
        return 0
    for one in rows:
        tls = {None: "-", True: "tls", False: "no tls"}[one.tls]
        about = f"{one.latency_s * 1000:7.0f} ms  {one.anonymity:11}  {tls:6}  tier {one.tier}  {one.country}"
        click.echo(f"{printable(one.proxy.name):48}  {about}".rstrip())
    if not quiet and not rows:
        click.echo("no proxies; `weft proxies refresh` tests them", err=True)
    return 0


@proxies.command(cls=ProxiesCommand, context_settings={"max_content_width": 120})
@click.argument("url")
@_config_file
@_add_flags
@output_flags
@help_all
def test(url: str, config_file: str | None, as_json: bool, quiet: bool, **values: Any) -> int:
    """Request a page through each proxy, and report the results; nothing is stored.

    Of those in live_proxies.json, or of the list in `proxies`. The exit code is 1 if none works.
    """
    from msgspec.structs import replace

    from weft.config.contradictions import wrong_test_url
    from weft.engine.transports.transports import address_refusal
    from weft.errors import BadInput
    from weft.fetch.proxies.pool import usable_in
    from weft.fetch.proxies.probe import Probe

    if why := wrong_test_url(url):
        raise BadInput(f"argument URL: {why}")
    config = _load_config(config_file, {**values, "proxy_test_url": url})
    section = replace(config.proxy, tls_url=None)
    proxies = usable_in(config.fetch.proxies, Path(config.server.data_dir))
    if not proxies:
        raise BadInput("there are no proxies to test: give a list, `proxies=FILE`, or run `weft proxies refresh`")
    probe = Probe(section, config.fetch, address_refusal(config.fetch), "argument URL")
    verdicts = sorted(probe.run(proxies, probe.expect()), key=lambda one: (bool(one.why), one.latency_s))
    works = any(not one.why for one in verdicts)
    if as_json:
        print_document({"url": url, "results": [_verdict_facts(one) for one in verdicts]})
        return 0 if works else 1
    for one in verdicts:
        result = one.why.removeprefix(f"{one.proxy.name}: ")
        result = result or f"HTTP {one.status}, {one.latency_s * 1000:.0f} ms, anonymity: {one.anonymity}"
        if not (quiet and one.why):
            click.echo(f"{'failed' if one.why else 'works':6}  {printable(one.proxy.name):48}  {printable(result)}")
    return 0 if works else 1


def _load_config(config_file: str | None, values: dict[str, Any]) -> ServiceConfig:
    from weft.config import load_service

    return load_service(config_file, flags=given(values, "service"))


class RefreshDisplay:
    """Displays the progress of a refresh: on a terminal one line that is redrawn, and erased at the end; elsewhere a
    line each time."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_drawn = False

    def __call__(self, job: RefreshJob) -> None:
        """Displays a state of the refresh."""
        if self._quiet or job.status != "PROCESSING":
            return
        done = f"{job.completed_chunks:,} of {job.total_chunks:,} chunks, {job.result_count:,} work"
        self._is_drawn = sys.stderr.isatty()
        drawn = f"\r{_CLEAR_LINE}" if self._is_drawn else ""
        click.echo(f"{drawn}weft: testing proxies: {done}", err=True, nl=not self._is_drawn)

    def close(self) -> None:
        """Erases the line."""
        if self._is_drawn:
            click.echo(f"\r{_CLEAR_LINE}", err=True, nl=False)


def _struct_fields(struct: Any) -> dict[str, Any]:
    import msgspec

    return dict(msgspec.structs.asdict(struct))


def _proxy_facts(one: Live) -> dict[str, Any]:
    return {
        "proxy": one.proxy.name,
        "latency_s": one.latency_s,
        "anonymity": one.anonymity,
        "tls": one.tls,
        "tier": one.tier,
        "country": one.country or None,
    }


def _verdict_facts(one: ProxyVerdict) -> dict[str, Any]:
    return {
        "proxy": one.proxy.name,
        "works": not one.why,
        "status": one.status or None,
        "latency_s": None if one.why else round(one.latency_s, 4),
        "anonymity": one.anonymity,
        "error": one.why or None,
    }
