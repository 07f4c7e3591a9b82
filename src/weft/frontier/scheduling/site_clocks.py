"""The politeness clocks of sites and addresses: requested waits are saved in the journal, and read from there when a
site is used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from weft.config import PolitenessSection
from weft.frontier.durability.journal import FrontierJournal, report_damage
from weft.frontier.politeness import (
    LONGEST_BACKOFF_S,
    LONGEST_SILENCE_S,
    AddressClock,
    Breaker,
    PolitenessClock,
    authority_of,
)
from weft.frontier.scheduling.sites import Site
from weft.frontier.seen.seen_set import SeenSet

CLOCK_KEPT_S = 60.0
_MOST_KEPT_CLOCKS = 10_000  # of addresses; idle ones are forgotten when there are more


class SiteClocks:
    """Times are of the frontier's clock, except those named `wall`. A clock that a request may still have to wait for
    is kept, in memory or in the journal.
    """

    def __init__(
        self,
        section: PolitenessSection,
        journal: FrontierJournal,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.section = section
        self._journal = journal
        self._now = now
        self._wall = wall
        self._by_address: dict[str, AddressClock] = {}  # filled where politeness is by address
        self._most_clocks = _MOST_KEPT_CLOCKS
        self.longest_delay_s = section.delay_s  # of all crawls
        self.longest_wait_s, self.longest_reset_s = section.max_retry_after_s, section.breaker_reset_s  # the same
        self.not_before = 0.0  # no site is due before this: set when the times of the last requests are unknown
        # Ends of the last requests before this process; None: the request had not ended.
        self.last_ends: dict[str, float | None] = {}
        self._saved_keys = SeenSet(0)  # keys that this process has saved: spares a new frontier the look-ups
        self._had_rows = journal.has_rows("sites")
        # By site, the hosts and ports with an open breaker, until when.
        self._open_breakers: dict[str, dict[str, float]] | None = None

    def register_section(self, section: PolitenessSection) -> None:
        """Registers the settings of a crawl. Sites and request logs are kept for as long as the longest delay of any
        crawl; saved waits are trusted up to the longest that any crawl allows.
        """
        self.longest_wait_s = max(self.longest_wait_s, section.max_retry_after_s)
        self.longest_reset_s = max(self.longest_reset_s, section.breaker_reset_s)
        self.longest_delay_s = max(self.longest_delay_s, section.delay_s)
        if self.longest_delay_s > (self._journal.meta("longest_delay") or 0.0):
            self._journal.put_meta("longest_delay", self.longest_delay_s)

    def site_clock(self, key: str) -> PolitenessClock:
        """A new clock for a site, with its saved state where there is one."""
        clock, now = PolitenessClock(self.not_before), self._now()
        self._apply_last_request(clock, key, now)
        if self.not_before:  # the last request is unknown: a full delay, which may be a longer one
            clock.due = max(clock.due, self.not_before + max(0.0, clock.delay_s(self.section) - self.longest_delay_s))
        if self.last_ends and key in self.last_ends:
            ended = self.last_ends.pop(key)
            clock.last_start = clock.last_end = now if ended is None else ended
        return clock

    def address_clock(self, address: str) -> AddressClock:
        """The clock of an address, with its saved state where there is one."""
        clock = self._by_address.get(address)
        if clock is None:
            now = self._now()
            self._forget_clocks(now)
            clock = self._by_address[address] = AddressClock(address, self.not_before)
            self._apply_last_request(clock, _journal_key(clock), now)
            if clock.due > now + self.longest_wait_s:
                clock.due, clock.long_until = self.not_before, clock.due
            if self.not_before:  # the last request is unknown: a full delay, which may be a longer one
                clock.due = max(
                    clock.due, self.not_before + max(0.0, clock.delay_s(self.section) - self.longest_delay_s)
                )
        return clock

    def save_site(self, site: Site) -> None:
        """Saves in the journal what a site, or its address, asked for."""
        clock = site.clock
        key, due = site.key, clock.due
        if isinstance(clock, AddressClock):
            key, due = _journal_key(clock), max(due, clock.long_until)
        due, now, wall = max(due, clock.due_for(self.section)), self._now(), self._wall()
        record = {
            "crawl_delay": clock.crawl_delay_s,
            "extra": clock.extra_s,
            "lag": clock.lag_s,
            "recent": max(0.0, clock.recent_s),
            "usual": max(0.0, clock.usual_s),
            "single": clock.forced_single,
            "due_wall": wall + max(0.0, due - now),
            "breakers": {
                name: (breaker.probes, True, wall + breaker.open_until - now)
                for name, breaker in (clock.breakers or {}).items()
                if breaker.open_until
            },
        }
        self._saved_keys.add(key)
        self._note_breaker(key, clock)
        self._journal.put("sites", key, msgspec.msgpack.encode(record))

    def open_breakers(self) -> dict[str, float]:
        """Hosts, with their ports, that have an open breaker, and when one request may go there (wall clock).

        Kept in memory from the first call on: until then, breakers that no site in memory needs are only in the
        journal.
        """
        if self._open_breakers is None:
            self._open_breakers = {}
            for key in self._journal.keys("sites"):
                clock = PolitenessClock()
                self._apply_last_request(clock, key, self._now())
                self._note_breaker(key, clock)
        now, wall = self._now(), self._wall()
        until: dict[str, float] = {}
        for blocked in self._open_breakers.values():
            for name, at in blocked.items():
                if at > now:
                    until[name] = max(until.get(name, 0.0), wall + at - now)
        return until

    def wait_s(self, wall: float) -> float:
        """The seconds until a saved wall-clock time. One that lies further ahead than the longest possible wait was
        saved while the clock was ahead, so the intended wait is unknown.
        """
        wait_s = max(0.0, wall - self._wall())
        return wait_s if wait_s <= self.longest_wait_s + LONGEST_BACKOFF_S else LONGEST_BACKOFF_S

    def is_waited_for(self, clock: PolitenessClock, now: float) -> bool:
        """Whether a request may still have to wait for this clock."""
        own = clock.last_end + max(clock.delay_s(self.section), self.longest_delay_s)
        return max(clock.due, clock.held_until(), own) > now

    def _forget_clocks(self, now: float) -> None:
        if len(self._by_address) < self._most_clocks:
            return
        idle_since = now - CLOCK_KEPT_S
        self._by_address = {
            address: clock
            for address, clock in self._by_address.items()
            if clock.active or clock.parked or self.is_waited_for(clock, idle_since)
        }
        self._most_clocks = max(_MOST_KEPT_CLOCKS, 2 * len(self._by_address))

    def _apply_last_request(self, clock: PolitenessClock, key: str, now: float) -> None:
        row = self._journal.row("sites", key) if self._had_rows or key in self._saved_keys else None
        if row is not None:
            with report_damage(self._journal.path):
                state = msgspec.msgpack.decode(row[1])
            clock.crawl_delay_s, clock.extra_s = state["crawl_delay"], state["extra"]
            clock.forced_single = state["single"]
            # The wall clock may have been ahead at the save: a wait is limited to the longest that can have been
            # intended.
            wall, most_s = self._wall(), max(self.longest_wait_s, self.longest_delay_s, clock.delay_s(self.section))
            if isinstance(clock, AddressClock):
                most_s = max(most_s, LONGEST_SILENCE_S)
            clock.due = max(clock.due, now + min(state["due_wall"] - wall, most_s))
            for name, (probes, is_open, held_wall) in state.get("breakers", {}).items():
                if is_open:
                    clock.breakers = clock.breakers or {}
                    breaker = clock.breakers[name] = Breaker()
                    breaker.probes = probes
                    breaker.open_until = now + min(max(0.0, held_wall - wall), self.longest_reset_s)

    def _note_breaker(self, key: str, clock: PolitenessClock) -> None:
        if self._open_breakers is None:
            return
        self._open_breakers.pop(key, None)
        blocked: dict[str, float] = {}
        for name, breaker in (clock.breakers or {}).items():
            if breaker.open_until:
                authority = authority_of(name)
                blocked[authority] = max(blocked.get(authority, 0.0), breaker.open_until)
        if blocked:
            self._open_breakers[key] = blocked


def _journal_key(clock: AddressClock) -> str:
    """Its key in the journal's table of sites; no host contains a space."""
    return f"ip {clock.address}"
