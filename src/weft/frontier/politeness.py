"""When the next request may go to a site: its due time, its places, its circuit breaker, its slowdown after a 429; and
what it has shown of itself, by which requests to sites that hang cannot take the slots of those that answer.

A PolitenessClock is what politeness is kept for: a domain, a host or an address. All crawls share it. What the site
asked for binds all of them (`due`: Retry-After, a Crawl-delay); a crawl's own delay counts from anyone's last request
(`due_for`). A breaker binds the crawls of one trust: those that others cannot see the site through (another address for
its name, other certificates, a proxy) may fail where others do not. Invariant: `due`, `held_until`, `last_start` and
`last_end` never move earlier.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from weft.config import PolitenessSection
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.frontier.embedded.sites import Site

SLOWEST_S = 60.0
LONG_WAIT = 10  # of its own delays, after which a crawl is next at a site that several want
_NEVER = float("-inf")
EASE_AFTER = 20  # good answers in a row after which a slowed site is trusted with half the delay again
SLOW_S = 2.0  # a site that takes longer to answer is slow
LAG_S = 1.0  # answers that take less are never held against a site, whatever it took before
LAG_TIMES = 3.0  # times its usual time, from which on a site is said to have slowed down
_RECENT, _USUAL = 1 / 4, 1 / 64  # the weight of the last answer in the two averages
log = Log("weft.frontier.politeness")
# Log lines about sites: event → message, and the field that its number goes into. All frontiers log the same.
CHANGES = {
    "slowed": ("site slowed", "delay_s"),
    "eased": ("site eased", "delay_s"),
    "opened": ("breaker opened", "reset_s"),
    "probed": ("breaker probe failed", "probes"),
    "closed": ("breaker closed", "probes"),
    "breaker": ("site given up", "urls"),
    "retry-after": ("site given up", "urls"),
}


def log_change(what: str, site: str, number: float) -> None:
    """Logs an event of a site; one that is not in CHANGES is not logged."""
    if what in CHANGES:
        message, field = CHANGES[what]
        reason = {"reason": what} if field == "urls" else {}
        log.info(message, site=site, **reason, **{field: number})


class Shown(IntEnum):
    """What a site has shown of itself. Each class has its own share of a process's slots."""

    FINE = 0
    SLOW = 1
    UNKNOWN = 2  # it has never answered, or not the last time


class Breaker:
    """Failures in a row: after so many nothing is asked for a while, then one request at a time."""

    __slots__ = ("failing", "held_until", "open_until", "probes")

    def __init__(self) -> None:
        self.failing: tuple[int, ...] = ()  # items that failed in a row
        self.open_until = 0.0  # 0: it is closed
        self.held_until = 0.0  # the same, and stays when it closes early: a time that was set is never taken back
        self.probes = 0  # that have failed since it opened

    def count(self, item: int, ok: bool, at: float, section: PolitenessSection) -> None:
        """Counts a success or failure."""
        if ok:
            self.failing, self.open_until, self.probes = (), 0.0, 0
            return
        if self.open_until:
            self.probes += 1
        elif item not in self.failing:
            self.failing += (item,)
        if self.open_until or len(self.failing) >= section.breaker_failures:
            self.open_until = at + section.breaker_reset_s
            self.held_until = max(self.held_until, self.open_until)
            self.failing = ()


