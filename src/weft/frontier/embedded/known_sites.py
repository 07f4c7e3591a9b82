"""The facts that an embedded frontier keeps of sites: robots.txt files, cookies, and requested waits.

What a site asked for (a Crawl-delay, a slow-down, an open breaker) is in the journal before the call ends in which it
was learnt: a kill must not make a crawl impolite. Each site's cookies of a crawl are committed together with the links
of the answer that set them. A cookie wall sends a crawler back to where it came from; a crawler that lost the cookie at
every kill would in the end drop the page for too many redirects.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from weft.errors import DiskFull
from weft.frontier.contract import Item, RobotsRecord
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.embedded.robots_files import RobotsFiles
from weft.frontier.politeness import UNREACHABLE_S, authority_of, breaker_name
from weft.frontier.scheduling.sites import Site, SiteQueue
from weft.frontier.seen.seen_set import SeenSet
from weft.records import Lease, Reason, RenderedPart


class EmbeddedSites:
    """See the contract."""

    def __init__(self, base: FrontierResources) -> None:
        self._base = base
        self._journal, self._queues, self._pods = base.journal, base.queues, base.pods
        self.robots_files = RobotsFiles(base.journal, base.wall, lambda: base.requests.deleted_until)
        self.robots = self.robots_files.get
        self.key_of = base.queues.key_of
        # The cookies of earlier processes are handed out once, with a site's first lease.
        self._has_earlier_cookies = base.journal.has_rows("cookies")
        self._given_cookies = SeenSet(0)  # or replaced, by crawl and site
        self._has_uncommitted = False  # in the journal, to be committed
        self._longest_saved_s = 0.0  # the journal's longest delay is this one at least

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Records it here, or sends it to the pod that owns the origin."""
        if self._pods.owns(origin + "/"):
            self.learn_robots(origin, record, crawl_delay_s)
        else:
            self._pods.send_robots(origin, record, crawl_delay_s)

    def learn_robots(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Records the robots.txt of an origin of this pod."""
        now = self._base.now()
        self.robots_files.save_record(origin, record)
        self._base.requests.log_robots(now, origin, record)
        site = self._queues.site(self._queues.key_about(origin))
        if crawl_delay_s and crawl_delay_s > site.clock.crawl_delay_s:
            site.clock.crawl_delay_s = crawl_delay_s
            site.clock.forced_single = True
            # The request for robots.txt has already ended, and set `due` with the shorter delay.
            site.clock.due = max(site.clock.due, now + crawl_delay_s)
            self.save(site)
            self.commit_saved()
        self._queues.schedule(site)

    def ask_robots_again(self, crawl: int, origin: str) -> None:
        """A robots.txt that could not be fetched is fetched once more, before the next page of its origin."""
        self.robots_files.expire_failed(self._queues.crawls[crawl].trust + origin)

    def held(self, crawl: int, url: str) -> str:
        """Judged by what is in memory: a site that was not asked recently is only held by an open breaker."""
        tenant, site, now = self._queues.crawls[crawl], self._queues.sites.get(self.key_of(url)), self._base.now()
        if site is None:
            return "breaker" if authority_of(url[: url.index("/", 8)]) in self._queues.clocks.open_breakers() else ""
        breaker = site.clock.breaker(breaker_name(tenant.trust, url))
        if breaker is not None and breaker.open_until > now:
            return "breaker"
        return "retry-after" if site.clock.due > now + site.clock.delay_s(tenant.section) else ""

    def asked(self, crawl: int, parts: Sequence[RenderedPart]) -> None:
        """Recorded here, and on the machine's clock, which other pods and processes check."""
        last: dict[str, float] = {}
        for part in parts:
            key = self.key_of(part.url)
            self._base.requests.log_part(crawl, key, part, self._base.now())
            last[key] = at = max(part.ended, last.get(key, part.ended))
            if self._pods.owns(part.url):
                clock = self._queues.site(key).clock
                clock.last_start, clock.last_end = max(clock.last_start, at), max(clock.last_end, at)
        for key in last:
            if (site := self._queues.sites.get(key)) is not None:
                self._queues.schedule(site)
        self._base.machine.asked(last.items())

    def cookies_of(self, lease: Lease) -> tuple[int, bytes] | None:
        """The copy of an earlier process, if it has not been read yet."""
        if not self._has_earlier_cookies or not self._given_cookies.add(key := f"{lease.crawl} {lease.key}"):
            return None
        row = self._journal.row("cookies", key)
        return None if row is None else (1, row[2])

    def keep_cookies(self, crawl: int, key: str, data: bytes) -> int:
        """Durable with the next commit, like the links of the answer that set them."""
        self._given_cookies.add(f"{crawl} {key}")
        self._journal.put("cookies", f"{crawl} {key}", crawl, data)
        return 1

    def open_breakers(self) -> list[tuple[str, float]]:
        """Sites that are not asked now because they failed, with the end of that on the wall clock."""
        return sorted(self._queues.clocks.open_breakers().items())

    # ── for the other parts ────────────────────────────────────────────────────────────────────────────────────────

    def save(self, site: Site) -> None:
        """Saves what a site asked for; `commit_saved` ends the call in which this happened."""
        self._queues.clocks.save_site(site)
        delay_s = site.clock.delay_s(self._base.section)
        if delay_s > self._longest_saved_s:
            self._longest_saved_s = max(delay_s, self._journal.meta("longest_delay") or 0.0)
            self._journal.put_meta("longest_delay", self._longest_saved_s)
        self._has_uncommitted = True

    def commit_saved(self) -> None:
        """Commits what sites have asked for: it survives a kill from here on."""
        if self._has_uncommitted:
            self._has_uncommitted = False
            with suppress(DiskFull):  # everything stays buffered: the next regular commit raises
                self._journal.commit()

    def release_robots(self, queue: SiteQueue) -> None:
        """Releases a robots.txt that this crawl will not request, so that other crawls do not wait for it."""
        released, queue.robots = queue.robots or (), None
        self._queues.queued -= len(released)
        queue.crawl.queued -= len(released)
        queue.queued -= len(released)
        for _, _, item in released:
            self.release_robots_fetch(item.about, queue.site)

    def release_robots_fetch(self, about: str, here: Site | None = None) -> None:
        """A robots.txt will not come from the process that was to request it: a process that waits for it may. A
        redirect may have led from its site to another; `here`: the site that is scheduled in any case. Another pod that
        waits is notified by an expired record.
        """
        if not self._pods.owns(about + "/"):
            self.robots_known(about, RobotsRecord("unreachable", b"", 0.0, "let go"), None)
            return
        self.robots_files.being_fetched.discard(about)
        site = self._queues.sites.get(self._queues.key_about(about))
        if site is not None and site is not here:
            self._queues.schedule(site)

    def reject_robots(self, item: Item, queue: SiteQueue, reason: Reason, origin: str) -> None:
        """A robots.txt is not requested. If a redirect has led to an origin that is given up, the robots.txt is
        unavailable: another attempt would be redirected there again. Another pod that waits for it is notified in any
        case.
        """
        about = item.about.rpartition(" ")[2]
        is_given_up_too = about == origin if origin else self._queues.key_about(item.about) == queue.key
        if is_given_up_too and self._pods.owns(item.about + "/"):
            self.release_robots_fetch(item.about)
        else:
            until = self._base.wall() + UNREACHABLE_S
            record = RobotsRecord("unreachable", b"", until, f"{reason} at {item.url}")
            self.robots_known(item.about, record, None)

    def forget_idle_sites(self, now: float) -> None:
        """Forgets idle sites and swaps others out; a robots.txt that a swapped-out site waits for is requested again
        when it is swapped in.
        """
        idle = [queue for site in self._queues.forget_idle(now) for queue in site.all_queues()]
        self._queues.swapping.clear_some_sites(now)
        for queue in idle + self._queues.swapping.swap_out(now, self.release_robots):
            for origin in queue.origins:
                self.robots_files.forget(queue.crawl.trust + origin)
