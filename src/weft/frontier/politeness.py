"""When the next request may go to a site: its due time, its slots, its circuit breakers, its slowdown after a 429; and
its responsiveness, by which requests to sites that hang cannot use the slots of those that answer.

A PolitenessClock is what politeness is kept for: a domain, a host or an address. All crawls share it. What the site
asked for binds all of them (`due`: Retry-After, a Crawl-delay); a crawl's own delay counts from anyone's last request
(`due_for`). Invariant: `due`, `last_start` and `last_end` never move earlier, and `due` is never later than the longest
wait that the settings allow.

A breaker is of one origin (scheme, host and port) as the crawls of one trust see it: a dead port or host holds up none
of its neighbours in the domain, and a crawl with another address for a name, other certificates or a proxy may fail
where others do not. There is one only while there are failures, so that most sites have none.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from weft.config import PolitenessSection
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.frontier.scheduling.sites import Site

MOST_EXTRA_DELAY_S = 60.0
LONGEST_BACKOFF_S = 60.0  # between two tries of a request that has failed
LONGEST_SILENCE_S = 86400.0  # for which an address is not asked, however long its Retry-After
UNREACHABLE_S = 600.0  # until an unreachable robots.txt is requested again
LONG_WAIT_IN_DELAYS = 10  # of its own delays, after which a crawl is next at a site that several want
_NEVER = float("-inf")
EASED_AFTER_ANSWERS = 20  # good answers in a row after which a slowed site's extra delay is halved
SLOW_S = 2.0  # a site that takes longer to answer is slow
LAG_S = 1.0  # answers faster than this never count as late, whatever the site's usual time
LAG_FACTOR = 3.0  # times its usual time, from which on a site counts as slowed down
_MOST_BREAKERS = 200  # of a clock
_RECENT, _USUAL = 1 / 4, 1 / 64  # the weights of the last answer in the two averages
log = Log("weft.frontier.politeness")
# Log lines about sites: event → message, and the field that its number goes into. All frontiers log the same.
SITE_EVENTS = {
    "slowed": ("site slowed", "delay_s"),
    "eased": ("site eased", "delay_s"),
    "opened": ("breaker opened", "reset_s"),
    "probed": ("breaker probe failed", "probes"),
    "closed": ("breaker closed", "probes"),
    "breaker": ("site given up", "urls"),
    "retry-after": ("site given up", "urls"),
}


def log_change(what: str, site: str, number: float) -> None:
    """Logs an event of a site; one that is not in SITE_EVENTS is not logged."""
    if what in SITE_EVENTS:
        message, field = SITE_EVENTS[what]
        reason = {"reason": what} if field == "urls" else {}
        log.info(message, site=site, **reason, **{field: number})


class Responsiveness(IntEnum):
    """The responsiveness of a site. Each class has its own share of a process's slots."""

    FINE = 0
    SLOW = 1
    UNKNOWN = 2  # it has never answered, or not the last time


def breaker_name(trust: str, url: str) -> str:
    """The name of the breaker of a URL, for the crawls of one trust."""
    return trust + url[: url.index("/", 8)]


def authority_of(name: str) -> str:
    """The host and port that a breaker's name, or an origin, represents."""
    return name.rpartition("://")[2]


class Breaker:
    """Failures in a row: after a number of them nothing is requested for a while, then one request at a time, a probe.

    Only a probe is counted as one: requests that were in flight when it opened may fail as well, at the same moment.
    However many probes have failed, the next one is made when its time has come.
    """

    __slots__ = ("failing", "open_until", "probe", "probes")

    def __init__(self) -> None:
        self.failing: tuple[int, ...] = ()  # items that failed in a row
        self.open_until = 0.0  # 0: it is closed
        self.probe = 0  # the item whose request is the probe; it may have been queued again since
        self.probes = 0  # failed probes since it opened

    def failed(self, item: int, at: float, section: PolitenessSection) -> None:
        """Counts a failure."""
        if self.open_until:
            if item != self.probe:
                return
            self.probe, self.probes = 0, self.probes + 1
        elif item not in self.failing:
            self.failing += (item,)
        if self.open_until or len(self.failing) >= section.breaker_failures:
            self.open_until, self.failing = at + section.breaker_reset_s, ()


