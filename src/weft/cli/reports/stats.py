"""`weft stats DIR`: shows what the crawls of a folder have stored, whether they run or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.cli.crawls.commands_to_copy import resume
from weft.cli.reports.folders import report_in, which_crawl
from weft.cli.terminal.messages import as_flags
from weft.cli.terminal.output import output_flags, print_document, printable

if TYPE_CHECKING:
    from weft.crawl.folder import CrawlFolder
    from weft.crawl.reports.crawls import ReportFolder
    from weft.engine.loop.progress import CrawlStatus

MOST_CRAWLS = 20  # crawls that are listed


@click.command()
@click.argument("crawl_dirs", metavar="[DIR...]", nargs=-1)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Instead of DIR: a crawl's settings, whose pods on Redis are asked, those of other nodes too.",
)
@which_crawl
@click.option(
    "--top", metavar="N", default=10, show_default=True, type=click.IntRange(0), help="How many hosts to list."
)
@click.option(
    "--changes", "changed", is_flag=True, help="Show what the last recrawl detected: new, changed, gone, moved pages."
)
@output_flags
def stats(
    crawl_dirs: tuple[str, ...],
    config_file: str | None,
    crawl: str | None,
    more: tuple[str, ...],
    top: int,
    changed: bool,
    as_json: bool,
    quiet: bool,  # noqa: ARG001
) -> None:
    """Show what a crawl has stored: pages, bytes, statuses, errors, top hosts, rate, balance of its pods.

    DIR is the data dir of `weft crawl`, of an engine or of a service, also while they run. For several crawls it shows
    each and their sum, unless --crawl names one.
    """
    if config_file is not None:
        _show_live_pods(config_file, given=bool(crawl_dirs or more or crawl or changed), as_json=as_json)
        return
    if not crawl_dirs:
        raise click.UsageError("Missing argument 'DIR...' (or --config FILE, for pods on Redis).")
    with report_in(crawl_dirs, more) as report:
        folder = report.folder
        if changed:
            folder.open_existing()
            _show_changes(folder, as_json)
            return
        facts = collect(report, top, crawl)
    if as_json:
        print_document(facts)
    else:
        click.echo(printable(_text(facts, "" if report.is_engines else resume(folder.data_dirs))))


def _show_live_pods(file: str, *, given: bool, as_json: bool) -> None:
    """Of all nodes; `given`: a data dir, or what is read from one, was named as well."""
    import os

    import msgspec

    from weft.config import load
    from weft.crawl.pods.live_pods import live_pods

    if given:
        raise click.UsageError("--config asks the pods' servers: leave out DIR, --crawl and --changes.")
    live = live_pods(load(file, os.environ, is_judged=False).config)
    answering = [pod for pod in live.pods if not pod.error]
    if as_json:
        sums = {name: sum(getattr(pod, name) for pod in answering) for name in ("queued", "seen", "leased")}
        pods = {"of": len(live.pods), "answering": len(answering), "imbalance": round(live.imbalance, 3)}
        print_document(sums | {"pods": pods | {"hot": list(live.hot), "each": msgspec.to_builtins(live.pods)}})
        return
    lines = [
        f"pods       {len(answering)} of {len(live.pods)} answer; longest queue over mean: {live.imbalance:.2f}",
        f"  {'pod':>5} {'queued':>12} {'seen':>13} {'sites':>11} {'leased':>9} {'to parse':>9}  server",
    ]
    for pod in live.pods:
        counts = f"{pod.queued:>12,} {pod.seen:>13,} {pod.sites:>11,} {pod.leased:>9,} {pod.to_parse:>9,}"
        row = f"  {pod.pod:>5} {pod.error or f'{counts}  {pod.server}'}"
        lines.append(row + ("  hot" if pod.pod in live.hot else ""))
    click.echo(printable("\n".join(lines)))


def _show_changes(folder: CrawlFolder, as_json: bool) -> None:
    import msgspec

    from weft.crawl.reports.changes import last_changes
    from weft.engine.loop.progress import CrawlStatus, read_status
    from weft.errors import BadInput

    report = last_changes(folder)
    if report is None:
        raise BadInput(f"{folder.home}: was not recrawled yet: {resume(folder.data_dirs, '--recrawl')}")
    queued = (read_status(folder.status) or CrawlStatus()).queued
    if as_json:
        print_document(msgspec.to_builtins(report) | {"queued": queued})
        return
    click.echo(report.summary() + (f"; {queued:,} URLs are still queued" if queued else ""))
    for kind in ("new", "changed", "gone", "moved"):
        for url in getattr(report, kind):
            click.echo(printable(f"{kind:8} {url}"))


def collect(report: ReportFolder, top: int, name: str | None = None) -> dict[str, Any]:
    """All statistics of one crawl, or of all crawls of a folder, as plain values."""
    from weft.crawl.reports.combined_status import current_status, settle_counts
    from weft.crawl.reports.engine_status import settle_crawl, statuses, total_status
    from weft.crawl.reports.report import status_document

    crawls = report.crawls(name)
    if not report.is_engines:
        status = current_status(report.folder)
        settle_counts(status, report.folder)
        return (
            status_document(status, report.folder.pods)
            | _stored_statistics(report, 0, top)
            | {"pods": _pod_facts(report.folder)}
        )
    each = statuses(report, crawls)
    if name is not None:
        status, number = each[name], crawls[0].number
        settle_crawl(report, number, status)
        return (
            {"crawl": name}
            | status_document(status, 1)
            | _stored_statistics(report, number, top)
            | {"pods": _engine_pod(status)}
        )
    status = total_status(each.values(), is_running=report.live_snapshots([]) is not None)
    settle_crawl(report, 0, status)
    facts = status_document(status, 1) | _stored_statistics(report, 0, top) | {"pods": _engine_pod(status)}
    return facts | {"crawls": [{"crawl": one.name} | status_document(each[one.name], 1) for one in crawls]}


def _stored_statistics(report: ReportFolder, number: int, top: int) -> dict[str, Any]:
    """The statistics from the index, of one crawl or of all (0)."""
    held, current = report.store.stats(0, crawl=number), report.store.current(top, number)
    return {
        "crawl_id": report.identity.id,
        "rows": held.rows,
        "urls": current.urls,
        "gone": current.gone,
        "warc_bytes": held.warc_bytes,
        "content_types": current.content_types,
        "depths": {str(depth): count for depth, count in sorted(current.depths.items())},
        "hosts": dict(current.hosts),
    }


def _engine_pod(status: CrawlStatus) -> dict[str, Any]:
    """The pods of an engine: always one."""
    facts = {"pod": 0, "pages": status.pages, "rows": status.finished, "queued": status.queued, "seen": status.seen}
    each = [facts | {"sites": None, "source": "engine"}]
    return {"of": 1, "imbalance": {"pages": 1.0, "queued": 1.0}, "hot": [], "each": each}


def _pod_facts(folder: CrawlFolder) -> dict[str, Any]:
    from weft.crawl.pods.distribution import distribution

    spread = distribution(folder)
    return {
        "of": folder.pods,
        "imbalance": {"pages": round(spread.pages_imbalance, 3), "queued": round(spread.queued_imbalance, 3)},
        "hot": list(spread.hot_pods),
        "each": [
            {name: getattr(pod, name) for name in ("pod", "pages", "rows", "queued", "seen", "sites", "source")}
            for pod in spread.pods
        ],
    }


def _text(facts: dict[str, Any], continue_command: str) -> str:
    """`continue_command`: the command that continues the crawl."""
    from weft.cli.terminal.live import clock

    def listed(name: str, nameless: str = "none", most: int = 12) -> str:
        """`nameless`: the text for an empty name."""
        some = sorted(facts[name].items(), key=lambda item: -item[1])[:most]
        return ", ".join(f"{key if key not in ('', '0') else nameless} {count:,}" for key, count in some) or "none"

    lines = [
        f"pages      {facts['live_pages']:,}  ({facts['urls']:,} URLs ended, {facts['queued']:,} queued)",
        *_visit_lines(facts),
        f"state      {facts['state']}" + (f" ({as_flags(facts['note'])})" if facts["note"] else ""),
        *([f"           {continue_command}"] if continue_command and facts["state"] == "interrupted" else []),
        *_waiting_lines(facts),
        f"size       {facts['body_bytes'] / 1e6:,.1f} MB of bodies in {facts['warc_bytes'] / 1e6:,.1f} MB of WARC",
        f"rate       {facts['pages_per_s']:,.1f} pages/s over {clock(facts['elapsed_s'])}",
        f"statuses   {listed('statuses', 'no response')}",
        f"errors     {listed('errors')}",
        *_rendering_lines(facts),
        f"left out   {listed('refused')}",
        f"types      {listed('content_types', 'no type')}",
        f"depths     {', '.join(f'{depth}: {count:,}' for depth, count in list(facts['depths'].items())[:12])}",
    ]
    if facts["pods"]["of"] > 1:
        lines += _pod_lines(facts["pods"])
    lines += _crawl_lines(facts.get("crawls", []))
    if facts["hosts"]:
        width = max(map(len, facts["hosts"]))
        lines += ["top hosts", *(f"  {host:{width}}  {count:,}" for host, count in facts["hosts"].items())]
    return "\n".join(lines)


def _crawl_lines(crawls: list[dict[str, Any]]) -> list[str]:
    """The crawls of an engine: those that have not ended first, then the latest ones."""
    live = {"starting", "running", "paused", "interrupted"}
    listed = sorted(crawls, key=lambda one: (one["state"] in live, one["started_at"] or ""), reverse=True)
    if not listed:
        return []
    width = max(len(one["crawl"]) for one in listed[:MOST_CRAWLS])
    lines = [f"crawls     {len(crawls):,}", f"  {'':{width}}  {'pages':>9} {'queued':>9} {'failed':>7}  state"]
    for one in listed[:MOST_CRAWLS]:
        failed, note = sum(one["errors"].values()), f" ({as_flags(one['note'])})" if one["note"] else ""
        counts = f"{one['pages']:>9,} {one['queued']:>9,} {failed:>7,}"
        lines.append(f"  {one['crawl']:{width}}  {counts}  {one['state']}{note}")
    more = len(listed) - MOST_CRAWLS
    return [*lines, f"  ... and {more:,} more (--json has all, --crawl NAME shows one)"] if more > 0 else lines


def _rendering_lines(facts: dict[str, Any]) -> list[str]:
    """What browsers had, at what cost, and the pages that still need one."""
    drawn, lines = facts["rendered"], []
    if pages := drawn["pages"]:
        each = f"{drawn['seconds'] / pages:,.1f} s and {drawn['parts'] / pages:,.1f} requests for parts each"
        lines.append(f"rendered   {pages:,} pages, {each}")
    if (unread := facts["need_javascript"] - pages) > 0:
        lines.append(f"javascript {unread:,} pages need it, and were not rendered")
    return lines


def _waiting_lines(facts: dict[str, Any]) -> list[str]:
    """Lines on what a running crawl waits for, if it sends no requests although URLs are queued."""
    if not facts["waiting_for"]:
        return []
    return [
        f"waiting    {facts['waiting_for']}" + (f", until {facts['waiting_until']}" if facts["waiting_until"] else "")
    ]


def _visit_lines(facts: dict[str, Any]) -> list[str]:
    """The number of visits, if URLs were visited more than once."""
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
