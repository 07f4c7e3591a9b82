"""The links that answers led to, kept where a depth limit may need them again.

A page found by a shorter path than the one it was fetched by is nearer than recorded, and so is everything behind it:
its links, cut off or queued as too deep, are admitted again. They are read from memory until the page is in the store,
and from there later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.verdict import REDIRECTS
from weft.engine.parsing.parsers import CRASH, TIMEOUT
from weft.errors import ServerAway
from weft.extract.page import extract
from weft.extract.robots_meta import robots_tag
from weft.fetch.decode import decode
from weft.frontier.contract import Frontier
from weft.records import Lease, Purpose, Reason
from weft.store.errors import UnreadableData
from weft.store.pages import PageStore
from weft.telemetry import Log

log = Log("weft.engine.loop.parser.discovered_links")


class _LinksOfAnswer:
    """The links of an answer, or its redirect target."""

    __slots__ = ("depth", "is_not_stored", "links", "redirect")

    def __init__(self, links: list[str], redirect: str = "", depth: int = 0) -> None:
        self.links = links
        self.redirect = redirect
        self.depth = depth  # at which they were admitted
        self.is_not_stored = False  # the answer will not be stored


class DiscoveredLinks:
    """The discovered links of crawls that have a depth limit."""

    def __init__(self, frontier: Frontier, store: PageStore) -> None:
        self._frontier = frontier
        self._store = store
        self._discovered_links: dict[int, _LinksOfAnswer] = {}  # by item
        self._until_commit: list[
            tuple[RunningCrawl, tuple[int, str, int]]
        ] = []  # their answers are not in the store yet

    def __len__(self) -> int:
        return len(self._discovered_links) + len(self._until_commit)

    def record_links(self, lease: Lease, links: list[str], redirect: str = "") -> Lease:
        """Records the discovered links of an answer; returns the lease with the smallest depth known for its URL."""
        try:
            depth = self._frontier.leases.depth_of(lease)
        except ServerAway:
            depth = lease.depth  # its depth is checked again when the item has ended
        self._discovered_links[lease.item] = _LinksOfAnswer(links, redirect, depth)
        return lease if depth == lease.depth else msgspec.structs.replace(lease, depth=depth)

    def keep_in_memory(self, item: int) -> None:
        """Records that the store will not have this answer."""
        if item in self._discovered_links:
            self._discovered_links[item].is_not_stored = True

    def note_commit(self) -> None:
        """Called after a commit: answers so far can be read from the store; those that are not stored remain in
        memory.
        """
        self._discovered_links = {item: lead for item, lead in self._discovered_links.items() if lead.is_not_stored}
        later, self._until_commit = self._until_commit, []
        for crawl, known in later:
            self.expand_readable(crawl, [known])

    def expand_nearer(self, crawls: Mapping[int, RunningCrawl], leases: Iterable[Lease]) -> None:
        """Expands those of the ended items for which a shorter path was found while they were read."""
        for lease in leases:
            lead = self._discovered_links.get(lease.item)
            if lead is not None and (depth := self._frontier.leases.depth_of(lease)) < lead.depth:
                self.expand_readable(crawls[lease.crawl], [(lease.item, lease.url, depth)])

    def expand_readable(
        self, crawl: RunningCrawl, known: Iterable[tuple[int, str, int]], hops: Mapping[int, int] | None = None
    ) -> None:
        """Calls `expand` and tolerates a damaged stored page: its links are left as they were."""
        try:
            self.expand(crawl, known, hops)
        except UnreadableData as error:
            log.error("a stored page cannot be read: its links are not let in again", error=error)

    def expand(
        self, crawl: RunningCrawl, known: Iterable[tuple[int, str, int]], hops: Mapping[int, int] | None = None
    ) -> None:
        """Admits again the links of pages that were fetched at a greater depth than the one now known.

        `hops`: how many redirects had led to some of them. Unreadable, after all others are expanded: a stored page is
        damaged.
        """
        waiting = list(known)
        hops = hops or {}
        damaged: UnreadableData | None = None
        while waiting:
            item, url, depth = waiting.pop()
            try:
                lead = self._discovered_links.get(item) or self._links_of_stored_answer(url, crawl)
            except UnreadableData as error:
                damaged = error
                continue
            if lead is None:
                # Another process has read the page, and is about to commit it.
                self._until_commit.append((crawl, (item, url, depth)))
                continue
            lead.depth = depth
            near = Lease(
                item, crawl.number, url, "", depth, 0, hops.get(item, 0), Purpose.PAGE, "", 0, 0, "", 0, 0.0, 0.0
            )
            waiting += self._admit_links(crawl, near, lead)
        if damaged is not None:
            raise damaged

    def _admit_links(self, crawl: RunningCrawl, near: Lease, lead: _LinksOfAnswer) -> Iterable[tuple[int, str, int]]:
        """Admits the links of one page; returns what must be expanded in turn."""
        if lead.redirect:
            if near.hops >= crawl.fetch.max_redirects:
                return ()
            target = crawl.judge_redirect(near, lead.redirect)
            if isinstance(target, Reason):
                return ()
            count, again = 1, self._frontier.queue.admit(crawl.number, [target])
        elif crawl.scope.seeded_urls_only:
            return ()
        else:
            links = crawl.admit_links(lead.links, near)
            count, again = sum(len(some.urls) for some in links), self._frontier.queue.admit_links(crawl.number, links)
        crawl.count_not_admitted(count, again)
        return again.expand

    def _links_of_stored_answer(self, url: str, crawl: RunningCrawl) -> _LinksOfAnswer | None:
        """The discovered links of a stored answer; None if there is none."""
        stored = self._store.latest_page(url, crawl.number)
        if stored is None:
            return None
        http = stored.http
        if http is None:
            return _LinksOfAnswer([])
        if stored.row.status in REDIRECTS:
            return _LinksOfAnswer([], stored.row.final_url)
        if not 200 <= stored.row.status < 300 or stored.row.error in (CRASH, TIMEOUT):
            return _LinksOfAnswer([])
        encoding = http.content_encoding
        body = decode(http.body, encoding, crawl.fetch.max_body_bytes).body if encoding else http.body
        page = extract(body, url, http.get("content-type"))
        tags = [value for name, value in http.headers if name.lower() == "x-robots-tag"]
        if robots_tag(tags, crawl.agent)[1]:
            return _LinksOfAnswer([])
        return _LinksOfAnswer(crawl.rules.candidates(page.base, page.hrefs, page.charset))
