"""What the parts of an embedded frontier share: its files, its counters, and how they become durable.

Memory holds the working set (`queues`), the journal what must not be lost. `commit` writes what was admitted and what
has ended; now and then a checkpoint spares the next start the whole journal.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.alive import Alive, silent
from weft.config import PolitenessSection
from weft.errors import BadInput, Busy, DiskFull
from weft.files import try_lock
from weft.frontier.clock import MachineClock, NoMachineClock
from weft.frontier.contract import (
    Item,
    Rejection,
    RobotsRecord,
)
from weft.frontier.embedded.checkpoint import OpenItem
from weft.frontier.embedded.cookies import KeptCookies
from weft.frontier.embedded.queues import MOST_AWAKE, Queues
from weft.frontier.embedded.recovery import Counts, Finished, Recovery
from weft.frontier.embedded.robots_files import RobotsFiles
from weft.frontier.embedded.saving import Saving
from weft.frontier.embedded.sites import Site
from weft.frontier.embedded.turns import Turns
from weft.frontier.journal import Journal, undamaged
from weft.frontier.requests import RequestLog, missing_bytes
from weft.records import POD_SHIFT, Found, Purpose, Reason
from weft.removal import Trash

REMEMBERED_REFUSALS = 100_000
CHECKPOINT_EVERY = 500_000  # journal lines between checkpoints; a large frontier waits longer, close() less
SAVED_BESIDE_FROM = 100_000  # URLs, queued and seen: fewer are written down in some milliseconds
MOST_REPLAYED = 3  # times the lines between checkpoints: close() leaves at most this many to the next start
FROM_STORE = "from_store"  # in the journal's meta: the frontier was rebuilt, stored pages' links are yet to be admitted


if TYPE_CHECKING:
    from weft.frontier.embedded.leases import LiveLease


class State:
    """The files and counters; `leases`, `crawls` and `frontier` build on it."""

    def __init__(
        self,
        folder: Path,
        section: PolitenessSection,
        *,
        pod: int = 0,
        revision: int = 0,
        checkpoint_every: int = CHECKPOINT_EVERY,
        most_awake: int = MOST_AWAKE,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        machine: MachineClock | None = None,
        alive: Alive = silent,
    ) -> None:
        """`machine`: the clock that all processes of a user share; it goes by the machine's monotonic time.

        `revision`: of the crawl's settings, for the request log. `alive` is called for each piece of work that grows
        with the crawl.
        """
        self._folder = folder
        self._alive = alive
        self._machine = machine or NoMachineClock()
        self._section = section
        self._clock = clock
        self._wall = wall
        self._latest = 0.0
        self._lock = _lock(folder)
        try:
            self._journal = Journal(folder / "frontier.db", alive)
        except BaseException:
            os.close(self._lock)
            raise
        # Links of stored pages may be missing here: those of the last pages after a power cut, all of them in a rebuilt
        # frontier (`weft rebuild --frontier`). See `restore_stored`.
        self.is_new = self._journal.meta(FROM_STORE) is not None
        self.unsure_of_links = self.is_new or self._journal.lost_tail
        trash = Trash(folder / "trash")
        trash.discard(folder / "spill")  # a cache, with a folder for each site that had a long queue
        self.epoch: int = (self._journal.meta("epoch") or 0) + 1
        self.acknowledged: int = self._journal.meta("acknowledged") or 0
        self._queues = Queues(section, self._journal, folder / "spill", self.now, wall)
        self._queues.most_awake = most_awake
        with undamaged(self._journal.path):
            records = self._journal.rows("crawls")
            self._by_name: dict[str, int] = {msgspec.msgpack.decode(data)["name"]: number for number, data in records}
        self._recovery = Recovery(folder, self._journal, self._queues, trash, alive)
        self._leases: dict[int, LiveLease] = {}
        self._turns = Turns()
        self._aside: dict[int, dict[int, Item]] = {}  # by crawl and number: what an edit has excluded
        self._is_recovered = False
        self._robots = RobotsFiles(self._journal, wall)
        self._cookies = KeptCookies(self._journal)
        self._counts = Counts(next_item=(pod << POD_SHIFT) + 1)
        self._next_transient = -1
        self._rejected: list[Rejection] = []
        self._rejected_out: dict[int, OpenItem] = {}  # rejected items whose rows are not stored yet
        self._unacknowledged: list[tuple[int, OpenItem]] = []
        self._checkpoint_every = checkpoint_every
        self._since_checkpoint = 0  # journal lines since one was begun
        self._unsaved = 0  # journal lines that the last whole checkpoint does not include: a start replays them
        self._unsaved_before = 0  # those of them that the one that is being written includes
        self.saved_beside_from = SAVED_BESIDE_FROM
        self._saving: Saving | None = None
        self._refusals_kept: Counter[int] = Counter()  # by crawl
        self._has_saved_sites = False  # in the journal, to be committed
        self._longest_saved_s = 0.0  # the journal's longest delay is this one at least
        self.unreadable_requests = 0  # lines of the request log; known after `recover`
        self.missing_log_bytes = missing_bytes(folder / "requests", self._journal.meta("request_log"))
        self._requests = RequestLog(folder / "requests", self.now(), revision)
        self._log_place = ("", 0)
        # Set by the engine, which can read robots.txt: of an origin's URLs those that it forbids, with the rules.
        self.forbids: Callable[[int, RobotsRecord, str, Sequence[str]], Mapping[str, str]] = lambda *_: {}

    def now(self) -> float:
        """Never runs backwards."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def note(self, name: str, value: str | None = None) -> str:
        """A string kept with the frontier; given a value, it is changed at the next commit."""
        if value is None:
            return str(self._journal.meta(f"note:{name}") or "")
        self._journal.put_meta(f"note:{name}", value)
        return value

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept with the crawl; `scope_extensions` gives them back."""
        extensions = self.scope_extensions(crawl)
        if url not in extensions:
            self._journal.put_meta(f"scope:{crawl}", [*extensions, url])
            self._commit_early()

    def scope_extensions(self, crawl: int) -> list[str]:
        """Where seeds' redirects have led."""
        return [str(url) for url in self._journal.meta(f"scope:{crawl}") or ()]

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """In the journal, for `weft explain`."""
        if self._refusals_kept[crawl] < REMEMBERED_REFUSALS:
            self._refusals_kept[crawl] += 1
            self._journal.refuse(crawl, reason, url, parent)

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps for which there was no room, up to a bound: for a crawl that may have more of them now."""
        return [
            Found(url, depth, 0, hops, Purpose.SITEMAP, about)
            for url, number, depth, hops, about in self._journal.rows("left_sitemaps")
            if number == crawl
        ]

    def knows_finished(self) -> Callable[[int], bool]:
        """What tells of an item whether the journal has its end."""
        return Finished(self._journal).__contains__

    def robots(self, origin: str) -> RobotsRecord | None:
        """From memory, else from the journal."""
        return self._robots.get(origin)

    def rejections(self) -> list[Rejection]:
        """Items removed from the queues, or not admitted, since the last call: store them, then call `ended`."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Ends rejected items whose rows are stored."""
        for item in items:
            self._end_item(self._rejected_out.pop(item), batch)

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are durable: the ends of their items go to the journal."""
        self.acknowledged = batch
        keep = []
        for number, out in self._unacknowledged:
            if number <= batch:
                self._end_for_good(out)
            else:
                keep.append((number, out))
        self._unacknowledged = keep
        self._journal.put_meta("acknowledged", batch)

    def commit(self) -> None:
        """Writes what was admitted and what has ended to the journal, and now and then a checkpoint."""
        self._requests.flush()
        self._since_checkpoint += self._journal.waiting
        self._unsaved += self._journal.waiting
        if self._requests.place != self._log_place:
            self._log_place = self._requests.place
            self._journal.put_meta("request_log", self._log_place)
        self._journal.commit()
        self._is_saving()
        if self._since_checkpoint > self._checkpoint_lines():
            self._checkpoint()

    def sync(self) -> None:
        """Makes what was committed safe against a power cut."""
        self._requests.sync()
        self._journal.sync()

    def close(self) -> None:
        """Commits, closes, and releases the folder's lock."""
        self.commit()
        self._close_checkpoint()
        self._queues.resting.close()
        self._requests.close()
        self._journal.close()
        self._machine.close()
        os.close(self._lock)

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        return self._queues.key_of(url)

    def _end_item(self, out: OpenItem, batch: int) -> None:
        if out.item.item < 0:
            return
        self._counts.finished += 1
        if batch:
            self._unacknowledged.append((batch, out))
        else:
            self._end_for_good(out)

    def _end_for_good(self, out: OpenItem) -> None:
        """It will not come back, whatever happens; until then its attempts are remembered."""
        self._journal.done[out.crawl].append(out.item.item)
        if out.item.attempt:
            self._journal.delete("retries", out.item.item)

    def _spill(self, crawl: int) -> Path:
        return self._folder / "spill" / str(crawl)

    def _save_site(self, site: Site) -> None:
        """What a site has asked for must survive a kill before the next regular commit: `_commit_sites` ends the call
        in which this happened."""
        self._queues.save(site)
        delay_s = site.clock.delay_s(self._section)
        if delay_s > self._longest_saved_s:
            self._longest_saved_s = max(delay_s, self._journal.latest_meta("longest_delay") or 0.0)
            self._journal.put_meta("longest_delay", self._longest_saved_s)
        self._has_saved_sites = True

    def _commit_sites(self) -> None:
        if self._has_saved_sites:
            self._commit_early()

    def _commit_early(self) -> None:
        self._has_saved_sites = False
        try:
            self._journal.commit()
        except DiskFull:
            pass  # the changes stay buffered; the next `commit` raises

    def _checkpoint_lines(self) -> int:
        """After how many journal lines a checkpoint is due."""
        return self._checkpoint_every + (self._queues.queued + self._counts.admitted // 8) // 10

    def _checkpoint(self) -> None:
        """Writes a checkpoint, a large one beside the crawl; everything must be committed."""
        if self._is_saving():
            return
        self._since_checkpoint = 0
        counts = msgspec.structs.replace(self._counts, finished=self._counts.finished - len(self._unacknowledged))
        if self._is_large():
            self._unsaved_before = self._unsaved
            self._saving = self._recovery.save_beside(counts, self._out)
            return
        try:
            self._recovery.save(counts, self._out)
            self._unsaved = 0
        except DiskFull:
            pass  # the journal has everything

    def _is_large(self) -> bool:
        """Whether a checkpoint takes longer than anyone should wait for."""
        size = self._queues.queued + sum(len(crawl.seen) for crawl in self._queues.crawls.values())
        return size >= self.saved_beside_from

    def _close_checkpoint(self) -> None:
        """The last checkpoint of this process. Writing down a large frontier takes 25 µs a site, so an end does not
        wait for it: the next start replays the journal instead, and begins one. Only where it would have to replay
        several times what lies between two checkpoints, because no process ran for long enough to write one, the end
        waits."""
        must_wait = self._unsaved > MOST_REPLAYED * self._checkpoint_lines()
        is_worth_it = self._unsaved > self._checkpoint_every // 25
        if self._saving is None and is_worth_it and (must_wait or not self._is_large()):
            self._checkpoint()
        if self._saving is not None:
            if must_wait:
                self._saving.wait(self._recovery.written, self._alive)
            else:
                self._saving.give_up()
        self._is_saving()

    def _is_saving(self, *, wait: bool = False) -> bool:
        """Whether a checkpoint is being written."""
        if self._saving is not None and self._saving.is_over(wait=wait):
            if self._saving.was_written:
                self._unsaved -= self._unsaved_before
            self._saving = None
            self._recovery.saved()
        return self._saving is not None

    def _out(self) -> list[OpenItem]:
        """What was taken out of its queue, and has not ended for good."""
        out = [OpenItem(state.lane.crawl.number, state.item) for state in self._leases.values() if state.item.item > 0]
        out += [one for _, one in self._unacknowledged]
        out += self._rejected_out.values()
        # Once they are taken back, no line of the journal says so.
        out += [OpenItem(crawl, item) for crawl, items in self._aside.items() for item in items.values()]
        return out

    def _transient(self) -> int:
        """A negative number, for an item that is not in the journal: a robots.txt request."""
        self._next_transient -= 1
        return self._next_transient


def _lock(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"data dir {folder}: cannot be used: {error.strerror}; choose another `data_dir`") from None
    if not try_lock(fd):
        os.close(fd)
        raise Busy(f"data dir {folder}: a crawl is running in it; stop it first, or choose another data dir") from None
    return fd
