"""The steps of sites' runs, within one step of the store each: who asks for them is the runner, or whoever starts and
stops sites by hand. Because each is one step over all sites, a run begins once, whoever was killed meanwhile.
"""

from __future__ import annotations

import msgspec

from weft.jobs.model import Task, new_task_id
from weft.jobs.sites import model
from weft.jobs.sites.changes import Comparison
from weft.jobs.sites.model import ANY_DEPTH, Site
from weft.jobs.store.contract import SiteLedger


def come_due(ledger: SiteLedger, now: float) -> list[str]:
    """Wants a run of each site whose time has come: one, however many times have passed; none of one that runs."""
    due = [site for site in ledger.sites.values() if model.is_due(site, now)]
    for site in due:
        ledger.put(model.moved_on(site, now))
    names = [site.name for site in due if not site.task]
    want(ledger, names, now)
    return names


def want(ledger: SiteLedger, names: list[str], now: float, *, by_hand: bool = False) -> None:
    """Wants runs, and those that these need."""
    for site in model.wanted(ledger.sites, names, now, by_hand=by_hand).values():
        ledger.put(site)


def begin(ledger: SiteLedger, now: float, *, has_proxies: bool = False) -> dict[str, str]:
    """Begins every run that may: their tasks by the sites' names. Those through proxies are begun by who has looked
    whether there are enough."""
    begun: dict[str, str] = {}
    for site in list(ledger.sites.values()):
        if model.is_ready(site, ledger.sites, now, has_proxies=has_proxies):
            urls = _urls(ledger, site)
            task = Task(
                id=new_task_id(), owner="", url=urls[0], url_count=len(urls), spec=site.file.spec, created_at=now
            )
            ledger.submit(task, urls)
            ledger.put(msgspec.structs.replace(site, task=task.id, wanted_at=None, is_stopping=False))
            begun[site.name] = task.id
    return begun


def _urls(ledger: SiteLedger, site: Site) -> list[str]:
    """Where a run starts: also at every known page, unless that would lead deeper than the site's limit."""
    known = sorted(ledger.pages(site.name)) if site.file.max_depth >= ANY_DEPTH else []
    return list(dict.fromkeys([*site.file.start_urls, *known]))


def stop(ledger: SiteLedger, names: list[str]) -> None:
    """Wants no run of these any more; those under way are to end."""
    for name in names:
        site = ledger.sites[name]
        changed = msgspec.structs.replace(site, wanted_at=None, paused_until=None, is_stopping=bool(site.task))
        if changed != site:
            ledger.put(changed)


def settle(ledger: SiteLedger, name: str, task: Task, found: Comparison, now: float) -> bool:
    """Keeps how a run has ended and what it has found; False where that was done already."""
    site = ledger.sites.get(name)
    if site is None or site.task != task.id:
        return False
    ledger.learn(found.report(name, task.id, task.finished_at or now), found.changes())
    ledger.put(model.after_run(site, task, now))
    return True
