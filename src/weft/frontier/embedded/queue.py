"""Admission to an embedded frontier: each URL once in each crawl, numbered, journalled, and queued under its site.

Admitted items are in memory until the next commit; their lines are written to the journal with the links of their page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from weft.frontier.contract import Admission, Item, PageLinks, RobotsRecord
from weft.frontier.durability.journal_lines import LETTER, line_of
from weft.frontier.embedded.excluded import Excluded
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.rejected import EmbeddedRejected
from weft.frontier.embedded.resources import Resources
from weft.frontier.link_lists import numbered
from weft.frontier.scheduling.sites import Crawl, KnownDepth, SiteQueue
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found, Purpose, Reason

_OVERFLOW = 20  # a domain with a budget of N pages queues at most this many times N URLs
Expand = list[tuple[int, str, int]]


class EmbeddedQueue:
    """See the contract."""

    def __init__(self, base: Resources, sites: EmbeddedSites, rejected: EmbeddedRejected, excluded: Excluded) -> None:
        self._base = base
        self._queues, self._journal, self._counts, self._pods = base.queues, base.journal, base.counts, base.pods
        self._sites = sites
        self._rejected = rejected
        self._excluded = excluded
        # Set by the engine, which can read robots.txt: returns those of an origin's URLs that it forbids, with the
        # rules.
        self.forbids: Callable[[int, RobotsRecord, str, Sequence[str]], Mapping[str, str]] = lambda *_: {}

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Looked up in the seen set."""
        return self._queues.crawls[crawl].seen.unknown(candidates)

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues new URLs; redirect targets, robots.txt and sitemaps before the rest."""
        owner = self._queues.crawls[crawl]
        new = duplicates = 0
        expand: Expand = []
        for one in found:
            if one.purpose is Purpose.ROBOTS:
                if owner.paused:
                    self._sites.let_go(one.about)  # other crawls may wait for it
                else:
                    self._queues.enqueue(owner, one, self._counts.transient())
                continue
            known = seen_key(one)
            if not owner.seen.add(known):
                duplicates += 1
                if owner.depths is not None and not one.key and (moved := self._move_up(owner, one)) is not None:
                    expand.append(moved)
                continue
            if self._over_budget(owner, one):
                owner.seen.discard(known)
                self._rejected.over_budget(crawl, one)
                continue
            new += 1
            item = self.numbered(owner, one)
            if one.purpose is Purpose.PAGE and (rule := self._forbidden(owner, one.url)):
                self._turn_away(owner, one, item, rule)
            else:
                self._queues.enqueue(owner, one, item)
        return Admission(new, duplicates, tuple(expand))

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """Queues the new links of pages: no object is made for a link, and what depends on its origin only (site, room,
        robots.txt) is looked up once for all of a page's links to it.
        """
        owner = self._queues.crawls[crawl]
        new = duplicates = 0
        expand: tuple[tuple[int, str, int], ...] = ()
        for some in links:
            if owner.depths is not None or not self._has_room(owner, some):
                admission = EmbeddedQueue.admit(self, crawl, some.found())
                new, duplicates = new + admission.new, duplicates + admission.duplicates
                expand += admission.expand
                continue
            fresh = owner.seen.add_new(some.urls)
            new, duplicates = new + len(fresh), duplicates + len(some.urls) - len(fresh)
            if fresh:
                self._admit_new(owner, some, fresh)
        owner.seen.forget_missed()
        return Admission(new, duplicates, expand)

    def restore_excluded(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues again those excluded items that are `wanted` now; returns how many."""
        owner = self._queues.crawls[crawl]
        back = self._excluded.remove(crawl, wanted)
        for item in back:
            queue = self._queues.queue_at(self._queues.key_of(item.url), owner)
            self._queues.push_urgent(queue, owner.at_known_depth(item))
            self._queues.schedule(queue.site)
        return len(back)

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything that is queued for a crawl, site by site."""
        owner = self._queues.crawls[crawl]
        for queue in owner.sites.values():
            yield from queue.items()
        for queue in self._queues.swapping.swapped_queues(owner):
            yield from queue.items()

    # ── for the other parts ────────────────────────────────────────────────────────────────────────────────────────

    def numbered(self, crawl: Crawl, found: Found) -> int:
        """Numbers a new item; the next commit writes it."""
        item = self._counts.next_item
        self._counts.next_item += 1
        self._counts.admitted += 1
        if crawl.depths is not None and not found.key:
            crawl.depths[crawl.seen.fingerprint(found.url)] = KnownDepth(found.depth, item)
        if found.request:
            self._base.kept_requests.keep(item, crawl.number, found.request)
        self.write_line(crawl, found, item)
        return item

    def write_line(self, crawl: Crawl, found: Found, item: int) -> None:
        """The line of an item, with the next commit; a later line of the same item replaces it."""
        self._journal.admit(crawl.number, line_of(item, crawl.number, found).encode(), 1)

    # ── admitting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit_new(self, crawl: Crawl, links: PageLinks, fresh: list[str]) -> None:
        """Numbers, journals and queues new URLs; those that robots.txt forbids are rejected at once."""
        first = self._counts.next_item
        self._counts.next_item += len(fresh)
        self._counts.admitted += len(fresh)
        middle = f" {links.depth} {links.parent} 0 {links.offsite} {crawl.number} {LETTER[Purpose.PAGE]} "
        self._journal.admit(crawl.number, numbered(first, middle, fresh, 0), len(fresh))
        record = self._sites.robots_files.in_memory(crawl.trust + links.origin)
        forbidden = self.forbids(crawl.number, record, links.origin, fresh) if record is not None else {}
        if not forbidden:
            self._queues.enqueue_links(crawl, links, fresh, first)
            return
        for item, url in enumerate(fresh, first):
            found = Found(url, links.depth, links.parent, offsite=links.offsite)
            if url in forbidden:
                self._turn_away(crawl, found, item, forbidden[url])
            else:
                self._queues.enqueue(crawl, found, item)

    def _has_room(self, crawl: Crawl, links: PageLinks) -> bool:
        """Whether all of these fit into the queue of their site; if not, they are admitted one by one."""
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return True
        site = self._queues.site_at(links.origin)
        queue = crawl.sites.get(site) if site is not None else None
        return queue is not None and len(links.urls) <= _room(queue, cap)

    def _forbidden(self, crawl: Crawl, url: str) -> str:
        """The rule that forbids a page, as far as the robots.txt is in memory; it is checked again after the claim."""
        origin = url[: url.index("/", 8)]
        record = self._sites.robots_files.in_memory(crawl.trust + origin)
        return self.forbids(crawl.number, record, origin, [url]).get(url, "") if record is not None else ""

    def _turn_away(self, crawl: Crawl, found: Found, number: int, rule: str) -> None:
        """Rejects at once a new item that would only be claimed to be refused."""
        item = Item(
            number, found.url, found.depth, found.parent, found.hops, found.purpose, found.about, 0, found.offsite
        )
        self._rejected.add(item, crawl, Reason.ROBOTS, rule)

    def _move_up(self, crawl: Crawl, found: Found) -> tuple[int, str, int] | None:
        """A seen URL found at a smaller depth: moved up if it is queued, returned for expansion if it was fetched."""
        assert crawl.depths is not None
        known = crawl.depths.get(crawl.seen.fingerprint(found.url))
        if known is None or known.depth <= found.depth:
            return None
        known.depth = found.depth
        crawl.seen.again(found.url)
        self.write_line(crawl, found, known.item)
        if known.ended:
            return known.item, found.url, found.depth
        if not known.leased:
            # Its old entry remains in its queue; `Queues.pop` skips it.
            self._queues.enqueue(crawl, found, known.item)
        return None

    def _over_budget(self, crawl: Crawl, found: Found) -> bool:
        if found.purpose is Purpose.SITEMAP and crawl.limits.max_sitemaps is not None:
            return self._has_sitemaps(crawl, found.url, crawl.limits.max_sitemaps)
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return False
        key = self._queues.key_of(found.url)
        site = self._queues.known_site(key)
        queue = crawl.sites.get(site) if site is not None else None
        return queue is not None and _room(queue, cap) <= 0

    def _has_sitemaps(self, crawl: Crawl, url: str, most: int) -> bool:
        """Whether a site has reached its limit of sitemaps; if not, counts this one. Saved with its item."""
        key = self._queues.key_of(url)
        queue, name = self._queues.site(key).queue_of(crawl), f"{crawl.number} {key}"
        if queue.sitemaps_found is None:
            row = self._journal.row("sitemaps", name)
            queue.sitemaps_found = row[1] if row is not None else 0
        if queue.sitemaps_found >= most:
            return True
        queue.sitemaps_found += 1
        self._journal.put("sitemaps", name, queue.sitemaps_found)
        return False


def _room(queue: SiteQueue, cap: int) -> int:
    """How many more URLs the queue of a site accepts."""
    return _OVERFLOW * cap + 1000 - queue.queued - queue.pages
