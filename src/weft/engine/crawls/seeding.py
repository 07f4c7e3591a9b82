"""Seeds of an engine's crawls: checked against the crawl's rules and admitted, with what is known of them from before.

Called by `core` on the loop's own thread. The resulting changes of the crawl's record are committed with the seeds,
because their scope depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from weft import urls
from weft.credentials import seed_origins
from weft.engine.crawls.tenant import Tenant
from weft.engine.loop.fetcher.revisits import GivenVisits, Revisits
from weft.engine.model import CrawlState, Seeded
from weft.errors import DiskFull
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, PastVisit
from weft.store.errors import StoreError
from weft.store.index.index_writer import CrawlChange
from weft.store.pages import PageStore
from weft.telemetry import Log

LISTED_REFUSALS = 1000
log = Log("weft.engine.crawls.seeding")


class Seeding:
    """Admits the seeds of all crawls of one engine."""

    def __init__(
        self,
        frontier: EmbeddedFrontier,
        store: PageStore,
        *,
        touch: Callable[[int], None],
        start: Callable[[Tenant], None],
    ) -> None:
        """`touch`: the crawl has new work. `start`: its first seeds have come, and its state is to change."""
        self._frontier = frontier
        self._store = store
        self._touch_crawl = touch
        self._start_crawl = start

    def keep_earlier_visits(self, tenant: Tenant, visits: Sequence[PastVisit]) -> None:
        """Keeps the results of earlier visits; if that fails, the URLs are requested as if they were new."""
        if not visits:
            return
        try:
            self._store.keep_visited(tenant.number, visits)
        except (StoreError, DiskFull) as error:
            log.warning("earlier visits are not kept", crawl=tenant.name, error=error)
            return
        if tenant.revisits is None:
            tenant.record.revisits = True
            tenant.revisits = Revisits(GivenVisits(self._store))
            self._store.change(CrawlChange(tenant.number, tenant.name, tenant.encoded_record()))

    def origins_with(self, tenant: Tenant, seeds: Sequence[str]) -> list[str]:
        """The origins that the crawl's credentials are sent to, once it has these seeds; BadInput if there are too
        many.
        """
        known = tenant.record.origins
        if tenant.record.has_opened:
            return known
        return seed_origins(seeds, tenant.fetch.headers, tenant.fetch.auth, known)

    def admit_seeds(self, tenant: Tenant, seeds: Sequence[str], refused: dict[str, str], more: bool) -> Seeded:
        """Adds canonical seeds to a crawl; `refused`: seeds that were not valid URLs, to which others are added.
        `more`: the rest of their list follows in other calls, and the crawl does not end before it has come.
        """
        self._open_for_first_seeds(tenant, seeds, more)
        roots = dict.fromkeys(tenant.record.roots)
        found = self._select_admitted_seeds(tenant, seeds, roots, refused)
        tenant.ask_robots_again(found, time.time())
        admission = self._frontier.queue.admit(tenant.number, found)
        record = tenant.record
        is_to_be_kept = len(roots) > len(record.roots) or record.expects_more is not more
        is_to_be_kept = tenant.refuse_seeds(refused) or is_to_be_kept
        record.roots, record.expects_more = list(roots), more
        self._touch_crawl(tenant.number)
        if record.state is CrawlState.OPEN and (seeds or record.keep_open):
            self._start_crawl(tenant)
        elif is_to_be_kept:  # committed with the seeds: their scope depends on it
            self._store.change(CrawlChange(tenant.number, tenant.name, tenant.encoded_record()))
        few = dict(list(refused.items())[:LISTED_REFUSALS])
        return Seeded(admission.new, admission.duplicates, few)

    def _open_for_first_seeds(self, tenant: Tenant, seeds: Sequence[str], more: bool) -> None:
        """Opens a crawl for its first seeds. Credentials are sent to the origins of these seeds only. A program may
        find later ones on pages, which must not decide where a login is sent.
        """
        record = tenant.record
        if record.has_opened:
            return
        record.origins = self.origins_with(tenant, seeds)
        for origin in record.origins:
            tenant.credentials.trust(origin)
        record.has_opened = not more and bool(seeds or record.roots)

    @staticmethod
    def _select_admitted_seeds(
        tenant: Tenant, seeds: Sequence[str], roots: dict[str, None], refused: dict[str, str]
    ) -> list[Found]:
        """The seeds that the crawl's rules admit; new roots and refusals are added to the given collections."""
        found = []
        for seed in seeds:
            url = tenant.rules.rewritten(seed)
            root = url.partition("?")[0].rpartition("/")[0] + "/" if tenant.scope.scope == "prefix" else None
            root = root or urls.origin_of(url) + "/"
            if root not in roots:
                roots[root] = None
                tenant.rules.extend(url)
                tenant.add_seed_origin(url)
            reason = tenant.rules.refusal(url, 0, is_link=False, included=True)
            if reason is None:
                found.append(Found(url, 0))
            else:
                tenant.progress.refused[reason] += 1
                refused[seed] = str(reason)
        return found
