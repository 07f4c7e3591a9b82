"""Admission to an embedded frontier: each URL once in each crawl, numbered, journalled, and queued under its site.

Admitted items are in memory until the next commit; their lines are written to the journal with the links of their page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from weft.frontier.contract import Admission, Item, PageLinks, RobotsRecord
from weft.frontier.durability.journal_lines import PURPOSE_LETTERS, format_line
from weft.frontier.embedded.excluded import ExcludedItems
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.rejected import EmbeddedRejected
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.link_lists import numbered
from weft.frontier.scheduling.sites import Crawl, KnownDepth, SiteQueue
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found, Purpose, Reason

_MOST_QUEUED_PER_PAGE = 20  # a domain with a budget of N pages queues at most this many times N URLs
LinksToExpand = list[tuple[int, str, int]]


class EmbeddedQueue:
    """See the contract."""

    def __init__(
        self, base: FrontierResources, sites: EmbeddedSites, rejected: EmbeddedRejected, excluded: ExcludedItems
    ) -> None:
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

    def admit(self, crawl: int, found_urls: Sequence[Found]) -> Admission:
        """Queues new URLs; redirect targets, robots.txt and sitemaps before the rest."""
        owner = self._queues.crawls[crawl]
        new = duplicates = 0
        expand: LinksToExpand = []
        for one in found_urls:
            if one.purpose is Purpose.ROBOTS:
                if owner.paused:
                    self._sites.release_robots_fetch(one.about)  # other crawls may wait for it
                else:
                    self._queues.enqueue(owner, one, self._counts.next_transient_item())
                continue
            known = seen_key(one)
            if not owner.seen.add(known):
                duplicates += 1
                if (
                    owner.depths is not None
                    and not one.key
                    and (moved := self._move_to_smaller_depth(owner, one)) is not None
                ):
                    expand.append(moved)
                continue
            if self._is_over_budget(owner, one):
                owner.seen.discard(known)
                self._rejected.reject_over_budget(crawl, one)
                continue
            new += 1
            item = self.number_new_item(owner, one)
            if one.purpose is Purpose.PAGE and (rule := self._forbidding_rule(owner, one.url)):
                self._reject_forbidden(owner, one, item, rule)
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
                admission = EmbeddedQueue.admit(self, crawl, some.found_urls())
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

    def number_new_item(self, crawl: Crawl, found_url: Found) -> int:
        """Numbers a new item; the next commit writes it."""
        item = self._counts.next_item
        self._counts.next_item += 1
        self._counts.admitted += 1
        if crawl.depths is not None and not found_url.key:
            crawl.depths[crawl.seen.fingerprint(found_url.url)] = KnownDepth(found_url.depth, item)
        if found_url.request:
            self._base.kept_requests.keep(item, crawl.number, found_url.request)
        self.write_line(crawl, found_url, item)
        return item

    def write_line(self, crawl: Crawl, found_url: Found, item: int) -> None:
        """The line of an item, with the next commit; a later line of the same item replaces it."""
        self._journal.add_admitted_lines(crawl.number, format_line(item, crawl.number, found_url).encode(), 1)

    # ── admitting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit_new(self, crawl: Crawl, links: PageLinks, fresh: list[str]) -> None:
        """Numbers, journals and queues new URLs; those that robots.txt forbids are rejected at once."""
        first = self._counts.next_item
        self._counts.next_item += len(fresh)
        self._counts.admitted += len(fresh)
        middle = f" {links.depth} {links.parent} 0 {links.offsite} {crawl.number} {PURPOSE_LETTERS[Purpose.PAGE]} "
        self._journal.add_admitted_lines(crawl.number, numbered(first, middle, fresh, 0), len(fresh))
        record = self._sites.robots_files.in_memory(crawl.trust + links.origin)
        forbidden = self.forbids(crawl.number, record, links.origin, fresh) if record is not None else {}
        if not forbidden:
            self._queues.enqueue_links(crawl, links, fresh, first)
            return
        for item, url in enumerate(fresh, first):
            found_url = Found(url, links.depth, links.parent, offsite=links.offsite)
            if url in forbidden:
                self._reject_forbidden(crawl, found_url, item, forbidden[url])
            else:
                self._queues.enqueue(crawl, found_url, item)

    def _has_room(self, crawl: Crawl, links: PageLinks) -> bool:
        """Whether all of these fit into the queue of their site; if not, they are admitted one by one."""
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return True
        site = self._queues.site_at(links.origin)
        queue = crawl.sites.get(site) if site is not None else None
        return queue is not None and len(links.urls) <= _free_room(queue, cap)

    def _forbidding_rule(self, crawl: Crawl, url: str) -> str:
        """The rule that forbids a page, as far as the robots.txt is in memory; it is checked again after the claim."""
        origin = url[: url.index("/", 8)]
        record = self._sites.robots_files.in_memory(crawl.trust + origin)
        return self.forbids(crawl.number, record, origin, [url]).get(url, "") if record is not None else ""

    def _reject_forbidden(self, crawl: Crawl, found_url: Found, number: int, rule: str) -> None:
        """Rejects at once a new item that would only be claimed to be refused."""
        item = Item(
            number,
            found_url.url,
            found_url.depth,
            found_url.parent,
            found_url.hops,
            found_url.purpose,
            found_url.about,
            0,
            found_url.offsite,
        )
        self._rejected.reject_item(item, crawl, Reason.ROBOTS, rule)

    def _move_to_smaller_depth(self, crawl: Crawl, found_url: Found) -> tuple[int, str, int] | None:
        """A seen URL found at a smaller depth: moved up if it is queued, returned for expansion if it was fetched."""
        assert crawl.depths is not None
        known = crawl.depths.get(crawl.seen.fingerprint(found_url.url))
        if known is None or known.depth <= found_url.depth:
            return None
        known.depth = found_url.depth
        crawl.seen.note_new_line(found_url.url)
        self.write_line(crawl, found_url, known.item)
        if known.ended:
            return known.item, found_url.url, found_url.depth
        if not known.leased:
            # Its old entry remains in its queue; `Queues.pop` skips it.
            self._queues.enqueue(crawl, found_url, known.item)
        return None

    def _is_over_budget(self, crawl: Crawl, found_url: Found) -> bool:
        if found_url.purpose is Purpose.SITEMAP and crawl.limits.max_sitemaps is not None:
            return self._has_all_sitemaps(crawl, found_url.url, crawl.limits.max_sitemaps)
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return False
        key = self._queues.key_of(found_url.url)
        site = self._queues.known_site(key)
        queue = crawl.sites.get(site) if site is not None else None
        return queue is not None and _free_room(queue, cap) <= 0

    def _has_all_sitemaps(self, crawl: Crawl, url: str, most: int) -> bool:
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


def _free_room(queue: SiteQueue, cap: int) -> int:
    """How many more URLs the queue of a site accepts."""
    return _MOST_QUEUED_PER_PAGE * cap + 1000 - queue.queued - queue.pages