class PolitenessClock:
    """The due time, slots in use and failures of one domain, host or address."""

    __slots__ = (
        "active", "breakers", "crawl_delay_s", "due", "extra_s", "forced_single", "good", "in_trouble", "lag_s",
        "last_end", "last_start", "parked", "recent_s", "usual_s",
    )  # fmt: skip

    def __init__(self, due: float = 0.0) -> None:
        self.due = due  # no process asks before this
        self.last_start = self.last_end = _NEVER  # of requests by any process
        self.active = 0  # slots in use
        self.crawl_delay_s = 0.0
        self.extra_s = 0.0  # delay added after a 429 or 503
        self.good = 0  # successes since then
        self.forced_single = False  # a Crawl-delay or Retry-After was seen
        self.in_trouble = False  # it slowed down by a fault of its own (503), not by a limit (429)
        self.recent_s = -1.0  # its recent answer time; negative: it has not answered
        self.usual_s = -1.0  # the same over a longer time
        self.lag_s = 0.0  # its answer time, while that is much longer than usual
        self.breakers: dict[str, Breaker] | None = None  # by their names; of those that have failed
        self.parked: dict[Site, None] | None = None  # of a shared clock: the sites that wait for a slot, in order

    def delay_s(self, section: PolitenessSection) -> float:
        """The current minimum time between two requests."""
        if self.lag_s and section.delay_s:
            # A site with several requests at once answers that many in the time of one.
            lag_s = self.lag_s if self.forced_single else self.lag_s / section.places
            return max(section.delay_s, self.crawl_delay_s, self.extra_s, lag_s)
        return max(section.delay_s, self.crawl_delay_s, self.extra_s)

    @property
    def shown(self) -> Responsiveness:
        """Its responsiveness, by its last requests."""
        if self.recent_s < 0.0:
            return Responsiveness.UNKNOWN
        return Responsiveness.FINE if self.recent_s < SLOW_S else Responsiveness.SLOW

    def places(self, section: PolitenessSection) -> int:
        """How many requests may be in flight."""
        return 1 if self.forced_single else section.places

    def due_for(self, section: PolitenessSection) -> float:
        """When a crawl with these settings may ask: its delay counts from the end of the last request, or from the
        start where it may have several in flight."""
        last = self.last_end if self.forced_single or section.places == 1 else self.last_start
        due = last + self.delay_s(section)
        return due if due > self.due else self.due

    def has_room(self, section: PolitenessSection) -> bool:
        """Whether it has a free slot."""
        return self.active < (1 if self.forced_single else section.places)

    def breaker(self, name: str) -> Breaker | None:
        """A breaker by its name; None if nothing has failed."""
        return None if self.breakers is None else self.breakers.get(name)

    def held_until(self) -> float:
        """When the last of its open breakers admits a request; 0 if none is open."""
        return max((one.open_until for one in (self.breakers or {}).values()), default=0.0)

    def started(self, now: float) -> None:
        """Records the start of a request."""
        self.active += 1
        self.last_start = now

    def ended(self, at: float) -> None:
        """Records the end of a request."""
        self.last_end = max(self.last_end, at)

    def took(self, seconds: float | None, section: PolitenessSection) -> None:
        """How long an answer took; None: there was none.

        A site whose answers take several times as long as before is overloaded: it gets a request no more often than it
        answers (`delay_s`), until that has passed or has become usual.
        """
        if seconds is None:
            self.recent_s = -1.0
            return
        if self.usual_s < 0.0:
            self.usual_s = seconds
        self.usual_s += _USUAL * (seconds - self.usual_s)
        self.recent_s = seconds if self.recent_s < 0.0 else self.recent_s + _RECENT * (seconds - self.recent_s)
        lags = self.recent_s > LAG_S and self.recent_s > LAG_FACTOR * self.usual_s
        lag_s = min(MOST_EXTRA_DELAY_S, self.recent_s) if lags else 0.0
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
        self.extra_s = min(MOST_EXTRA_DELAY_S, max(2 * self.delay_s(section), 1.0))
        # A longer one is not waited for: queued URLs are rejected. If it were kept, the site would never be asked
        # again.
        asked_s = min(retry_after_s or 0.0, section.max_retry_after_s)
        self.due = max(self.due, at + self.extra_s, at + asked_s)

    def answered(self, item: int, ok: bool, at: float, section: PolitenessSection, name: str) -> None:
        """Counts a success or failure for the breaker of that name; successes reduce a slowed site's extra delay: to
        half after twenty where it has a limit, to a quarter after each where it had a fault that has passed."""
        if not ok:
            self._breaker(name).failed(item, at, section)
        else:
            if self.breakers is not None:
                self.breakers.pop(name, None)
                self.breakers = self.breakers or None
            self.good += 1
            if self.extra_s and (self.in_trouble or self.good % EASED_AFTER_ANSWERS == 0):
                self.due = max(self.due, self.due_for(section))  # the shorter delay counts from the next request on
                times = 4 if self.in_trouble else 2
                self.extra_s = self.extra_s / times if self.extra_s > times * section.delay_s else 0.0

    def _breaker(self, name: str) -> Breaker:
        """A breaker, created if there is none: in a domain with very many failing hosts the oldest is removed."""
        if self.breakers is None:
            self.breakers = {}
        if name not in self.breakers:
            if len(self.breakers) >= _MOST_BREAKERS:
                closed = (other for other, one in self.breakers.items() if not one.open_until)
                del self.breakers[next(closed, next(iter(self.breakers)))]
            self.breakers[name] = Breaker()
        return self.breakers[name]

    def is_given_up(self, section: PolitenessSection, name: str) -> bool:
        """Whether the limit of failed probes is reached: what is queued behind the breaker is rejected."""
        breaker = self.breaker(name)
        return breaker is not None and breaker.probes >= section.breaker_max_probes

    def logged_state(self, name: str) -> tuple[float, float, int, int]:
        """The part whose changes are saved and logged: of a lag that it began, doubled, halved or ended."""
        breaker = self.breaker(name)
        open_until, probes = (0.0, 0) if breaker is None else (breaker.open_until, breaker.probes)
        return self.extra_s, open_until, probes, int(self.lag_s).bit_length()

    def log_changes(
        self, before: tuple[float, float, int, int], site: str, section: PolitenessSection, name: str
    ) -> None:
        """Logs what has changed since `logged_state` was `before`."""
        was_extra_s, was_open_until, was_probes, was_lag = before
        extra_s, open_until, probes, lag = self.logged_state(name)
        if extra_s > was_extra_s or lag > was_lag:
            log_change("slowed", site, self.delay_s(section))
        elif extra_s < was_extra_s or lag < was_lag:
            log_change("eased", site, self.delay_s(section))
        if open_until and not was_open_until:
            log_change("opened", authority_of(name), section.breaker_reset_s)
        elif probes > was_probes:
            log_change("probed", authority_of(name), probes)
        elif was_open_until and not open_until:
            log_change("closed", authority_of(name), was_probes)