class PolitenessClock(Breaker):
    """The due time, places in use and failures of one domain, host or address. It is itself the breaker of most crawls:
    those without a trust of their own."""

    __slots__ = (
        "active", "crawl_delay_s", "due", "extra_s", "forced_single", "good", "in_trouble", "lag_s", "last_end",
        "last_start", "parked", "private", "recent_s", "usual_s",
    )  # fmt: skip

    def __init__(self, due: float = 0.0) -> None:
        super().__init__()
        self.due = due  # not before this, whoever asks
        self.last_start = self.last_end = _NEVER  # of requests, whosever they were
        self.active = 0  # places taken
        self.crawl_delay_s = 0.0
        self.extra_s = 0.0  # delay added after a 429 or 503
        self.good = 0  # successes since then
        self.forced_single = False  # a Crawl-delay or Retry-After was seen
        self.in_trouble = False  # what slowed it down was a fault of its own (503), not a limit (429)
        self.recent_s = -1.0  # how long it takes to answer, lately; negative: it has not answered
        self.usual_s = -1.0  # the same over a longer time
        self.lag_s = 0.0  # how long it takes to answer, while that is much longer than usual
        self.private: dict[str, Breaker] | None = None  # of crawls with a trust of their own, by it
        self.parked: dict[Site, None] | None = None  # of a shared clock: the sites that wait for a place, in order

    def delay_s(self, section: PolitenessSection) -> float:
        """The current minimum time between two requests."""
        if self.lag_s and section.delay_s:
            # A site that has several requests at once answers that many in the time that one takes.
            lag_s = self.lag_s if self.forced_single else self.lag_s / section.places
            return max(section.delay_s, self.crawl_delay_s, self.extra_s, lag_s)
        return max(section.delay_s, self.crawl_delay_s, self.extra_s)

    @property
    def shown(self) -> Shown:
        """By what it did with its last requests."""
        if self.recent_s < 0.0:
            return Shown.UNKNOWN
        return Shown.FINE if self.recent_s < SLOW_S else Shown.SLOW

    def places(self, section: PolitenessSection, trust: str = "") -> int:
        """How many requests may be in flight."""
        return 1 if self.forced_single or self._open_until(trust) else section.places

    def due_for(self, section: PolitenessSection, trust: str = "") -> float:
        """When a crawl with these settings may ask: its delay counts from the end of the last request, or from the
        start where it may have several in flight."""
        if not trust:
            return max(self.due_for_all(section), self.held_until)
        breaker = self.private.get(trust) if self.private is not None else None
        return max(self.due_for_all(section, trust), 0.0 if breaker is None else breaker.held_until)

    def due_for_all(self, section: PolitenessSection, trust: str = "") -> float:
        """The same, but for the breaker."""
        last = self.last_end if self.places(section, trust) == 1 else self.last_start
        return max(self.due, last + self.delay_s(section))

    def has_room(self, section: PolitenessSection, trust: str = "") -> bool:
        """Whether a place is free."""
        return self.active < self.places(section, trust)

    def breaker(self, trust: str) -> Breaker:
        """The breaker of the crawls of one trust."""
        if not trust:
            return self
        if self.private is None:
            self.private = {}
        return self.private.setdefault(trust, Breaker())

    def last_held_until(self) -> float:
        """When the last of its breakers lets a request through."""
        return max([self.held_until, *(one.held_until for one in (self.private or {}).values())])

    def _open_until(self, trust: str) -> float:
        if not trust:
            return self.open_until
        breaker = self.private.get(trust) if self.private is not None else None
        return 0.0 if breaker is None else breaker.open_until

    def started(self, now: float) -> None:
        """A request is being made."""
        self.active += 1
        self.last_start = now

    def ended(self, at: float) -> None:
        """A request is over."""
        self.last_end = max(self.last_end, at)

    def took(self, seconds: float | None, section: PolitenessSection) -> None:
        """How long an answer took; None: there was none.

        A site whose answers take several times as long as they used to has more to do than it can: it gets a request no
        more often than it answers (`delay_s`), until that has passed or has become usual.
        """
        if seconds is None:
            self.recent_s = -1.0
            return
        if self.usual_s < 0.0:
            self.usual_s = seconds
        self.usual_s += _USUAL * (seconds - self.usual_s)
        self.recent_s = seconds if self.recent_s < 0.0 else self.recent_s + _RECENT * (seconds - self.recent_s)
        lags = self.recent_s > LAG_S and self.recent_s > LAG_TIMES * self.usual_s
        lag_s = min(SLOWEST_S, self.recent_s) if lags else 0.0
        if lag_s < self.lag_s:
            self.due = max(self.due, self.due_for(section))  # the shorter delay counts from the next request on
        self.lag_s = lag_s

    def slow_down(
        self, at: float, retry_after_s: float | None, section: PolitenessSection, *, in_trouble: bool = False
    ) -> None:
        """The site asked for fewer requests: doubles the delay, and allows one at a time."""
        self.good = 0
        self.forced_single = True
        self.in_trouble = in_trouble
        self.extra_s = min(SLOWEST_S, max(2 * self.delay_s(section), 1.0))
        self.due = max(self.due, at + self.extra_s, at + (retry_after_s or 0.0))

    def answered(self, item: int, ok: bool, at: float, section: PolitenessSection, trust: str = "") -> None:
        """Counts a success or failure for the breaker; successes reduce a slowed site's extra delay: to half after
        twenty where it has a limit, to a quarter after each where it had a fault that has passed."""
        self.breaker(trust).count(item, ok, at, section)
        if ok:
            self.good += 1
            if self.extra_s and (self.in_trouble or self.good % EASE_AFTER == 0):
                self.due = max(self.due, self.due_for(section))  # the shorter delay counts from the next request on
                times = 4 if self.in_trouble else 2
                self.extra_s = self.extra_s / times if self.extra_s > times * section.delay_s else 0.0

    def broken(self, section: PolitenessSection, trust: str = "") -> bool:
        """Whether as many probes have failed as are made: the site is given up."""
        probes = self.probes if not trust else self.breaker(trust).probes
        return probes >= section.breaker_max_probes

    def logged_state(self, trust: str = "") -> tuple[float, float, int, int]:
        """The part whose changes are saved and logged: of a lag that it began, doubled, halved or ended."""
        breaker = self.breaker(trust)
        return self.extra_s, breaker.open_until, breaker.probes, int(self.lag_s).bit_length()

    def log_changes(
        self, before: tuple[float, float, int, int], site: str, section: PolitenessSection, trust: str = ""
    ) -> None:
        """Logs what has changed since `logged_state` was `before`."""
        extra_s, open_until, probes, lag = before
        breaker, lags = self.breaker(trust), int(self.lag_s).bit_length()
        if self.extra_s > extra_s or lags > lag:
            log_change("slowed", site, self.delay_s(section))
        elif self.extra_s < extra_s or lags < lag:
            log_change("eased", site, self.delay_s(section))
        if breaker.open_until and not open_until:
            log_change("opened", site, section.breaker_reset_s)
        elif breaker.probes > probes:
            log_change("probed", site, breaker.probes)
        elif open_until and not breaker.open_until:
            log_change("closed", site, probes)


