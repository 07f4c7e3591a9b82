"""Sites on the dashboard: a panel (dashboard/panels.py)."""

from __future__ import annotations

import time

from weft.jobs.sites.registry import SiteRegistry
from weft.records import PanelTable

_COLUMNS = ("Site", "State", "Pages", "Failed", "Queued", "Success", "Changes", "Next run", "Said")


class SitesPanel:
    """All sites of the service."""

    title = "Sites"

    def __init__(self, registry: SiteRegistry) -> None:
        self._registry = registry

    def table(self) -> PanelTable:
        """How they are now."""
        rows = []
        for site in self._registry.status():
            rate = site.health.success_rate
            changed = ", ".join(
                f"{site.changes[name]:,} {name}"
                for name in ("new", "changed", "gone", "moved")
                if site.changes.get(name)
            )
            said = site.waiting or site.health.message
            rows.append(
                (site.name, site.state, f"{site.pages:,}", f"{site.failed:,}", f"{site.queued:,}",
                 "" if rate is None else f"{rate:.0%}", changed, _at(site.next_at), said)
            )  # fmt: skip
        return PanelTable(_COLUMNS, tuple(rows), "" if rows else "No sites: `weft sites add FILE` adds one.")


def _at(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment)) + " UTC"
