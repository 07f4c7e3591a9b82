"""The frontier of one process: the working set in memory, durable in a journal beside it. Nothing to install.

Memory holds what must be quick: which sites are due, the heads of the queues, the fingerprints. The journal holds what
must not be lost. What is admitted and finished reaches it with `commit`; requests reach the request log inside `claim`,
before anything is sent, so that every politeness clock survives a kill. One process owns the folder (it holds a lock);
each opening is a new epoch, and leases of an older epoch change nothing.

Order of writes that the engine keeps (see engine/loop/commit.py): pages to the store, then `commit` here (the links
found on them), then the store's index; `acknowledge` once all of it is on the disk. What `finish` has ended is valid
with the row in the index. A crash between any two of these repeats work, and loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from weft.errors import Damaged
from weft.frontier.contract import (
    Admission,
    Item,
    PageLinks,
    Rejection,
    Stored,
)
from weft.frontier.embedded.checkpoint import OpenItem
from weft.frontier.embedded.crawls import Crawls
from weft.frontier.embedded.recovery import LETTER
from weft.frontier.embedded.sites import Crawl, KnownDepth, Lane
from weft.frontier.embedded.state import FROM_STORE, REMEMBERED_REFUSALS
from weft.frontier.journal import ANY_CRAWL, LOST_TAIL, REMEDY, undamaged
from weft.frontier.link_lists import numbered
from weft.frontier.requests import boot_id, last_requests
from weft.frontier.seen import seen_key
from weft.frontier.walk import STEP, Walk, is_cut_off
from weft.records import Found, Purpose, Reason
from weft.telemetry import Log

_OVERFLOW = 20  # a domain with a budget of N pages queues at most this many times N
_LONGEST_REQUEST_S = 600.0
log = Log("weft.frontier.embedded.frontier")


class EmbeddedFrontier(Crawls):
    """See the contract."""

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,  # noqa: ARG002
    ) -> int:
        """Fills the queues from the journal; call once, after the crawls are opened. Returns the number queued.

        `done`: items with a row in the store, whose ends the journal may lack. `pages`: stored pages by crawl;
        `by_key`: stored pages by site, where a crawl has a budget for each site; `by_crawl`: the same for each crawl.
        `batch` is for frontiers that are shared; this one acknowledges nothing here.
        """
        now = self.now()
        self._is_recovered = True
        self._read_aside()
        started_before = self._journal.meta("boot")
        if started_before not in (None, boot_id()) or (started_before and self._section.key_scope == "ip"):
            # The clock began anew, or addresses are not known yet: nobody knows how long ago a site was asked.
            self._queues.not_before = now + self._queues.longest_delay_s
        self._recall_requests(now)
        self._robots.restore()
        for item in self._settle(list(done), now):
            self._journal.done[ANY_CRAWL].append(item)
            if item in self._queues.retries:
                self._journal.delete("retries", item)
        self._restore_counts(pages or {}, by_key or {}, by_crawl or {})
        self._journal.put_meta("epoch", self.epoch)
        self._journal.put_meta("boot", boot_id())
        self._journal.commit()
        return self._queues.queued

    def _recall_requests(self, now: float) -> None:
        """When sites were last asked, from the request log; where lines of it are lost, all wait a full delay."""
        longest = max(self._queues.longest_delay_s, self._journal.meta("longest_delay") or 0.0)
        recent = last_requests(self._folder / "requests", now - longest - _LONGEST_REQUEST_S, now, self._alive)
        self._queues.asked = recent.ended
        missing = self.missing_log_bytes
        self.unreadable_requests = recent.unreadable
        if recent.unreadable or missing:
            log.warning(
                "the request log is damaged: sites that may be in the lost lines wait a full delay",
                unreadable_lines=recent.unreadable, missing_bytes=missing,
            )  # fmt: skip
        if missing or self.is_new:
            recent.unsure_at = now
        if recent.unsure_at is not None:
            self._queues.not_before = max(self._queues.not_before, recent.unsure_at + self._queues.longest_delay_s)

    def _settle(self, done: list[int], now: float) -> list[int]:
        """Fills the queues; gives those of `done` that the journal did not know to have ended."""
        self._counts.next_item = max(self._counts.next_item, self._journal.meta("next_item") or 0)
        with undamaged(self._journal.path):
            aside = {item for items in self._aside.values() for item in items}
            # A checkpoint may have items in its queues that were set aside since: then the journal alone is read.
            unrecorded = self._recovery.restore(
                self._counts, done, now, remember=self.unsure_of_links, aside=aside,
                by_checkpoint=not self._aside.keys() & self._queues.crawls.keys(),
            )  # fmt: skip
        self._since_checkpoint = self._unsaved = self._recovery.replayed_lines
        last_stored = max(unrecorded, default=0)
        if last_stored >= self._counts.next_item:
            if not self.unsure_of_links:
                # An item is in the journal before its page is stored, so a crash cannot cause this.
                raise Damaged(
                    self._journal.path,
                    f"does not have what was fetched last (item {last_stored:,} of the stored pages)",
                    REMEDY,
                )
            self._counts.next_item = last_stored + 1
        return unrecorded

    def restore_stored(self, crawl: int, rows: Iterable[tuple[Found, int]]) -> None:
        """Marks stored pages as seen and ended, which the journal may have lost, so that they are not fetched again.

        The caller admits their links after this, then calls `links_are_known`.
        """
        owner = self._queues.crawls[crawl]
        for found, item in rows:
            self._alive()
            owner.seen.add(found.url)
            if found.hops:
                # Its redirect may have led back into its own chain, which has a key of its own (`seen_key`): mark both.
                owner.seen.add(seen_key(msgspec.structs.replace(found, about=found.url)))
            if self._recovery.knows(item):
                continue
            self._counts.admitted += 1
            if owner.depths is not None:
                owner.depths[owner.seen.fingerprint(found.url)] = KnownDepth(found.depth, item, ended=True)
            self._write_line(owner, found, item)

    def links_are_known(self) -> None:
        """The links of all stored pages are admitted: records that, and commits."""
        self._journal.delete("meta", FROM_STORE)
        self._journal.delete("meta", LOST_TAIL)
        self.commit()
        self.is_new = self.unsure_of_links = False

    def _restore_counts(
        self, pages: Mapping[int, int], by_key: Mapping[str, int], by_crawl: Mapping[int, Mapping[str, int]]
    ) -> None:
        for number, count in pages.items():
            if number in self._queues.crawls:
                self._queues.crawls[number].pages = count
        for key, count in by_key.items():
            self._alive()
            for crawl in self._queues.crawls.values():
                self._queues.site(key).lane(crawl).pages = count
        for number, counts in by_crawl.items():
            for key, count in counts.items():
                self._alive()
                self._queues.site(key).lane(self._queues.crawls[number]).pages = count

    # ── the contract ───────────────────────────────────────────────────────────────────────────────────────────────

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Looked up in the seen set."""
        return self._queues.crawls[crawl].seen.unknown(candidates)

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new; redirect targets, robots.txt and sitemaps before the rest."""
        owner = self._queues.crawls[crawl]
        new = duplicates = 0
        expand: list[tuple[int, str, int]] = []
        for one in found:
            if one.purpose is Purpose.ROBOTS:
                if owner.paused:
                    self._let_go(one.about)  # other crawls may wait for it
                else:
                    self._queues.enqueue(owner, one, self._transient())
                continue
            known = seen_key(one)
            if not owner.seen.add(known):
                duplicates += 1
                if owner.depths is not None and (moved := self._move_up(owner, one)) is not None:
                    expand.append(moved)
                continue
            if self._over_budget(owner, one):
                owner.seen.discard(known)
                self._leave_out(owner, one)
                continue
            new += 1
            item = self._numbered(owner, one)
            if one.purpose is Purpose.PAGE and (rule := self._forbidden(crawl, one.url)):
                self._turn_away(owner, one, item, rule)
            else:
                self._queues.enqueue(owner, one, item)
        return Admission(new, duplicates, tuple(expand))

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """The same for what pages link to: there is no object for a link, and what depends on its origin alone (site,
        room, robots.txt) is looked up once for all of a page's links to it."""
        owner = self._queues.crawls[crawl]
        new = duplicates = 0
        expand: tuple[tuple[int, str, int], ...] = ()
        for some in links:
            if owner.depths is not None or not self._has_room(owner, some):
                admission = EmbeddedFrontier.admit(self, crawl, some.found())
                new, duplicates = new + admission.new, duplicates + admission.duplicates
                expand += admission.expand
                continue
            fresh = owner.seen.add_new(some.urls)
            new, duplicates = new + len(fresh), duplicates + len(some.urls) - len(fresh)
            if fresh:
                self._take_in(owner, some, fresh)
        owner.seen.forget_missed()
        return Admission(new, duplicates, expand)

    def _take_in(self, crawl: Crawl, links: PageLinks, fresh: list[str]) -> None:
        """Numbers, writes down and queues new URLs; those that robots.txt forbids are rejected at once."""
        first = self._counts.next_item
        self._counts.next_item += len(fresh)
        self._counts.admitted += len(fresh)
        middle = f" {links.depth} {links.parent} 0 {links.offsite} {crawl.number} {LETTER[Purpose.PAGE]} "
        self._journal.admit(crawl.number, numbered(first, middle, fresh, 0), len(fresh))
        record = self._robots.in_memory(crawl.trust + links.origin)
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
        """Whether all of these fit into the queue of their site; False where they must be admitted one by one."""
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return True
        site = self._queues.site_at(links.origin)
        lane = crawl.sites.get(site) if site is not None else None
        return lane is not None and len(links.urls) <= _room(lane, cap)

    def recrawl(self, crawl: int, run: str, known: Stored, begin: Callable[[int], None]) -> None:
        """Queues known pages again, once for each run; `begin` is called with the last item before. One that was cut
        off, in whichever run, continues where it was."""
        name = f"recrawl:{crawl}"
        walk = Walk.of(self._journal.meta(name), run, continues=True)
        if walk.is_over:
            return
        if not walk.after:
            self.commit()
            begin(self._counts.next_item - 1)
        self._readmit_all(crawl, name, walk, known)

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return self._journal.meta(f"recrawl:{crawl}") is not None

    def is_recrawl_cut_off(self, crawl: int) -> bool:
        """Whether some known pages were queued again, and others not yet."""
        return is_cut_off(self._journal.meta(f"recrawl:{crawl}"))

    def readmit(self, crawl: int, found: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number.

        A robots.txt that could not be fetched is fetched again, or the visit would be refused again.
        """
        self.ask_robots_again(crawl, found.url[: found.url.index("/", 8)])
        owner = self._queues.crawls[crawl]
        owner.seen.add(found.url)
        self._queues.enqueue(owner, found, self._numbered(owner, found))

    def ask_robots_again(self, crawl: int, origin: str) -> None:
        """A robots.txt that could not be fetched is fetched once more, before the next page of its origin."""
        self._robots.expire_failed(self._queues.crawls[crawl].trust + origin)

    def readmit_once(self, crawl: int, name: str, what: str, stored: Stored, *, continues: bool = False) -> None:
        """Queues URLs once more, those of which the note `name` does not say that they (`what`) are already.

        The note says how far it has come, in the transaction that queues them. `continues`: also where it was cut off
        under another `what`.
        """
        walk = Walk.of(self.note(name), what, continues=continues)
        if not walk.is_over:
            self._readmit_all(crawl, f"note:{name}", walk, stored)

    def _readmit_all(self, crawl: int, name: str, walk: Walk, stored: Stored) -> None:
        """In steps, each with its place in the journal's meta: a kill costs one step."""
        for number, (item, found) in enumerate(stored(walk.after), 1):
            self.readmit(crawl, found)
            if number % STEP == 0:
                self._journal.put_meta(name, walk.at(item))
                self.commit()
                self._alive()
        self._journal.put_meta(name, walk.what)
        self.commit()

    def _leave_out(self, crawl: Crawl, found: Found) -> None:
        if found.purpose is Purpose.SITEMAP and self._refusals_kept[crawl.number] < REMEMBERED_REFUSALS:
            place = (crawl.number, found.depth, found.hops, found.about)
            self._journal.put("left_sitemaps", found.url, *place)
        self.refused(crawl.number, Reason.BUDGET, found.url, found.parent)

    # ── queueing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _numbered(self, crawl: Crawl, found: Found) -> int:
        """Numbers a new item; the next commit writes it."""
        item = self._counts.next_item
        self._counts.next_item += 1
        self._counts.admitted += 1
        if crawl.depths is not None:
            crawl.depths[crawl.seen.fingerprint(found.url)] = KnownDepth(found.depth, item)
        self._write_line(crawl, found, item)
        return item

    def _forbidden(self, crawl: int, url: str) -> str:
        """The rule that forbids a page, as far as the robots.txt is in memory; it is checked again after the claim."""
        origin = url[: url.index("/", 8)]
        record = self._robots.in_memory(self._queues.crawls[crawl].trust + origin)
        return self.forbids(crawl, record, origin, [url]).get(url, "") if record is not None else ""

    def _turn_away(self, crawl: Crawl, found: Found, number: int, rule: str) -> None:
        """Rejects a new item at once that would be claimed only to be refused."""
        item = Item(
            number, found.url, found.depth, found.parent, found.hops, found.purpose, found.about, 0, found.offsite
        )
        self._mark_ended(item, crawl)
        self._rejected.append(Rejection(item, crawl.number, Reason.ROBOTS, rule))
        self._rejected_out[number] = OpenItem(crawl.number, item)

    def _write_line(self, crawl: Crawl, found: Found, item: int) -> None:
        about = " " + found.about if found.about else ""
        line = (
            f"{item} {found.depth} {found.parent} {found.hops} {found.offsite} {crawl.number} "
            f"{LETTER[found.purpose]} {found.url}{about}\n"
        )
        self._journal.admit(crawl.number, line.encode(), 1)

    def _move_up(self, crawl: Crawl, found: Found) -> tuple[int, str, int] | None:
        """A seen URL found at a smaller depth: moved up if it is queued, returned for expansion if it was fetched."""
        assert crawl.depths is not None
        known = crawl.depths.get(crawl.seen.fingerprint(found.url))
        if known is None or known.depth <= found.depth:
            return None
        known.depth = found.depth
        self._write_line(crawl, found, known.item)
        if known.ended:
            return known.item, found.url, found.depth
        if not known.leased:
            # Its old entry stays in its queue; `Queues.pop` skips it.
            self._queues.enqueue(crawl, found, known.item)
        return None

    def _over_budget(self, crawl: Crawl, found: Found) -> bool:
        if found.purpose is Purpose.SITEMAP and crawl.limits.max_sitemaps is not None:
            return self._has_sitemaps(crawl, found.url, crawl.limits.max_sitemaps)
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return False
        key = self._queues.key_of(found.url)
        site = self._queues.sites.get(key) or self._queues.woken(key)
        lane = crawl.sites.get(site) if site is not None else None
        return lane is not None and _room(lane, cap) <= 0

    def _has_sitemaps(self, crawl: Crawl, url: str, most: int) -> bool:
        """Whether a site has reached its limit of sitemaps; if not, counts this one. Saved with its item."""
        key = self._queues.key_of(url)
        lane, name = self._queues.site(key).lane(crawl), f"{crawl.number} {key}"
        if lane.sitemaps_found is None:
            row = self._journal.latest("sitemaps", name)
            lane.sitemaps_found = row[1] if row is not None else 0
        if lane.sitemaps_found >= most:
            return True
        lane.sitemaps_found += 1
        self._journal.put("sitemaps", name, lane.sitemaps_found)
        return False


def _room(lane: Lane, cap: int) -> int:
    """How many more URLs the queue of a site takes."""
    return _OVERFLOW * cap + 1000 - lane.queued - lane.pages
