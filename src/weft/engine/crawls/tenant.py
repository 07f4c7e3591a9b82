"""One crawl of an engine that has many: what is kept of it, its clocks, its counts, and what an edit changes."""

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
from weft.engine.crawls.memory import PAGE_BYTES, flight_within
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

RATE_WINDOW = 10  # looks, half a second apart
MOST_REFUSED_SEEDS = 10_000  # that are remembered
MOST_TRAPPED = 1_000  # links left out as traps that are remembered: an endless space has any number of them
_REASONS = frozenset(map(str, Reason))


class TenantRecord(Struct, kw_only=True):
    """What the index keeps of a crawl. Counts are as they were when it was last written down."""

    settings: dict[str, Any]  # given with it, and the defaults that followed from them
    defaults: str = ""  # digest of the other defaults that were in force (recorded.py)
    changes: list[SettingsChange] = []  # of `settings`, by edits
    trust: str = ""  # whose robots.txt files it follows (see `settings.trust_of`), for reports
    opened_with: dict[str, Any] = {}  # as it was opened, before any edit: by this it is known when it is opened again
    seeds_hash: int = 0  # of the seeds of the last `open`
    state: CrawlState = CrawlState.OPEN
    is_held: bool = False  # see `CrawlSnapshot.is_held`
    reason: EndReason | None = None
    pause_reason: str = ""  # see `Standing.pause_reason`
    gave_up_at: float = 0.0
    roots: list[str] = []  # where its seeds are, as far as scope and sitemaps depend on it
    origins: list[str] = []  # of its first seeds, where its credentials go
    has_opened: bool = False  # its first seeds have come, all that were announced: later ones get no credentials
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
    revisits: bool = False  # what was found at some of its URLs before was given with them
    refused_seeds: dict[str, str] = {}  # seeds that were not let in, by reason: they have no rows
    trapped: set[str] = set()  # links that were left out as traps, as far as they are remembered: they have no rows

    @property
    def revision(self) -> int:
        """The number of the settings in force; `weft audit` judges requests by it."""
        return len(self.changes) + 1


