"""The panel of the dashboard (dashboard/panels.py) with the service's proxies, without their passwords."""

from __future__ import annotations

from pathlib import Path

from weft.config import ServiceConfig
from weft.fetch.proxies import live
from weft.fetch.proxies.pool import read_list
from weft.fetch.proxies.refresh import UNDER_WAY, last_job
from weft.jobs.crawls import proxies_of
from weft.records import PanelTable

_COLUMNS = ("Proxy", "Answers in", "Anonymity", "TLS", "Tier", "Country")
MOST = 20  # The rows of the panel: a list may have thousands, and other panels follow.
_TLS_TEXT = {None: "", True: "yes", False: "no"}


class ProxiesPanel:
    """The proxies that have passed their last test, fastest first; all of them if they are not tested."""

    title = "Proxies"

    def __init__(self, config: ServiceConfig) -> None:
        self._path = Path(proxies_of(config))
        self._least = config.proxy.least

    def table(self) -> PanelTable:
        """The current proxies."""
        if not live.is_live_file(self._path):
            proxies = read_list(self._path).proxies
            rows = tuple((one.name, "", "", "", str(one.tier), one.country) for one in proxies[:MOST])
            more = f" The first {MOST} are shown." if len(proxies) > MOST else ""
            return PanelTable(_COLUMNS, rows, f"{len(proxies):,} listed; they are not tested.{more}")
        list_read, job = live.read(self._path), last_job(self._path)
        proxies_there = list_read.proxies if list_read is not None else ()
        rows = tuple(
            (
                one.proxy.name,
                f"{one.latency_s * 1000:,.0f} ms",
                one.anonymity,
                _TLS_TEXT[one.tls],
                str(one.tier),
                one.country,
            )
            for one in proxies_there[:MOST]
        )
        tested = list_read.tested if list_read is not None else 0
        note = f"{len(proxies_there):,} of {tested:,} usable, {self._least:,} needed."
        if job is not None and job.status in UNDER_WAY:
            note += f" They are being tested: {job.completed_chunks:,} of {job.total_chunks:,} chunks."
        elif job is not None and job.error:
            note += f" The last test failed: {job.error}."
        if len(proxies_there) > MOST:
            note += f" The fastest {MOST} are shown; `weft proxies list` has all."
        return PanelTable(_COLUMNS, rows, note)
