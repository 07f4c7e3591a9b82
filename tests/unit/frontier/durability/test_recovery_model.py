"""A frontier that is killed again and again, beside a simple model of what it must still know.

Random work from a seed: pages, redirects and sitemaps come in, leases end in every way, sites ask for less, batches are
acknowledged; then the process is killed, and the next one comes back from the journal alone, or from a checkpoint that
is fresh, or from one that several processes are older than. Whatever the way, what is queued is what was admitted less
what has ended, with its attempts and waits, and nothing that was seen is new.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Lease, Purpose

WALL = 1_700_000_000.0
HOSTS = [f"https://{name}.example{number % 4}.com" for number, name in enumerate("abcdefgh")] + [
    "https://s.example.org"
]
ALWAYS, NEVER = -1_000_000, 1_000_000_000


class Entry(NamedTuple):
    """What must come back of an item."""

    url: str
    depth: int
    parent: int
    hops: int
    purpose: Purpose
    about: str
    offsite: int
    attempt: int
    not_before: float


class Model:
    """Drives one frontier through several lives."""

    def __init__(self, folder: Path, seed: int, max_depth: int | None) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.limits = CrawlLimits(max_depth=max_depth)
        self.time = 1000.0
        self.lives = 0
        self.queued: dict[int, Entry] = {}  # committed or not: every round ends with a commit
        self.waits_for_batch: dict[int, list[int]] = {}
        self.ended: set[int] = set()
        self.tries_forgotten: set[int] = set()  # they ended, but not for good: their tries may begin anew
        self.batch = 0
        self.item_of: dict[str, int] = {}
        self.names = 0

    def open(self, every: int) -> EmbeddedFrontier:
        section = PolitenessSection(delay_s=0.5, places=2, breaker_failures=1000, lease_s=10_000.0)
        frontier = EmbeddedFrontier(
            self.folder, section, checkpoint_every=every, max_in_memory=self.chance.choice((1, 3, 10_000)),
            clock=lambda: self.time, wall=lambda: WALL + self.time,
        )  # fmt: skip
        self.crawl = frontier.crawls.open_crawl("test", self.limits)
        frontier.recovery.recover()
        self.frontier = frontier
        return frontier

    def live(self, every: int) -> None:
        """One process's life, up to its kill."""
        self.open(every)
        for _ in range(self.chance.randint(1, 6)):
            self.admit()
            for _ in range(3):
                self.work()
                self.time += self.chance.choice((0.0, 0.6, 5.0))
            self.frontier.durability.commit()

    def kill(self) -> None:
        """The files as they are; what was leased, or ended and not acknowledged, comes back."""
        self.lives += 1
        copy = self.folder.with_name(f"life{self.lives}")
        shutil.copytree(self.folder, copy)
        self.frontier.close()
        self.folder = copy
        self.waits_for_batch.clear()

    # ── work ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self) -> None:
        found = [self.invented() for _ in range(self.chance.randint(0, 25))]
        for one in found:
            known = {"sitemap": "sitemap "}.get(one.purpose.value, "") + one.url
            entry = self.queued.get(self.item_of.get(known, 0))
            if self.limits.max_depth is not None and entry is not None and entry.attempt:
                continue  # one that has been tried and then moves up begins its tries anew until the next restart
            before = self.frontier.status.stats().admitted
            admission = self.frontier.queue.admit(self.crawl, [one])
            if known in self.item_of:
                assert admission.new == 0, one
                self.moved_up(self.item_of[known], one, admission.expand)
                continue
            assert admission.new == 1, one
            assert self.frontier.status.stats().admitted == before + 1
            item = len(self.item_of) + 1
            self.item_of[known] = item
            self.queued[item] = Entry(
                one.url, one.depth, one.parent, one.hops, one.purpose, one.about, one.offsite, 0, 0.0
            )

    def invented(self) -> Found:
        self.names += self.chance.random() < 0.8
        host, depth = self.chance.choice(HOSTS), self.chance.randint(0, 4)
        url = f"{HOSTS[self.names % len(HOSTS)]}/page/{self.names}"
        kind = self.chance.random()
        if kind < 0.1:
            return Found(f"{host}/map/{self.names}.xml", 0, purpose=Purpose.SITEMAP, about=host)
        if kind < 0.2:
            return Found(url, depth, 3, 2, about=f"{host}/from/{self.names}")
        return Found(url, depth, self.chance.randint(0, 9), offsite=self.chance.choice((0, 0, 0, 1)))

    def moved_up(self, item: int, found: Found, expand: tuple[tuple[int, str, int], ...]) -> None:
        """Where depth decides, a shorter way counts; what was fetched is to be expanded again."""
        if self.limits.max_depth is None or found.purpose is not Purpose.PAGE:
            assert expand == ()
            return
        entry = self.queued.get(item)
        if item in self.ended:
            return
        assert entry is not None
        if found.depth < entry.depth:
            self.queued[item] = entry._replace(depth=found.depth)

    def work(self) -> None:
        for lease in self.frontier.leases.claim("me", self.chance.randint(0, 12)):
            if lease.purpose is Purpose.ROBOTS:
                self.answer_robots(lease)
            elif self.chance.random() < 0.8:
                self.end(lease)
        if self.chance.random() < 0.5:
            acknowledged = self.batch
            self.frontier.durability.acknowledge(acknowledged)
            for batch in [batch for batch in self.waits_for_batch if batch <= acknowledged]:
                for item in self.waits_for_batch.pop(batch):
                    self.over(item)

    def answer_robots(self, lease: Lease) -> None:
        self.frontier.leases.cool([TransferEnd(lease, self.time, ok=True)])
        self.frontier.sites.robots_known(lease.about, RobotsRecord("allow", b"", 9e12), None)
        self.frontier.leases.finish([EndedLease(lease, End.OTHER)])

    def end(self, lease: Lease) -> None:
        if lease.item not in self.queued:
            raise AssertionError(f"claimed twice: {lease}")
        slow = self.chance.random() < 0.05
        self.frontier.leases.cool([TransferEnd(lease, self.time, ok=True, slow_down=slow)])
        end = self.chance.choice((End.PAGE, End.OTHER, End.RETRY, End.RELEASE, End.PAGE))
        wait_s = self.chance.choice((0.0, 3.0, 400.0)) if end is End.RETRY else 0.0
        batch = 0
        if end in (End.PAGE, End.OTHER) and self.chance.random() < 0.6:
            self.batch += 1
            batch = self.batch
        assert self.frontier.leases.finish([EndedLease(lease, end, wait_s)], batch) == [True]
        if end is End.RETRY:
            entry = self.queued[lease.item]
            self.queued[lease.item] = entry._replace(attempt=lease.attempt + 1, not_before=self.time + wait_s)
        elif end is not End.RELEASE:
            if batch:
                self.tries_forgotten.add(lease.item)
                self.waits_for_batch.setdefault(batch, []).append(lease.item)
            else:
                self.over(lease.item)

    def over(self, item: int) -> None:
        del self.queued[item]
        self.ended.add(item)

    # ── judging ────────────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self, *, with_checkpoint: bool) -> None:
        """Opens a copy, and lets everything that is queued come out of it."""
        copy = self.folder.with_name(f"judged{self.lives}{with_checkpoint}")
        shutil.copytree(self.folder, copy)
        if not with_checkpoint:
            (copy / "checkpoint").unlink(missing_ok=True)
        mine, self.folder = self.folder, copy
        before = self.time
        frontier = self.open(NEVER)
        stats = frontier.status.stats()
        assert (stats.admitted, stats.finished, stats.seen) == (
            len(self.item_of), len(self.ended), len(self.item_of),
        )  # fmt: skip
        came = self.drained(frontier)
        assert self.told(came) == self.told(self.queued)
        early = {
            item: (came[item].not_before, entry.not_before)
            for item, entry in self.queued.items()
            if came[item].not_before < entry.not_before - 0.001 and item not in self.tries_forgotten
        }
        assert early == {}
        assert frontier.status.stats().finished == len(self.item_of)
        assert frontier.status.stats().queued == 0
        frontier.close()
        self.time, self.folder = before, mine

    def told(self, entries: dict[int, Entry]) -> dict[int, Entry]:
        """Without times; where depth decides, by which of its ways an item was found is left open."""
        entries = {
            item: entry._replace(not_before=0.0, attempt=-1 if item in self.tries_forgotten else entry.attempt)
            for item, entry in entries.items()
        }
        if self.limits.max_depth is not None:
            return {item: entry._replace(parent=0, hops=0, about="", offsite=0) for item, entry in entries.items()}
        return entries

    def drained(self, frontier: EmbeddedFrontier) -> dict[int, Entry]:
        came: dict[int, Entry] = {}
        while (due := frontier.leases.next_due()) is not None:
            self.time = max(self.time, due) + 0.01
            for lease in frontier.leases.claim("judge", 100):
                if lease.purpose is Purpose.ROBOTS:
                    self.answer_robots(lease)
                    continue
                assert lease.item not in came
                came[lease.item] = Entry(
                    lease.url, lease.depth, lease.parent, lease.hops, lease.purpose, lease.about, lease.offsite,
                    lease.attempt, self.time,
                )  # fmt: skip
                frontier.leases.cool([TransferEnd(lease, self.time, ok=True)])
                assert frontier.leases.finish([EndedLease(lease, End.OTHER)]) == [True]
        return came


@pytest.mark.parametrize("max_depth", [None, 9])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_or_repeated_however_the_frontier_comes_back(
    tmp_path: Path, seed: int, max_depth: int | None
) -> None:
    model = Model(tmp_path / "life", seed, max_depth)
    for life in range(5):
        model.live(model.chance.choice((ALWAYS, NEVER)) if life else ALWAYS)
        model.kill()
        model.judge(with_checkpoint=True)
        model.judge(with_checkpoint=False)
    assert len(model.ended) > 10
    assert len(model.queued) > 10