class AddressClock(PolitenessClock):
    """The clock of an address, shared by the sites there."""

    __slots__ = ("address", "long_until")

    def __init__(self, address: str, due: float = 0.0) -> None:
        super().__init__(due)
        self.address = address
        self.long_until = 0.0  # it has asked for longer than anyone waits: what is queued for it is rejected
        self.parked = {}

    def slow_down(
        self, at: float, retry_after_s: float | None, section: PolitenessSection, *, in_trouble: bool = False
    ) -> None:
        """A Retry-After above the maximum is not waited for: until its end, items for this address are rejected."""
        if (retry_after_s or 0.0) > section.max_retry_after_s:
            self.long_until = at + (retry_after_s or 0.0)
            retry_after_s = None
        super().slow_down(at, retry_after_s, section, in_trouble=in_trouble)

    def wants(self, crawl_delay_s: float) -> None:
        """Raises the Crawl-delay to that of a site at this address."""
        if crawl_delay_s > self.crawl_delay_s:
            self.crawl_delay_s, self.forced_single = crawl_delay_s, True
            self.due = max(self.due, self.last_end + crawl_delay_s)

    def joined(self, clock: PolitenessClock) -> None:
        """Takes over what a site knew before its address was."""
        self.wants(clock.crawl_delay_s)
        self.due = max(self.due, clock.due)
        self.last_start, self.last_end = max(self.last_start, clock.last_start), max(self.last_end, clock.last_end)
        self.extra_s = max(self.extra_s, clock.extra_s)
        self.forced_single = self.forced_single or clock.forced_single
