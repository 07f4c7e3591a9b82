"""`weft stats CRAWL_DIR`: what a crawl holds, running or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.cli.folders import crawl_in, further_data_dirs
from weft.cli.messages import as_flags
from weft.cli.output import output_flags, print_document, shown
from weft.cli.suggestions import resume

if TYPE_CHECKING:
    from weft.crawl.folder import CrawlFolder


@click.command()
@click.argument("crawl_dirs", metavar="CRAWL_DIR...", nargs=-1, required=True)
@further_data_dirs
@click.option(
    "--top", metavar="N", default=10, show_default=True, type=click.IntRange(0), help="How many hosts to list."
)
@click.option(
    "--changes", "changed", is_flag=True, help="Show what the last recrawl found: new, changed, gone, moved pages."
)
@output_flags
def stats(
    crawl_dirs: tuple[str, ...],
    more: tuple[str, ...],
    top: int,
    changed: bool,
    as_json: bool,
    quiet: bool,  # noqa: ARG001
) -> None:
    """Show what a crawl holds: pages, bytes, statuses, errors, top hosts, rate, how even its pods are."""
    folder = crawl_in(crawl_dirs, more)
    if changed:
        _show_changes(folder, as_json)
        return
    facts = collect(folder, top)
    if as_json:
        print_document(facts)
    else:
        click.echo(shown(_text(facts, resume(folder.data_dirs))))


def _show_changes(folder: CrawlFolder, as_json: bool) -> None:
    import msgspec

    from weft.crawl.reports.changes import changes
    from weft.engine.loop.progress import CrawlStatus, read_status
    from weft.errors import BadInput

    report = changes(folder)
    if report is None:
        raise BadInput(f"{folder.home}: was not recrawled yet: {resume(folder.data_dirs, '--recrawl')}")
    queued = (read_status(folder.status) or CrawlStatus()).queued
    if as_json:
        print_document(msgspec.to_builtins(report) | {"queued": queued})
        return
    click.echo(report.summary() + (f"; {queued:,} URLs are still queued" if queued else ""))
    for kind in ("new", "changed", "gone", "moved"):
        for url in getattr(report, kind):
            click.echo(shown(f"{kind:8} {url}"))


def collect(folder: CrawlFolder, top: int) -> dict[str, Any]:
    """Everything that there is to tell, as plain values."""
    from weft.crawl.reports.report import document
    from weft.crawl.reports.standing import current_status, settle
    from weft.store.pages import PageStore

    identity = folder.identity()
    status = current_status(folder)
    store = PageStore.open(folder.data_dirs, read_only=True)
    try:
        held, current = store.stats(0), store.current(top)
    finally:
        store.abandon()
    settle(status, folder)
    return document(status, folder.pods) | {
        "crawl_id": identity.id,
        "rows": held.rows,
        "urls": current.urls,
        "gone": current.gone,
        "warc_bytes": held.warc_bytes,
        "content_types": current.content_types,
        "depths": {str(depth): count for depth, count in sorted(current.depths.items())},
        "hosts": dict(current.hosts),
        "pods": _pods(folder),
    }


def _pods(folder: CrawlFolder) -> dict[str, Any]:
    from weft.crawl.pods.distribution import distribution

    spread = distribution(folder)
    return {
        "of": folder.pods,
        "imbalance": {"pages": round(spread.pages_imbalance, 3), "queued": round(spread.queued_imbalance, 3)},
        "hot": list(spread.hot),
        "each": [
            {name: getattr(pod, name) for name in ("pod", "pages", "rows", "queued", "seen", "sites", "source")}
            for pod in spread.pods
        ],
    }


def _text(facts: dict[str, Any], go_on: str) -> str:
    """`go_on`: the command that continues the crawl."""
    from weft.cli.display import clock

    def listed(name: str, nameless: str = "none", most: int = 12) -> str:
        """`nameless` is what an empty name stands for."""
        some = sorted(facts[name].items(), key=lambda item: -item[1])[:most]
        return ", ".join(f"{key if key not in ('', '0') else nameless} {count:,}" for key, count in some) or "none"

    lines = [
        f"pages      {facts['live_pages']:,}  ({facts['urls']:,} URLs ended, {facts['queued']:,} queued)",
        *_visits(facts),
        f"state      {facts['state']}" + (f" ({as_flags(facts['note'])})" if facts["note"] else ""),
        *([f"           {go_on}"] if facts["state"] == "interrupted" else []),
        *_waiting(facts),
        f"size       {facts['body_bytes'] / 1e6:,.1f} MB of bodies in {facts['warc_bytes'] / 1e6:,.1f} MB of WARC",
        f"rate       {facts['pages_per_s']:,.1f} pages/s over {clock(facts['elapsed_s'])}",
        f"statuses   {listed('statuses', 'no response')}",
        f"errors     {listed('errors')}",
        f"left out   {listed('refused')}",
        f"types      {listed('content_types', 'no type')}",
        f"depths     {', '.join(f'{depth}: {count:,}' for depth, count in list(facts['depths'].items())[:12])}",
    ]
    if facts["pods"]["of"] > 1:
        lines += _pod_lines(facts["pods"])
    if facts["hosts"]:
        width = max(map(len, facts["hosts"]))
        lines += ["top hosts", *(f"  {host:{width}}  {count:,}" for host, count in facts["hosts"].items())]
    return "\n".join(lines)


def _waiting(facts: dict[str, Any]) -> list[str]:
    """Of a running crawl that requests nothing now although URLs are queued."""
    if not facts["waiting_for"]:
        return []
    return [
        f"waiting    {facts['waiting_for']}" + (f", until {facts['waiting_until']}" if facts["waiting_until"] else "")
    ]


def _visits(facts: dict[str, Any]) -> list[str]:
    """Of a crawl in which URLs were visited more than once."""
    if facts["rows"] == facts["urls"]:
        return []
    gone = f", {facts['gone']:,} gone since" if facts["gone"] else ""
    return [f"visits     {facts['rows']:,}, {facts['pages']:,} pages stored by them{gone}"]


def _pod_lines(pods: dict[str, Any]) -> list[str]:
    def figure(value: int | None) -> str:
        return "?" if value is None else f"{value:,}"

    even = pods["imbalance"]
    lines = []
    if len(pods["each"]) < pods["of"]:
        lines.append(f"node       runs {len(pods['each'])} of {pods['of']} pods; the others' pages are on other nodes")
    lines += [
        f"pods       {len(pods['each'])}, largest over mean: pages {even['pages']:.2f}, queued {even['queued']:.2f}",
        f"  {'pod':>5} {'pages':>12} {'queued':>12} {'seen':>13} {'sites':>11}",
    ]
    for pod in pods["each"]:
        row = f"  {pod['pod']:>5} {pod['pages']:>12,} {figure(pod['queued']):>12} {figure(pod['seen']):>13}"
        row += f" {figure(pod['sites']):>11}" + ("  hot" if pod["pod"] in pods["hot"] else "")
        lines.append(row)
    return lines
