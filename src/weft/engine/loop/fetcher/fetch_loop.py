"""The loop: one thread that claims what is due, drives the transfers, handles their results and commits in groups.

No asyncio and no thread between the steps: a finished transfer is parsed and stored where it ends, so one core handles
more than a thousand pages a second. `drain` claims nothing more and waits for the transfers in flight; a process that
is killed instead loses nothing either.

A loop that is one of several (pods) does not end by itself, since others may still send it work: it reports that it is
idle, and waits for `drain`. Its work for the others between pages is done by its periodic tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft import urls
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.login.session import LOGIN_BYTES
from weft.engine.loop.commit import Committer
from weft.engine.loop.fetcher.flight import FlightControl
from weft.engine.loop.fetcher.results import ResultHandler
from weft.engine.loop.fetcher.revisits import look_up_earlier_visits
from weft.engine.loop.fetcher.robots import REASON_BY_ROBOTS_STATE, ROBOTS_BYTES
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.pressure import POLL_EVERY_S, Pressure, PressureLevel
from weft.engine.loop.parser.suspects import Suspects
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.stop import BLOCKING, BY_COMMAND, NOT_IN_LOG_STOPS, PAUSED, Stop
from weft.engine.transports.hands import Hands
from weft.engine.transports.transports import Transports
from weft.errors import DiskFull, ServerAway, ServerFull
from weft.fetch.contract import Done
from weft.frontier.contract import End, Frontier, FrontierStats, SlotRequest, TransferEnd
from weft.records import Lease, Purpose, Reason
from weft.telemetry import Log

READING_SLICE_S = 0.02
COMMIT_EVERY_S = 0.1
COMMIT_WHEN_IDLE_S = 0.02
PROGRESS_EVERY_S = 0.5
LONGEST_DRAIN_S = 10.0
LONGEST_IDLE_WAIT_S = 0.2
REPORT_IDLE_EVERY_S = 0.1
log = Log("weft.engine.loop.fetcher.fetch_loop")


_LIMIT_STOPS = (Stop.MAX_PAGES, Stop.BUDGET, Stop.MAX_DURATION, Stop.CALLBACK_ERRORS, Stop.MAX_ITEMS, Stop.CLOSED)


class UrlFeed(Protocol):
    """A source that adds URLs to the loop from outside, a few at each call."""

    is_over: bool

    def __call__(self) -> None: ...


class Loop:
    """Runs crawls until they end or `drain` is called."""

    def __init__(
        self,
        frontier: Frontier,
        transports: Transports,
        results: ResultHandler,
        committer: Committer,
        crawls: dict[int, RunningCrawl],
        progress: CrawlProgress,
        suspects: Suspects,
        metrics: EngineMetrics,
        *,
        owner: str,
        step: Callable[[str], None],
        flight: FlightControl,
        by_address: bool = False,
        periodic_tasks: Sequence[Callable[[float], None]] = (),
        why_over: Callable[[], Stop | None] = lambda: None,
        ends_alone: bool = True,
        pressure: Pressure | None = None,
        gather_s: float = 0.0,
        feed: UrlFeed | None = None,
        after_commit: Callable[[], None] = lambda: None,
        held_up: Callable[[float], str] = lambda _now: "",
        hands: Hands | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`why_over`: why nothing is left to do, called while nothing is in flight; an engine whose crawls come and go
        never returns a reason. `ends_alone`: the loop ends by itself then.
        """
        self._frontier = frontier
        self._transports = transports
        self._results = results
        self._round = results.round
        self._committer = committer
        self._crawls = crawls
        self._progress = progress
        self._suspects = suspects
        self._metrics = metrics
        self._owner = owner
        self._step = step
        self._flight = flight
        self._by_address = by_address
        self._periodic_tasks = periodic_tasks
        self._why_over = why_over
        self._ends_alone = ends_alone
        self._pressure = pressure
        self._gather_s = gather_s  # how long ended transfers are batched, where reporting them is a network round trip
        self._feed = feed
        self._clock = clock
        self._after_commit = after_commit
        self._held_up = held_up  # why no request can go out, though the crawl is not paused
        self._hands = hands  # workers on other machines, which some crawls may use
        self._leases: dict[int, Lease] = {}
        self._resolving: list[Lease] = []  # politeness by address: the DNS lookup of their host is not finished
        self._wanted_slots: list[SlotRequest] = []  # the address is known; a slot at it is requested with `claim_slots`
        self._drain_reason: Stop | None = None
        self._drain_until = 0.0
        self._polled_at = clock()
        self._next_commit = self._next_progress = self._next_idle = 0.0
        self._stats = FrontierStats(0, 0, 0, 0, 0, 0, 0)  # the last statistics that could be read
        self._blocked: DiskFull | ServerAway | ServerFull | None = None  # the condition that has paused it
        if (parsers := results.fileno()) is not None:
            transports.watch(parsers, results.poll)

    @property
    def blocked(self) -> DiskFull | ServerAway | ServerFull | None:
        """What the loop waits for: a full disk, a server that is away."""
        return self._blocked

    @property
    def touched(self) -> set[int]:
        """Crawls of which something has ended, until the caller has checked them and clears it."""
        return self._round.touched

    def leases_of(self, crawl: int) -> list[Lease]:
        """The leases of a crawl that are in flight."""
        return [lease for lease in self._leases.values() if lease.crawl == crawl]

    def flush(self) -> bool:
        """Reports results to the frontier and commits; False while the loop is blocked."""
        self._flush_round()
        if self._blocked is not None:
            return False
        self.record_rejections()
        return self._try_commit()

    def drain(self, reason: Stop = Stop.INTERRUPTED) -> None:
        """Claims nothing more, and ends when all transfers in flight have ended or DRAIN_S seconds are over."""
        if self._drain_reason is None:
            self._drain_reason = reason
            self._drain_until = self._clock() + (0.0 if reason is Stop.CANCELLED else LONGEST_DRAIN_S)

    def run(self) -> Stop:
        """Runs until nothing is left, a limit is reached or `drain` was called."""
        while True:
            now = self._clock()
            self._suspects.send_heartbeat()
            if self._drain_reason is None and self._blocked is None:
                self._claim_and_start()
            self._run_periodic_tasks(now)
            if self._is_fed:
                self._read_feed()
            ended = self._stop_reason(now)
            if ended is not None:
                if self._ends_alone or self._drain_reason is not None:
                    break
                self._report_idle(ended)
            self._work_once(now)
        self._flush_round()
        self.record_rejections()
        if not self._try_commit(wait=True) and self._drain_reason is not None:
            ended = self._drain_reason
        if ended in _LIMIT_STOPS:
            log.info("limit reached", reason=ended)
        return ended

    def _work_once(self, now: float) -> None:
        wait_s = self._longest_wait_s(now)
        self._results.note_busy_time(self._clock() - self._polled_at)
        results = self._transports.poll(min(0.02, wait_s) if self._resolving else wait_s)
        self._polled_at = self._clock()
        if results and self._gather_s:
            self._gather_results(results)
        if self._resolving:
            self._start_resolved_requests()
        if results:
            self._handle_results(results)
        if self._results.unread:
            self._results.poll()
        if self._results.is_readable:
            self._results.read_answers(READING_SLICE_S)
        self._flush_round()
        if self._blocked is None:
            self.record_rejections()
        now = self._clock()
        if now >= self._next_commit or (not results and now >= self._next_commit - COMMIT_EVERY_S + COMMIT_WHEN_IDLE_S):
            self._try_commit()
        if now >= self._next_progress:
            self._report_progress("draining" if self._drain_reason else "running")

    def _handle_results(self, results: Done) -> None:
        ended = []
        for tag, result in results:
            assert isinstance(tag, Lease)
            if self._leases.get(tag.item) is tag:  # else the lease was over, and the item was claimed again
                del self._leases[tag.item]
            self._step("fetched")
            if result.error == "aborted" or tag.crawl not in self._crawls:
                # The transfer was aborted, or its crawl has ended. The request was sent all the same, so the site's
                # delay starts here.
                self._round.add_cooled(TransferEnd(tag, result.site_free_at, outcome="aborted"))
                if not result.was_sent:
                    self._round.mark_unsent(tag)
                if result.rendered is not None:
                    self._round.add_requested_parts(tag, result.rendered.parts)
                self._round.end_lease(tag, End.RELEASE if tag.crawl in self._crawls else End.OTHER)
            else:
                ended.append((tag, result))
        self._results.handle_ended(ended)

    def _gather_results(self, results: Done) -> None:
        until = self._clock() + self._gather_s
        while self._transports.in_flight and (left_s := until - self._clock()) > 0:
            results += self._transports.poll(left_s)

    @property
    def _is_fed(self) -> bool:
        """Whether its feed may still add URLs."""
        return (
            self._feed is not None and not self._feed.is_over and self._drain_reason is None and self._blocked is None
        )

    def _read_feed(self) -> None:
        assert self._feed is not None
        try:
            self._feed()
        except BLOCKING as why:
            self._pause_until_unblocked(why)

    def _run_periodic_tasks(self, now: float) -> None:
        try:
            for periodic_task in self._periodic_tasks:
                periodic_task(now)
        except BLOCKING as why:
            self._pause_until_unblocked(why)

    def record_rejections(self) -> None:
        """Stores a row for each URL that the frontier refused, or removed from its queues."""
        try:
            rejected = self._frontier.rejected.rejections()
        except BLOCKING as why:
            self._pause_until_unblocked(why)
            return
        for rejection in rejected:
            self._results.record_rejection(rejection)
            self._round.touched.add(rejection.crawl)
        self._committer.register_rejected_items(self._results.ended_rejections())

    def _flush_round(self) -> None:
        """Reports results to the frontier; what fails now is reported again before the next commit."""
        if self._blocked is None:
            try:
                self._round.flush()
            except BLOCKING as why:
                self._pause_until_unblocked(why)

    def _claim_and_start(self) -> None:
        """Starts as many transfers as there is room for; a refusal costs no request, so another lease is claimed in its
        stead.
        """
        while room := self._free_transfers():
            try:
                route = self._hands.router if self._hands is not None else None
                leases = self._frontier.leases.claim(self._owner, room, self._flight.slots, route)
            except BLOCKING as why:
                self._pause_until_unblocked(why)
                return
            if not leases:
                return
            self._step("claimed")
            wall = time.time()
            look_up_earlier_visits(self._crawls, leases)
            for lease in leases:
                self._begin_transfer(lease, wall)
            self._send_granted_requests(wall)
            self._flush_round()
            if self._blocked is not None:
                return

    def _begin_transfer(self, lease: Lease, wall: float, address: str | None = None) -> None:
        """Starts a transfer; the lease is released if data that it needs cannot be read now.

        `address`: the server's address, once it is resolved.
        """
        try:
            if address is None:
                self._start_lease(lease, wall)
            else:
                self._submit_request(lease, wall, address)
        except BLOCKING as why:
            self._leases.pop(lease.item, None)
            self._round.end_lease(lease, End.RELEASE)
            self._pause_until_unblocked(why)

    def _free_transfers(self) -> int:
        """How many transfers may be started now."""
        if self._results.is_full:
            return 0
        free = min(self._transports.free_slots - len(self._resolving), self._flight.room(len(self._leases)))
        if self._pressure is None:
            return free
        try:
            share = self._pressure.transfer_share(self._clock())
        except BLOCKING as why:
            self._pause_until_unblocked(why)
            return 0
        return free if share >= 1.0 else max(0, int((free + len(self._leases)) * share) - len(self._leases))

    def _start_lease(self, lease: Lease, now: float) -> None:
        crawl = self._crawls[lease.crawl]
        if crawl.has_been_edited and crawl.excludes(lease):
            return
        if lease.purpose is not Purpose.ROBOTS and not self._is_allowed_by_robots(lease, crawl):
            return
        if lease.purpose is Purpose.LOGIN and not (crawl.session is not None and crawl.session.is_current(lease)):
            self._round.end_lease(lease, End.OTHER)  # of a login that has ended meanwhile
            return
        self._leases[lease.item] = lease
        if self._by_address:
            self._find_address(lease, now)
        else:
            self._submit_request(lease, now)

    def _submit_request(self, lease: Lease, now: float, address: str | None = None) -> None:
        crawl = self._crawls[lease.crawl]
        headers = crawl.headers(lease, now)
        spec = crawl.spider.spec_of(lease) if crawl.spider is not None and lease.request else None
        asked: dict[str, Any] = {} if spec is None or spec.is_plain else {"method": spec.method, "body": spec.body}
        if spec is not None and spec.timeout_s:
            asked["timeout_s"] = spec.timeout_s
        if spec is not None and not spec.idempotent:
            self._mark_as_sent(lease)
        is_robots = lease.purpose is Purpose.ROBOTS
        keep_bytes = ROBOTS_BYTES if is_robots else 0
        is_acted = False  # whether a browser logs in
        if lease.purpose is Purpose.LOGIN and crawl.session is not None:
            asked, keep_bytes = crawl.session.request_fields(), LOGIN_BYTES
            is_acted = bool(crawl.session.login.actions)
        transport = crawl.transport if spec is None and not is_acted else crawl.transport_of(spec, is_acted)
        transport.submit(
            lease.url,
            headers,
            lease,
            keep_bytes=keep_bytes,
            until=lease.deadline,  # another process may have leased the site by then
            address=address,
            filtered=is_acted or lease.purpose is Purpose.PAGE,
            is_first=is_robots and not lease.attempt,  # a robots.txt comes before all else of a site
            **asked,
        )

    def _mark_as_sent(self, lease: Lease) -> None:
        """Records on the disk, before the first byte, that this request is sent: it must not be sent again, whatever
        happens.
        """
        try:
            self._frontier.leases.sending([lease])
        except BLOCKING:
            self._round.mark_unsent(lease)
            raise
        self._step("sending")

    def _find_address(self, lease: Lease, now: float) -> None:
        """Politeness by address: the request waits for the DNS lookup, then for a slot at the address."""
        crawl = self._crawls[lease.crawl]
        address = crawl.transport.address_of(urls.host_of(lease.url))
        if address is None:
            self._resolving.append(lease)
        elif not address:
            self._begin_transfer(lease, now, address)  # it ends there, with the reason
        else:
            asks = 0.0
            if lease.purpose is not Purpose.ROBOTS:
                origin = urls.origin_of(lease.url)
                asks = crawl.robots_book.crawl_delay_s(origin, crawl.robots_book.rules_of_origin(origin)[1]) or 0.0
            self._wanted_slots.append(SlotRequest(lease, address, asks))

    def _send_granted_requests(self, now: float) -> None:
        """Sends the requests that were granted a slot at their address; the frontier has released the other leases."""
        if not self._wanted_slots:
            return
        wanted, self._wanted_slots = self._wanted_slots, []
        try:
            granted = self._frontier.leases.claim_slots(wanted)
        except BLOCKING as why:
            for one in wanted:
                del self._leases[one.lease.item]
                self._round.end_lease(one.lease, End.RELEASE)
            self._pause_until_unblocked(why)
            return
        for one, has_place in zip(wanted, granted, strict=True):
            if has_place:
                self._begin_transfer(one.lease, now, one.address)
            else:
                del self._leases[one.lease.item]

    def _start_resolved_requests(self) -> None:
        waiting, self._resolving = self._resolving, []
        now = time.time()
        for lease in waiting:
            if lease.crawl in self._crawls:
                self._find_address(lease, now)
            else:
                del self._leases[lease.item]
                self._round.end_lease(lease, End.OTHER)
        self._send_granted_requests(now)
        self._flush_round()

    def _is_allowed_by_robots(self, lease: Lease, crawl: RunningCrawl) -> bool:
        origin = lease.url[: lease.url.index("/", 8)]
        book = crawl.robots_book
        record, robots = book.rules_of_origin(origin)
        if (reason := REASON_BY_ROBOTS_STATE.get(record.status)) is not None:
            self._results.refuse_lease(lease, reason, record.detail)
            return False
        if not crawl.disregards_robots(lease) and (rule := book.rule_against(lease.url, robots)):
            self._results.refuse_lease(lease, Reason.ROBOTS, rule)
            return False
        if lease.purpose is Purpose.PAGE and origin not in crawl.known_origins:
            self._round.add_robots_and_sitemaps(crawl, crawl.sitemaps_of_origin(lease.depth, origin, robots.sitemaps))
        return True

    def _longest_wait_s(self, now: float) -> float:
        """How long the loop may wait for transfers before other work is due."""
        if self._results.is_readable or self._is_fed:
            return 0.0
        wake = min(self._next_commit, self._next_progress, now + LONGEST_IDLE_WAIT_S)
        if self._pressure is not None and self._pressure.level is PressureLevel.HARD:
            return min(max(0.0, wake - now), POLL_EVERY_S)
        if self._drain_reason is None and self._flight.room(len(self._leases)) and self._blocked is None:
            due = self._frontier.leases.next_due()
            if due is not None:
                wake = min(wake, due)
        return max(0.0, wake - now)

    def _stop_reason(self, now: float) -> Stop | None:
        """Why the loop must end, or None."""
        if self._drain_reason is not None:
            at_home = not self._leases and not self._results.unread
            return self._drain_reason if at_home or now >= self._drain_until else None
        if self._leases or self._results.unread or self._blocked is not None:
            return None
        try:
            over = self._why_over()
        except BLOCKING as why:
            self._pause_until_unblocked(why)
            return None
        if over is not None and self._has_unreported_rejections():
            return None
        return None if self._is_fed and over is not Stop.MAX_PAGES else over

    def _has_unreported_rejections(self) -> bool:
        """Whether the user's code still has to be called for rejections, and may request more then."""
        self.record_rejections()
        return self._results.unread > 0

    def _report_idle(self, why: Stop) -> None:
        """Reports to the orchestrator that nothing is left here; called only after a commit."""
        now = self._clock()
        if now >= self._next_idle and self._try_commit():
            self._next_idle = now + REPORT_IDLE_EVERY_S
            idle = Stop.DONE if why is Stop.MAX_PAGES and not self._frontier.status.stats().queued else why
            self._report_progress("running", idle=idle)

    def _try_commit(self, *, wait: bool = False) -> bool:
        """Commits; a full disk pauses the crawl until there is room again, an unreachable server until it is back.

        With `wait` it returns when that is over, or when the crawl must end in any case.
        """
        while True:
            try:
                self._round.flush()
                self._committer.commit()
            except BLOCKING as why:
                self._pause_until_unblocked(why)
                if wait:
                    self._run_periodic_tasks(self._clock())  # one of them may request that the process ends in any case
                if not wait or self._drain_reason in NOT_IN_LOG_STOPS:
                    return False
                self._suspects.send_heartbeat()
                time.sleep(0.5)
                continue
            self._round.note_commit()
            self._after_commit()
            if self._blocked is not None:
                log.info("going on", after=self._blocked)
                self._blocked = None
                self._report_progress("running")
            self._next_commit = self._clock() + COMMIT_EVERY_S
            return True

    def _waiting_reason(self, stats: FrontierStats) -> tuple[str, float | None]:
        """Why the only crawl here requests nothing, and until when (wall clock)."""
        if self._blocked is not None or self._leases or not stats.queued or len(self._crawls) != 1:
            return "", None
        try:
            waiting = self._frontier.status.waits_for(next(iter(self._crawls)))
        except BLOCKING:
            return "", None  # the next call notices it
        if waiting is None:
            return "", None
        return waiting.cause, None if waiting.until is None else time.time() + waiting.until - self._frontier.now()

    def _pause_reason(self) -> str:
        """Why the crawl is paused, if there is only one; several crawls each have a state of their own."""
        only = next(iter(self._crawls.values())) if len(self._crawls) == 1 else None
        if only is not None:
            self._progress.status.self_paused_at = only.self_paused_at
        return (only.pause_reason or BY_COMMAND) if only is not None and only.is_paused else ""

    def _pause_until_unblocked(self, why: DiskFull | ServerAway | ServerFull) -> None:
        if self._blocked is None:
            log.error("paused", why=why)
        self._blocked = why
        self._next_commit = self._clock() + 0.5
        self._report_progress("paused", str(why))

    def _report_progress(self, state: str, note: str = "", idle: Stop | None = None) -> None:
        status = self._progress.status
        try:
            self._stats = stats = self._frontier.status.stats()
        except BLOCKING as away:
            self._blocked, stats = self._blocked or away, self._stats
        self._flight.poll(self._clock(), stats.due, len(self._leases))
        status.idle, status.reported_at = str(idle or ""), time.monotonic()
        self._progress.note_frontier(stats, len(self._leases))
        status.waiting_for, status.waiting_until = self._waiting_reason(stats)
        if self._blocked is not None:
            state, note = "paused", str(self._blocked)
        elif state == "running" and (why := self._pause_reason()):
            state, note = PAUSED, why
        elif state == "running":
            note = self._held_up(self._clock())
        self._progress.write(state, note)
        if self._blocked is None:
            if self._pressure is not None:
                self._metrics.record_back_pressure(self._pressure.events)
            self._metrics.save_if_due(self._progress, stats, len(self._leases))
        self._next_progress = self._clock() + PROGRESS_EVERY_S
