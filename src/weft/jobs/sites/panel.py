"""The panel of the dashboard (dashboard/panels.py) with the service's sites."""

from __future__ import annotations

import time

from weft.jobs.sites.registry import SiteRegistry
from weft.records import PanelTable

_COLUMNS = ("Site", "State", "Pages", "Failed", "Queued", "Success", "Changes", "Next run", "Message")


class SitesPanel:
    """All sites of the service, with their status."""

    title = "Sites"

    def __init__(self, registry: SiteRegistry) -> None:
        self._registry = registry

    def table(self) -> PanelTable:
        """The current status of the sites."""
        rows = []
        for site in self._registry.status():
            rate = site.health.success_rate
            changed = ", ".join(
                f"{site.changes[name]:,} {name}"
                for name in ("new", "changed", "gone", "moved")
                if site.changes.get(name)
            )
            message = site.waiting or site.health.message
            rows.append(
                (site.name, site.state, f"{site.pages:,}", f"{site.failed:,}", f"{site.queued:,}",
                 "" if rate is None else f"{rate:.0%}", changed, _time_text(site.next_at), message)
            )  # fmt: skip
        return PanelTable(_COLUMNS, tuple(rows), "" if rows else "No sites: `weft sites add FILE` adds one.")


def _time_text(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment)) + " UTC"
