"""The steps of sites' runs, within one step of the store each: who asks for them is the runner, or whoever starts and
stops sites by hand. Because each is one step over all sites, a run begins once, whoever was killed meanwhile.
"""

from __future__ import annotations

import msgspec

from weft.jobs.model import Task, TaskSpec, new_task_id
from weft.jobs.sites import site_model
from weft.jobs.sites.changes import Comparison
from weft.jobs.sites.site_model import ANY_DEPTH, SavedSite
from weft.jobs.store.sqlite_sites import SqliteLedger


def come_due(ledger: SqliteLedger, now: float) -> list[str]:
    """Wants a run of each site whose time has come: one, however many times have passed; none of one that runs."""
    due = [site for site in ledger.sites.values() if site_model.is_due(site, now)]
    for site in due:
        ledger.put(site_model.moved_on(site, now))
    names = [site.name for site in due if not site.task]
    want(ledger, names, now)
    return names


def want(ledger: SqliteLedger, names: list[str], now: float, *, by_hand: bool = False) -> None:
    """Wants runs, and those that these need."""
    for site in site_model.wanted(ledger.sites, names, now, by_hand=by_hand).values():
        ledger.put(site)


def begin(ledger: SqliteLedger, now: float, *, has_proxies: bool = False) -> dict[str, str]:
    """Begins every run that may: their tasks by the sites' names. Those through proxies are begun by who has looked
    whether there are enough."""
    begun: dict[str, str] = {}
    for site in list(ledger.sites.values()):
        if site_model.is_ready(site, ledger.sites, now, has_proxies=has_proxies):
            spec, urls = _order(ledger, site)
            task = Task(id=new_task_id(), owner=site.owner, url=urls[0], url_count=len(urls), spec=spec, created_at=now)
            ledger.submit(task, urls)
            ledger.put(msgspec.structs.replace(site, task=task.id, wanted_at=None, is_stopping=False))
            begun[site.name] = task.id
    return begun


def _order(ledger: SqliteLedger, site: SavedSite) -> tuple[TaskSpec, list[str]]:
    """What a run is ordered with, and where it starts: also at every known page, unless that would lead deeper than the
    site's limit; and at what was no page before, unless all links are followed anyway."""
    file, known = site.file, ledger.pages(site.name)
    why_full = site_model.why_full(site, known)
    extra = {"site": site.name, "rules": file.rules, "why_full": why_full}
    spec = msgspec.structs.replace(file.spec, revisits="" if why_full else site.name, extra=extra)
    again = sorted(url for url, page in known.items() if page.digest or not why_full)
    return spec, list(dict.fromkeys([*file.start_urls, *(again if file.max_depth >= ANY_DEPTH else [])]))


def stop(ledger: SqliteLedger, names: list[str]) -> None:
    """Wants no run of these any more; those under way are to end."""
    for name in names:
        site = ledger.sites[name]
        changed = msgspec.structs.replace(site, wanted_at=None, paused_until=None, is_stopping=bool(site.task))
        if changed != site:
            ledger.put(changed)


def settle(ledger: SqliteLedger, name: str, task: Task, found: Comparison, now: float) -> bool:
    """Keeps how a run has ended and what it has found; False where that was done already."""
    site = ledger.sites.get(name)
    if site is None or site.task != task.id:
        return False
    ledger.learn(found.report(task, task.finished_at or now), found.learnt())
    ledger.put(site_model.after_run(site, task, now))
    return True
