"""Steps of site runs, each within one step of the store: called by the runner, and by commands that start and stop
sites. Because each is one step over all sites, a run begins exactly once, whichever process is killed.
"""

from __future__ import annotations

import msgspec

from weft.jobs.model import Task, TaskSpec, new_task_id
from weft.jobs.sites import site_model
from weft.jobs.sites.changes import Comparison
from weft.jobs.sites.site_model import ANY_DEPTH, SavedSite
from weft.jobs.store.sqlite_sites import SqliteLedger


def come_due(ledger: SqliteLedger, now: float) -> list[str]:
    """Requests a run of each site that is due: one, however many times have passed; none of a site that runs."""
    due = [site for site in ledger.sites.values() if site_model.is_due(site, now)]
    for site in due:
        ledger.put(site_model.moved_on(site, now))
    names = [site.name for site in due if not site.task]
    want(ledger, names, now)
    return names


def want(ledger: SqliteLedger, names: list[str], now: float, *, by_hand: bool = False) -> None:
    """Requests runs, and those of the sites that they depend on."""
    for site in site_model.wanted(ledger.sites, names, now, by_hand=by_hand).values():
        ledger.put(site)


def begin(ledger: SqliteLedger, now: float, *, has_proxies: bool = False) -> dict[str, str]:
    """Starts every run that may start; their tasks by the sites' names. Runs that use proxies only start with
    `has_proxies`, for callers that have checked that there are enough."""
    begun: dict[str, str] = {}
    for site in list(ledger.sites.values()):
        if site_model.is_ready(site, ledger.sites, now, has_proxies=has_proxies):
            spec, urls = _run_spec(ledger, site)
            task = Task(id=new_task_id(), owner=site.owner, url=urls[0], url_count=len(urls), spec=spec, created_at=now)
            ledger.submit(task, urls)
            ledger.put(msgspec.structs.replace(site, task=task.id, wanted_at=None, is_stopping=False))
            begun[site.name] = task.id
    return begun


def _run_spec(ledger: SqliteLedger, site: SavedSite) -> tuple[TaskSpec, list[str]]:
    """The specification of a run, and its start URLs: also every known page, unless that would exceed the site's depth;
    and the URLs that were not a page before, unless all links are followed anyway."""
    file, known = site.file, ledger.pages(site.name)
    why_full = site_model.why_full(site, known)
    extra = {"site": site.name, "rules": file.rules, "why_full": why_full}
    spec = msgspec.structs.replace(file.spec, revisits="" if why_full else site.name, extra=extra)
    again = sorted(url for url, page in known.items() if page.digest or not why_full)
    return spec, list(dict.fromkeys([*file.start_urls, *(again if file.max_depth >= ANY_DEPTH else [])]))


def stop(ledger: SqliteLedger, names: list[str]) -> None:
    """Cancels requested runs, and requests the end of those in progress."""
    for name in names:
        site = ledger.sites[name]
        changed = msgspec.structs.replace(site, wanted_at=None, paused_until=None, is_stopping=bool(site.task))
        if changed != site:
            ledger.put(changed)


def settle(ledger: SqliteLedger, name: str, task: Task, comparison: Comparison, now: float) -> bool:
    """Stores the end of a run and its changes; False if that was done before."""
    site = ledger.sites.get(name)
    if site is None or site.task != task.id:
        return False
    ledger.learn(comparison.report(task, task.finished_at or now), comparison.learnt())
    ledger.put(site_model.after_run(site, task, now))
    return True