class Tenant(RunningCrawl):
    """A crawl that runs, or waits to."""

    is_only = False

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
        self._since: float | None = None  # when its running time began to count
        self._samples: list[tuple[float, int]] = []
        self._url_bytes = 0  # of a crawl with a limit of memory, at the last look
        self._committed: Counter[tuple[int, str]] = Counter()  # of `progress.kinds`: what no kill takes back
        self._added: CrawlProgress | None = None  # its counts when they were last added to the engine's

    def ask_robots_again(self, seeds: Iterable[Found], wall: float) -> None:
        """A site that could not be reached may be well again when somebody gives a seed there: its robots.txt is asked
        for once more, at the site's own pace, instead of taking the failure of an earlier crawl for this one's."""
        for origin in {urls.origin_of(seed.url) for seed in seeds}:
            if self.book.may_be_well_again(origin, wall):
                self._embedded.sites.ask_robots_again(self.number, origin)

    def edit(self, config: Config, limits: CrawlLimits, weight: float = 1.0) -> int:
        """As for any crawl; what is kept of it follows."""
        back = super().edit(config, limits, weight)
        self.config, self.record.weight, self.record.has_been_edited = config, weight, True
        return back

    def _is_full(self, pages: int) -> bool:
        most = self.config.limits.max_pages
        return most is not None and pages >= most

    def awaits_seeds(self) -> bool:
        """Whether it must not end because nothing is left: more seeds may come."""
        record = self.record
        return record.expects_more or (record.keep_open and not record.seeds_closed)

    def _is_idle(self) -> bool:
        """Whether it runs with nothing left to do, and all that it has done is committed."""
        return self.record.state is CrawlState.RUNNING and self._nothing_left() is not None and not self._uncommitted()

    def keep_within_memory(self) -> bool:
        """Lets as many pages be in flight as its memory has room for besides its URLs; False: for none."""
        record = self.record
        if record.memory_bytes is None:
            return True
        self._url_bytes = self._embedded.status.url_bytes(self.number)
        flight = flight_within(record.memory_bytes, record.in_flight, self._url_bytes)
        self._embedded.permits.limit_flight(self.number, flight)
        return flight != 0

    # ── its clock ──────────────────────────────────────────────────────────────────────────────────────────────────

    def clock_starts(self) -> None:
        """It runs from now on."""
        if self._since is None:
            self._since = time.monotonic()

    def clock_stops(self) -> None:
        """It does not run any more."""
        self.record.running_s, self._since = self.running_s, None

    @property
    def running_s(self) -> float:
        """How long it has run, pauses left out."""
        return self.record.running_s + (0.0 if self._since is None else time.monotonic() - self._since)

    # ── how it stands ──────────────────────────────────────────────────────────────────────────────────────────────

    def noted(self) -> bytes:
        """Its record, with the counts as they are now."""
        record, progress = self.record, self.progress
        record.requests, record.retries = progress.status.requests, progress.status.retries
        record.refused = dict(progress.refused)
        if self._since is not None:
            record.running_s, self._since = self.running_s, time.monotonic()
        return msgspec.msgpack.encode(record)

    def add_to(self, total: CrawlProgress) -> None:
        """Adds what it has counted since the last time to the figures of its engine."""
        now, before = self.progress, self._added or CrawlProgress(None, 0)
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
        copy = self._added = CrawlProgress(None, 0)
        copy.status = msgspec.structs.replace(now.status, recent=[], poisoned=[])
        copy.errors, copy.refused, copy.statuses = Counter(now.errors), Counter(now.refused), Counter(now.statuses)

    def refuse_seeds(self, refused: Mapping[str, str]) -> bool:
        """Counts seeds that were not let in, each once, however often they come; True if there was a new one."""
        known = self.record.refused_seeds
        new = {seed: reason for seed, reason in refused.items() if seed not in known}
        room = MOST_REFUSED_SEEDS - len(known)
        self.record.refused_seeds = known | dict(list(new.items())[: max(0, room)])
        return len(self.record.refused_seeds) > len(known)

    def note_trap(self, url: str) -> None:
        """Counts a link that was left out as a trap, once, unless its page is known by another link."""
        trapped = self.record.trapped
        if len(trapped) < MOST_TRAPPED and self._embedded.queue.unseen(self.number, [url]):
            trapped.add(url)

    def admitted(self, found: Iterable[str]) -> None:
        """Counts no link as left out whose URL is admitted after all: another page has a link to it."""
        if self.record.trapped:
            self.record.trapped.difference_update(found)

    def committed(self) -> None:
        """All rows that were counted so far are committed, or will be with its end."""
        self._committed = Counter(self.progress.kinds)

    def _uncommitted(self) -> int:
        """URLs that have ended in rows that a kill would take back: they count as in flight."""
        rows = self.progress.kinds.copy()
        rows.subtract(self._committed)
        return sum(count for (status, kind), count in rows.items() if kind or not 300 <= status < 400 or status == 304)

    def _ends(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (status, kind), count in self._committed.items():
            found[end_name(status, kind)] += count
        for reason in self.record.refused_seeds.values():
            found[end_name(0, reason if reason in _REASONS else Reason.SYNTAX)] += 1
        found[end_name(0, Reason.TRAP)] += len(self.record.trapped)
        return {name: count for name, count in found.items() if count}

    def sample(self, now: float) -> None:
        """For its rate; to be called twice a second while something happens."""
        self._samples = [*self._samples[1 - RATE_WINDOW :], (now, self.progress.status.pages)]

    def standing(self, number: int, note: str = "") -> CrawlSnapshot:
        """One consistent snapshot; `number` is the last that was committed."""
        record, progress, at = self.record, self.progress, self._embedded.status.crawl_counts(self.number)
        status, now = progress.status, time.monotonic()
        samples = [sample for sample in self._samples if now - sample[0] < RATE_WINDOW]
        waiting_for, waiting_until = self._waiting(note)
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
            in_flight=at.leased + self._uncommitted(),
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
            ends=self._ends(),
            is_held=record.is_held,
            pause_reason=record.pause_reason,
            gave_up_at=record.gave_up_at,
            note=note,
            waiting_for=waiting_for,
            waiting_until=waiting_until,
        )

    def _waiting(self, note: str) -> tuple[str, float | None]:
        """Why nothing of it is requested now, and until when (wall clock). `note`: why the whole engine waits."""
        if self.record.state not in (CrawlState.RUNNING, CrawlState.PAUSED) or self.record.is_held:
            return "", None  # the caller who holds it knows why
        if note and self.record.state is CrawlState.RUNNING:
            return note, None
        if self.record.pause_reason:
            return self.record.pause_reason, None
        waiting = self._embedded.status.waits_for(self.number)
        if waiting is None:
            return WAITING_FOR_SEEDS if self._is_idle() and self.awaits_seeds() else "", None
        until = waiting.until
        return waiting.cause, None if until is None else time.time() + until - self._embedded.now()
