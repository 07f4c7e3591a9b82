"""One crawl of an engine that has many: its record, its clocks, its counts, and what an edit changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from weft import urls
from weft.config import Config
from weft.engine.admission.rules import AdmissionRules
from weft.engine.crawls.memory import PAGE_BYTES, most_in_flight_within
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.crawls.settings_record import SettingsChange
from weft.engine.loop.fetcher.robots import RobotsBook
from weft.engine.loop.progress import CrawlProgress
from weft.engine.model import WAITING_FOR_SEEDS, CrawlSnapshot, CrawlState, EndReason, end_name
from weft.engine.parsing.extraction import extraction_of
from weft.fetch.contract import Transport
from weft.frontier.contract import CrawlLimits
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Reason

RATE_WINDOW = 10  # samples, half a second apart
MOST_REFUSED_SEEDS = 10_000  # that are remembered
MOST_TRAPPED_URLS = 1_000  # links left out as traps that are remembered: an endless space has any number of them
_REASONS = frozenset(map(str, Reason))


class TenantRecord(Struct, kw_only=True):
    """What the index keeps of a crawl. Counts are those of the last write."""

    settings: dict[str, Any]  # given to `open`, and the defaults derived from them
    defaults: str = ""  # digest of the other defaults that were in force (recorded.py)
    changes: list[SettingsChange] = []  # of `settings`, by edits
    trust: str = ""  # trust settings that its robots.txt records depend on (see `settings.trust_of`), for reports
    opened_with: dict[str, Any] = {}  # the arguments of `open` before any edit: a repeated `open` is recognised by them
    seeds_hash: int = 0  # of the seeds of the last `open`
    state: CrawlState = CrawlState.OPEN
    is_held: bool = False  # see `CrawlSnapshot.is_held`
    reason: EndReason | None = None
    pause_reason: str = ""  # see `Standing.pause_reason`
    self_paused_at: float = msgspec.field(default=0.0, name="gave_up_at")
    roots: list[str] = []  # the seeds' hosts, as far as scope and sitemaps depend on them
    origins: list[str] = []  # of its first seeds: credentials are sent there
    has_opened: bool = False  # all of its first seeds have come: later ones get no credentials
    weight: float = 1.0
    deadline: float | None = None
    in_flight: int | None = None
    memory_bytes: int | None = None
    opened_at: float = 0.0
    ended_at: float | None = None
    running_s: float = 0.0
    requests: int = 0
    retries: int = 0
    refused: dict[str, int] = {}
    last: CrawlSnapshot | None = None  # of a crawl that has ended
    has_been_edited: bool = False
    keep_open: bool = False  # opened to wait for more seeds until `close_seeds`
    seeds_closed: bool = False
    expects_more: bool = False  # a long list of seeds comes in several calls, and the last has not come
    revisits: bool = False  # results of earlier visits were given with some of its URLs
    refused_seeds: dict[str, str] = {}  # seeds that were rejected, by reason: they have no rows
    trapped: set[str] = set()  # links that were left out as traps, as far as they are remembered: they have no rows

    @property
    def revision(self) -> int:
        """The number of the settings in force; `weft audit` judges requests by it."""
        return len(self.changes) + 1


class Tenant(RunningCrawl):
    """A crawl of an engine that has not ended."""

    is_only_crawl = False

    def __init__(
        self,
        name: str,
        number: int,
        record: TenantRecord,
        config: Config,
        frontier: EmbeddedFrontier,
        book: RobotsBook,
        transport: Transport,
        *,
        this_year: int,
    ) -> None:
        rules = AdmissionRules(
            config.scope, record.roots, this_year=this_year, extensions=frontier.notes.scope_extensions(number)
        )
        super().__init__(
            number, rules, config.scope, config.fetch, frontier, CrawlProgress(None, 0), record.roots,
            politeness=config.politeness, book=book, transport=transport, extraction=extraction_of(config.extract),
            origins=record.origins,
        )  # fmt: skip
        self.name = name
        self.record = record
        self.config = config
        self.has_been_edited = record.has_been_edited
        self._embedded = frontier
        self.progress.status.requests, self.progress.status.retries = record.requests, record.retries
        self.progress.refused.update(record.refused)
        self._running_since: float | None = None  # when its running time began to count
        self._samples: list[tuple[float, int]] = []
        self._url_bytes = 0  # of a crawl with a memory limit, as of the last check
        self._committed_rows: Counter[tuple[int, str]] = Counter()  # of `progress.kinds`: the part that no kill undoes
        self._counts_added: CrawlProgress | None = None  # its counts when they were last added to the engine's

    def ask_robots_again(self, seeds: Iterable[Found], wall: float) -> None:
        """Requests a site's robots.txt once more when a user gives a seed there and the last attempt failed: the site
        may have recovered, and the failure of an earlier crawl must not decide this one. The request keeps the site's
        delay.
        """
        for origin in {urls.origin_of(seed.url) for seed in seeds}:
            if self.robots_book.may_be_reachable_again(origin, wall):
                self._embedded.sites.ask_robots_again(self.number, origin)

    def edit(self, config: Config, limits: CrawlLimits, weight: float = 1.0) -> int:
        """Applies an edit as for any crawl, and records it."""
        back = super().edit(config, limits, weight)
        self.config, self.record.weight, self.record.has_been_edited = config, weight, True
        return back

    def _is_full(self, pages: int) -> bool:
        most = self.config.limits.max_pages
        return most is not None and pages >= most

    def awaits_seeds(self) -> bool:
        """Whether it must wait for more seeds instead of ending when nothing is left."""
        record = self.record
        return record.expects_more or (record.keep_open and not record.seeds_closed)

    def _is_idle(self) -> bool:
        """Whether it runs with nothing left to do, and everything it has done is committed."""
        return (
            self.record.state is CrawlState.RUNNING
            and self._stop_without_work() is not None
            and not self._count_uncommitted()
        )

    def keep_within_memory(self) -> bool:
        """Allows as many pages in flight as its memory has room for besides its URLs; False if there is no room for
        one.
        """
        record = self.record
        if record.memory_bytes is None:
            return True
        self._url_bytes = self._embedded.status.url_bytes(self.number)
        flight = most_in_flight_within(record.memory_bytes, record.in_flight, self._url_bytes)
        self._embedded.permits.limit_flight(self.number, flight)
        return flight != 0

    # ── its clock ──────────────────────────────────────────────────────────────────────────────────────────────────

    def clock_starts(self) -> None:
        """Starts its running time."""
        if self._running_since is None:
            self._running_since = time.monotonic()

    def clock_stops(self) -> None:
        """Stops its running time."""
        self.record.running_s, self._running_since = self.running_s, None

    @property
    def running_s(self) -> float:
        """How long it has run, without pauses."""
        return self.record.running_s + (0.0 if self._running_since is None else time.monotonic() - self._running_since)

    # ── its status ─────────────────────────────────────────────────────────────────────────────────────────────────

    def encoded_record(self) -> bytes:
        """Its encoded record, with the current counts."""
        record, progress = self.record, self.progress
        record.requests, record.retries = progress.status.requests, progress.status.retries
        record.refused = dict(progress.refused)
        if self._running_since is not None:
            record.running_s, self._running_since = self.running_s, time.monotonic()
        return msgspec.msgpack.encode(record)

    def add_to(self, total: CrawlProgress) -> None:
        """Adds what it has counted since the last call to the totals of its engine."""
        now, before = self.progress, self._counts_added or CrawlProgress(None, 0)
        for name in (
            "pages",
            "requests",
            "body_bytes",
            "retries",
            "redirects",
            "shells",
            "rendered",
            "rendering_s",
            "parts",
        ):
            change = getattr(now.status, name) - getattr(before.status, name)
            setattr(total.status, name, getattr(total.status, name) + change)
        for name in ("errors", "refused", "statuses"):
            counts: Counter[str] = getattr(now, name)
            getattr(total, name).update(counts)
            getattr(total, name).subtract(getattr(before, name))
        copy = self._counts_added = CrawlProgress(None, 0)
        copy.status = msgspec.structs.replace(now.status, recent=[], poisoned=[])
        copy.errors, copy.refused, copy.statuses = Counter(now.errors), Counter(now.refused), Counter(now.statuses)

    def refuse_seeds(self, refused: Mapping[str, str]) -> bool:
        """Counts rejected seeds, each once, however often they come; True if there was a new one."""
        known = self.record.refused_seeds
        new = {seed: reason for seed, reason in refused.items() if seed not in known}
        room = MOST_REFUSED_SEEDS - len(known)
        self.record.refused_seeds = known | dict(list(new.items())[: max(0, room)])
        return len(self.record.refused_seeds) > len(known)

    def note_trap(self, url: str) -> None:
        """Counts a link that was left out as a trap, once, unless its page is known by another link."""
        trapped = self.record.trapped
        if len(trapped) < MOST_TRAPPED_URLS and self._embedded.queue.unseen(self.number, [url]):
            trapped.add(url)

    def before_admission(self, found: Iterable[str]) -> None:
        """Removes admitted URLs from the links counted as traps: another page has linked to them."""
        if self.record.trapped:
            self.record.trapped.difference_update(found)

    def note_commit(self) -> None:
        """Called when all rows counted so far are committed, or will be together with its end."""
        self._committed_rows = Counter(self.progress.kinds)

    def _count_uncommitted(self) -> int:
        """The number of URLs whose rows a kill would undo: they count as in flight."""
        rows = self.progress.kinds.copy()
        rows.subtract(self._committed_rows)
        return sum(count for (status, kind), count in rows.items() if kind or not 300 <= status < 400 or status == 304)

    def _count_ends(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (status, kind), count in self._committed_rows.items():
            found[end_name(status, kind)] += count
        for reason in self.record.refused_seeds.values():
            found[end_name(0, reason if reason in _REASONS else Reason.SYNTAX)] += 1
        found[end_name(0, Reason.TRAP)] += len(self.record.trapped)
        return {name: count for name, count in found.items() if count}

    def sample_rate(self, now: float) -> None:
        """Takes a sample for its rate; called twice a second while something happens."""
        self._samples = [*self._samples[1 - RATE_WINDOW :], (now, self.progress.status.pages)]

    def standing(self, number: int, note: str = "") -> CrawlSnapshot:
        """One consistent snapshot; `number` is the last that was committed."""
        record, progress, at = self.record, self.progress, self._embedded.status.crawl_counts(self.number)
        status, now = progress.status, time.monotonic()
        samples = [sample for sample in self._samples if now - sample[0] < RATE_WINDOW]
        waiting_for, waiting_until = self._waiting_reason(note)
        span_s = now - samples[0][0] if samples else 0.0
        return CrawlSnapshot(
            name=self.name,
            id=self.number,
            state=record.state,
            reason=record.reason,
            number=number,
            pages=status.pages,
            failed=sum(progress.errors.values()),
            refused=sum(count for reason, count in progress.refused.items() if reason != Reason.DUPLICATE),
            queued=at.queued,
            in_flight=at.leased + self._count_uncommitted(),
            set_aside=at.set_aside,
            requests=status.requests,
            retries=status.retries,
            need_javascript=status.shells,
            body_bytes=status.body_bytes,
            memory_bytes=0 if record.memory_bytes is None else self._url_bytes + at.leased * PAGE_BYTES,
            rate=(status.pages - samples[0][1]) / span_s if span_s > 0 else 0.0,
            weight=record.weight,
            deadline=record.deadline,
            opened_at=record.opened_at,
            ended_at=record.ended_at,
            running_s=self.running_s,
            statuses={status: count for status, count in progress.statuses.items() if count},
            errors={kind: count for kind, count in progress.errors.items() if count},
            reasons={str(reason): count for reason, count in progress.refused.items() if count},
            ends=self._count_ends(),
            is_held=record.is_held,
            pause_reason=record.pause_reason,
            self_paused_at=record.self_paused_at,
            note=note,
            waiting_for=waiting_for,
            waiting_until=waiting_until,
        )

    def _waiting_reason(self, note: str) -> tuple[str, float | None]:
        """Why it requests nothing now, and until when (wall clock). `note`: why the whole engine waits."""
        if self.record.state not in (CrawlState.RUNNING, CrawlState.PAUSED) or self.record.is_held:
            return "", None  # the caller that holds it knows why
        if note and self.record.state is CrawlState.RUNNING:
            return note, None
        if self.record.pause_reason:
            return self.record.pause_reason, None
        waiting = self._embedded.status.waits_for(self.number)
        if waiting is None:
            return WAITING_FOR_SEEDS if self._is_idle() and self.awaits_seeds() else "", None
        until = waiting.until
        return waiting.cause, None if until is None else time.time() + until - self._embedded.now()
