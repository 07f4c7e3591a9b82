"""`weft audit DIR`: proof of politeness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.cli.folders import report_in, which_crawl
from weft.cli.output import output_flags, print_document, shown

if TYPE_CHECKING:
    from weft.crawl.reports.audit import Report


MOST_CRAWLS = 20  # that are listed


@click.command()
@click.argument("crawl_dirs", metavar="DIR...", nargs=-1, required=True)
@which_crawl
@output_flags
def audit(crawl_dirs: tuple[str, ...], crawl: str | None, more: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Check every request that was made against robots.txt and the settings in force then.

    DIR is the data dir of `weft crawl`, of an engine or of a service, also while they run. Each request is judged by
    its own crawl's settings. The exit code is 1 if one of them was impolite.
    """
    from weft.crawl.reports.audit import audit as check
    from weft.store.export.facts import iso

    with report_in(crawl_dirs, more) as folder:
        report = check(folder, crawl)
    if as_json:
        print_document(_facts(report))
        return 1 if report.violations else 0
    if not quiet:
        found = f"{len(report.violations)} violations" if report.violations else "no violation"
        click.echo(f"{report.requests:,} requests to {report.sites:,} sites: {found}.")
        if report.cut_off:
            click.echo(f"  cut off by a kill before robots.txt could turn them away: {report.cut_off:,}")
        for count, what in (
            (report.unreadable, f"lines of the log cannot be read: {', '.join(report.unreadable_in)}"),
            (report.missing_bytes, "bytes are missing at the end of the log"),
            (report.unproven, "requests were made under a robots.txt that was lost with a damaged frontier"),
            (report.forgotten, "requests of crawls that were forgotten: their clocks are judged, their robots.txt not"),
        ):
            if count:
                click.echo(f"  not covered by this proof: {count:,} {what}")
        for waited, needed, url in report.closest[:3]:
            if waited != float("inf"):
                click.echo(shown(f"  closest: {waited:.3f} s where {needed:g} s were required: {url}"))
    if not quiet and crawl is None:
        for name, of_crawl in sorted(report.crawls.items(), key=lambda item: -item[1].violations)[:MOST_CRAWLS]:
            found = f"{of_crawl.violations:,} violations" if of_crawl.violations else "no violation"
            click.echo(shown(f"  {name}: {of_crawl.requests:,} requests, {found}"))
        if len(report.crawls) > MOST_CRAWLS:
            click.echo(f"  ... and {len(report.crawls) - MOST_CRAWLS:,} more crawls (--json has all)")
    for one in report.violations[:50]:
        whose = f" of {one.crawl}" if one.crawl else ""
        click.echo(shown(f"{one.kind}: {one.url}{whose} at {iso(one.wall)}: {one.detail}"))
    if len(report.violations) > 50:
        click.echo(f"... and {len(report.violations) - 50:,} more (--json has all)")
    return 1 if report.violations else 0


def _facts(report: Report) -> dict[str, Any]:
    """For programs; a margin that was never tested is none."""
    from weft.store.export.facts import iso

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
    return {
        "requests": report.requests,
        "sites": report.sites,
        "cut_off": report.cut_off,
        "unreadable": report.unreadable,
        "unreadable_in": report.unreadable_in,
        "missing_bytes": report.missing_bytes,
        "unproven": report.unproven,
        "violations": [
            {"kind": one.kind, "url": one.url, "site": one.key, "at": iso(one.wall), "detail": one.detail}
            | ({"crawl": one.crawl} if one.crawl else {})
            for one in report.violations
        ],
        "closest": [
            {"url": url, "waited_s": round(waited, 6), "required_s": needed}
            for waited, needed, url in report.closest
            if waited != float("inf")
        ],
    } | several
