"""`weft audit DIR`: proof of politeness."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import click

from weft.cli.reports.folders import report_in, which_crawl
from weft.cli.terminal.output import output_flags, print_document, printable
from weft.cli.terminal.settings import several
from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.crawl.reports.audit import AuditReport


MOST_CRAWLS = 20  # crawls that are listed
MOST_VIOLATIONS = 50
MOST_LOSSES = 20


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@click.option("--host", multiple=True, metavar="A,B", help="Only these; *.HOST for it and all below it. Repeatable.")
@click.option("--since", default="", metavar="WHEN", help="Only requests since a date, a time, or 90m, 12h, 7d.")
@click.option("--until", default="", metavar="WHEN", help="Only requests before a date, a time, or 90m, 12h, 7d.")
@click.option(
    "--processes", type=click.IntRange(1, 256), metavar="N",
    help="Processes that judge; as many as there are processors unless given.",
)  # fmt: skip
@which_crawl
@output_flags
def audit(
    crawl_dirs: tuple[str, ...],
    host: tuple[str, ...],
    since: str,
    until: str,
    processes: int | None,
    crawl: str | None,
    more: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> int:
    """Check every request in the log against robots.txt and the settings in force at its time.

    DIR is the data dir of `weft crawl`, of an engine or of a service, also while they run. Each request is judged by
    its own crawl's settings. The exit code is 1 if there is a violation, or if some requests cannot
    be judged.
    """
    from weft.crawl.reports.audit import audit as check

    hosts = [name for name in several(host) if name]
    first, end = _time_range(since, until)
    with report_in(crawl_dirs, more) as folder:
        report = check(folder, crawl, hosts=hosts, since=first, until=end, processes=processes)
    if as_json:
        print_document(_report_facts(report))
    else:
        if not quiet:
            _print_summary(report, first, with_crawls=crawl is None)
        _print_findings(report)
    return 0 if report.is_proof else 1


def _time_range(since: str, until: str) -> tuple[float, float]:
    from weft.store.export.request import parse_since

    first, end = parse_since(since) or -inf, parse_since(until, "until") or inf
    if first >= end:
        raise BadInput("--since must be earlier than --until")
    return first, end


def _print_summary(report: AuditReport, since: float, *, with_crawls: bool) -> None:
    from weft.store.export.facts import iso_time

    violations = f"{report.violation_count:,} violations" if report.violation_count else "no violation"
    when = f" from {iso_time(report.covers[0])} to {iso_time(report.covers[1])}" if report.covers else ""
    parts = f", and {report.parts:,} for parts of rendered pages," if report.parts else ""
    click.echo(f"{report.requests:,} requests{parts} to {report.sites:,} sites: {violations}.")
    if when:
        click.echo(f"  read: the log{when}")
    if report.deleted and report.deleted_until >= since:
        what = f"{report.deleted:,} requests until {iso_time(report.deleted_until)}, which retention has deleted"
        click.echo(f"  not covered by this proof: {what}")
    for hand, count in list(report.hands.items())[:MOST_CRAWLS]:
        click.echo(printable(f"  by worker {hand}: {count:,} requests"))
    if report.cut_off:
        click.echo(f"  cut off by a kill before robots.txt could reject them: {report.cut_off:,}")
    for count, what in (
        (report.unreadable, f"lines of the log cannot be read: {', '.join(report.unreadable_in)}"),
        (report.missing_bytes, "bytes are missing at the end of the log"),
        (report.unproven, "requests were made under a robots.txt that was lost with a damaged frontier"),
        (report.forgotten, "requests of deleted crawls: their delays are checked, their robots.txt rules are not"),
    ):
        if count:
            click.echo(f"  not covered by this proof: {count:,} {what}")
    for waited, needed, url in report.closest[:3]:
        if waited != inf:
            click.echo(printable(f"  closest: {waited:.3f} s where {needed:g} s were required: {url}"))
    if with_crawls:
        _print_crawls(report)


def _print_crawls(report: AuditReport) -> None:
    for name, of_crawl in sorted(report.crawls.items(), key=lambda item: -item[1].violations)[:MOST_CRAWLS]:
        violations = f"{of_crawl.violations:,} violations" if of_crawl.violations else "no violation"
        click.echo(printable(f"  {name}: {of_crawl.requests:,} requests, {violations}"))
    if len(report.crawls) > MOST_CRAWLS:
        click.echo(f"  ... and {len(report.crawls) - MOST_CRAWLS:,} more crawls (--json has all)")


def _print_findings(report: AuditReport) -> None:
    from weft.store.export.facts import iso_time

    for loss in report.losses[:MOST_LOSSES]:
        count = f"{loss.requests:,} requests" if loss.requests is not None else "all requests"
        since = f" from {iso_time(loss.since)}" if loss.since > -inf else ""
        until = f" until {iso_time(loss.until)}" if loss.until < inf else ""
        click.echo(printable(f"cannot be judged: {count}{since}{until} in {loss.file}: {loss.why}"))
    if len(report.losses) > MOST_LOSSES:
        click.echo(f"... and {len(report.losses) - MOST_LOSSES:,} more losses (--json has all)")
    for one in report.violations[:MOST_VIOLATIONS]:
        whose = f" of {one.crawl}" if one.crawl else ""
        click.echo(printable(f"{one.kind}: {one.url}{whose} at {iso_time(one.wall)}: {one.detail}"))
    if report.violation_count > MOST_VIOLATIONS:
        click.echo(
            f"... and {report.violation_count - MOST_VIOLATIONS:,} more "
            f"(--json has the first {len(report.violations):,})"
        )


def _report_facts(report: AuditReport) -> dict[str, Any]:
    """The report for programs; an infinite margin is left out."""
    from weft.store.export.facts import iso_time

    several = (
        {}
        if not report.crawls
        else {
            "forgotten": report.forgotten,
            "crawls": [
                {"crawl": name, "requests": count.requests, "violations": count.violations}
                for name, count in report.crawls.items()
            ],
        }
    )
    by_worker = {"workers": report.hands} if report.hands else {}
    return {
        "requests": report.requests,
        "parts": report.parts,
        **by_worker,
        "sites": report.sites,
        "cut_off": report.cut_off,
        "unreadable": report.unreadable,
        "unreadable_in": report.unreadable_in,
        "missing_bytes": report.missing_bytes,
        "unproven": report.unproven,
        "covers": {"from": iso_time(report.covers[0]), "until": iso_time(report.covers[1])} if report.covers else None,
        "deleted": {
            "requests": report.deleted,
            "until": iso_time(report.deleted_until) if report.deleted_until else None,
        },
        "unjudged": [
            {
                "file": loss.file,
                "from": iso_time(loss.since) if loss.since > -inf else None,
                "until": iso_time(loss.until) if loss.until < inf else None,
                "requests": loss.requests,
                "why": loss.why,
            }
            for loss in report.losses
        ],
        "violations_found": report.kinds,
        "violations": [
            {"kind": one.kind, "url": one.url, "site": one.key, "at": iso_time(one.wall), "detail": one.detail}
            | ({"crawl": one.crawl} if one.crawl else {})
            for one in report.violations
        ],
        "closest": [
            {"url": url, "waited_s": round(waited, 6), "required_s": needed}
            for waited, needed, url in report.closest
            if waited != inf
        ],
    } | several
