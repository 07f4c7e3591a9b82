"""`weft audit CRAWL_DIR`: proof of politeness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.cli.folders import crawl_in, further_data_dirs
from weft.cli.output import output_flags, print_document, shown

if TYPE_CHECKING:
    from weft.crawl.reports.audit import Report


@click.command()
@click.argument("crawl_dirs", metavar="CRAWL_DIR...", nargs=-1, required=True)
@further_data_dirs
@output_flags
def audit(crawl_dirs: tuple[str, ...], more: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Check every request that was made against robots.txt and the settings in force then.

    The exit code is 1 if one of them was impolite.
    """
    from weft.crawl.reports.audit import audit as check
    from weft.store.export.facts import iso

    report = check(crawl_in(crawl_dirs, more))
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
        ):
            if count:
                click.echo(f"  not covered by this proof: {count:,} {what}")
        for waited, needed, url in report.closest[:3]:
            if waited != float("inf"):
                click.echo(shown(f"  closest: {waited:.3f} s where {needed:g} s were required: {url}"))
    for one in report.violations[:50]:
        click.echo(shown(f"{one.kind}: {one.url} at {iso(one.wall)}: {one.detail}"))
    if len(report.violations) > 50:
        click.echo(f"... and {len(report.violations) - 50:,} more (--json has all)")
    return 1 if report.violations else 0


def _facts(report: Report) -> dict[str, Any]:
    """For programs; a margin that was never tested is none."""
    from weft.store.export.facts import iso

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
            for one in report.violations
        ],
        "closest": [
            {"url": url, "waited_s": round(waited, 6), "required_s": needed}
            for waited, needed, url in report.closest
            if waited != float("inf")
        ],
    }