class AddressClock(PolitenessClock):
    """The clock of an address, shared by the sites there."""

    __slots__ = ("address", "long_until")

    def __init__(self, address: str, due: float = 0.0) -> None:
        super().__init__(due)
        self.address = address
        self.long_until = 0.0  # it has asked for a longer wait than allowed: queued URLs are rejected
        self.parked = {}

    def slow_down(
        self, at: float, retry_after_s: float | None, section: PolitenessSection, *, in_trouble: bool = False
    ) -> None:
        """A Retry-After above the maximum is not waited for: until its end, items for this address are rejected."""
        if (retry_after_s or 0.0) > section.max_retry_after_s:
            self.long_until = at + min(retry_after_s or 0.0, LONGEST_SILENCE_S)
            retry_after_s = None
        super().slow_down(at, retry_after_s, section, in_trouble=in_trouble)

    def wants(self, crawl_delay_s: float) -> None:
        """Raises the Crawl-delay to that of a site at this address."""
        if crawl_delay_s > self.crawl_delay_s:
            self.crawl_delay_s, self.forced_single = crawl_delay_s, True
            self.due = max(self.due, self.last_end + crawl_delay_s)

    def joined(self, clock: PolitenessClock) -> None:
        """Takes over the state of a site whose address was not known until now."""
        self.wants(clock.crawl_delay_s)
        self.due = max(self.due, clock.due)
        self.last_start, self.last_end = max(self.last_start, clock.last_start), max(self.last_end, clock.last_end)
        self.extra_s = max(self.extra_s, clock.extra_s)
        self.forced_single = self.forced_single or clock.forced_single
        if clock.breakers:
            self.breakers = clock.breakers | (self.breakers or {})
