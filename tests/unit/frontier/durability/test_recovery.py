"""What comes back from a checkpoint that is not the journal's last word: what test_recovery_model.py found, plainly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.errors import Damaged
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.durability.items import Bitmap
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Lease

ALWAYS, NEVER = -1_000_000, 1_000_000_000  # lines of the journal after which a checkpoint is due


class Lives:
    """One frontier through several processes, each killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 1000.0
        self.set_back_s = 0.0  # the clock on the wall
        self.crawl = 0
        self._lives = 0
        self.heartbeats = 0  # while the last one read what was left to it
        self._frontier: EmbeddedFrontier | None = None

    def next(self, checkpoint_every: int, limits: CrawlLimits | None = None) -> EmbeddedFrontier:
        """The next process, after the one before was killed."""
        if self._frontier is not None:
            self._lives += 1
            copy = self.folder.with_name(f"life{self._lives}")
            shutil.copytree(self.folder, copy)
            self._frontier.close()
            self.folder = copy
        section = PolitenessSection(delay_s=0.0, places=50, lease_s=1e6)
        frontier = EmbeddedFrontier(
            self.folder, section, checkpoint_every=checkpoint_every, clock=lambda: self.time,
            wall=lambda: 1_700_000_000.0 + self.time - self.set_back_s, alive=self._beat,
        )  # fmt: skip
        self.crawl = frontier.crawls.open_crawl("test", limits or CrawlLimits())
        self.heartbeats = 0
        frontier.recovery.recover()
        frontier.sites.robots_known("https://a", RobotsRecord("allow", b"", 9e12), None)
        self._frontier = frontier
        return frontier

    def _beat(self) -> None:
        self.heartbeats += 1

    def close(self) -> None:
        if self._frontier is not None:
            self._frontier.close()


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "life")


def end(
    frontier: EmbeddedFrontier, leases: list[Lease], how: End = End.PAGE, wait_s: float = 0.0, batch: int = 0
) -> None:
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True) for lease in leases])
    assert all(frontier.leases.finish([EndedLease(lease, how, wait_s) for lease in leases], batch))
    frontier.durability.commit()


def urls(leases: list[Lease]) -> list[str]:
    return [lease.url for lease in leases]


def test_what_ended_before_a_restart_stays_ended_over_the_next_checkpoint_and_restart(lives: Lives) -> None:
    frontier = lives.next(ALWAYS)
    frontier.queue.admit(lives.crawl, [Found(f"https://a/{number}", 0) for number in range(6)])
    frontier.durability.commit()
    frontier = lives.next(NEVER)
    end(frontier, frontier.leases.claim("me", 3))
    frontier = lives.next(ALWAYS)
    frontier.queue.admit(lives.crawl, [Found("https://a/6", 0)])
    frontier.durability.commit()  # a checkpoint, before anyone has come across those that have ended
    frontier = lives.next(NEVER)
    assert frontier.status.stats().finished == 3
    assert urls(frontier.leases.claim("me", 50)) == [f"https://a/{number}" for number in range(3, 7)]
    lives.close()


def test_a_page_whose_batch_was_never_safe_comes_back_also_where_depth_decides(lives: Lives) -> None:
    limits = CrawlLimits(max_depth=5)
    frontier = lives.next(ALWAYS, limits)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 0)])
    end(frontier, frontier.leases.claim("me", 1), batch=1)
    frontier = lives.next(NEVER, limits)
    assert frontier.status.stats().finished == 0
    assert urls(frontier.leases.claim("me", 50)) == ["https://a/1"]
    lives.close()


def test_a_page_that_was_found_by_a_shorter_way_while_it_was_leased_comes_back_there(lives: Lives) -> None:
    limits = CrawlLimits(max_depth=5)
    frontier = lives.next(ALWAYS, limits)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 4)])
    frontier.leases.claim("me", 1)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 2)])
    frontier.durability.commit()
    frontier = lives.next(NEVER, limits)
    assert [(lease.url, lease.depth) for lease in frontier.leases.claim("me", 50)] == [("https://a/1", 2)]
    assert frontier.status.stats().queued == 0
    lives.close()


def test_a_page_that_was_out_when_all_was_killed_is_fetched_before_what_came_later(lives: Lives) -> None:
    frontier = lives.next(ALWAYS)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 0)])
    frontier.leases.claim("me", 1)
    frontier.queue.admit(lives.crawl, [Found("https://a/target", 0, hops=1)])
    frontier.durability.commit()
    frontier = lives.next(NEVER)
    assert urls(frontier.leases.claim("me", 1)) == ["https://a/1"]
    lives.close()


@pytest.mark.parametrize("hops", [0, 1])
def test_a_page_that_moved_up_and_was_tried_waits_its_time_after_a_restart(lives: Lives, hops: int) -> None:
    limits = CrawlLimits(max_depth=5)
    frontier = lives.next(ALWAYS, limits)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 4, hops=hops)])
    frontier.durability.commit()
    frontier = lives.next(NEVER, limits)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 2, hops=hops)])
    end(frontier, frontier.leases.claim("me", 1), End.RETRY, wait_s=30.0)
    frontier = lives.next(NEVER, limits)
    lives.time += 29
    assert frontier.leases.claim("me", 50) == []
    lives.time += 2
    assert [(lease.depth, lease.attempt) for lease in frontier.leases.claim("me", 50)] == [(2, 1)]
    lives.close()


@pytest.mark.parametrize("checkpoints", [(NEVER, NEVER), (ALWAYS, NEVER), (NEVER, ALWAYS)])
def test_a_page_that_was_tried_comes_back_though_the_clock_was_set_back(
    lives: Lives, checkpoints: tuple[int, int]
) -> None:
    """Whether the journal, a checkpoint of before the try or one of after it tells of the page."""
    frontier = lives.next(checkpoints[0])
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 0)])
    frontier.durability.commit()
    frontier = lives.next(checkpoints[1])
    end(frontier, frontier.leases.claim("me", 1), End.RETRY, wait_s=30.0)
    lives.set_back_s = 1e7
    frontier = lives.next(NEVER)
    assert frontier.leases.claim("me", 50) == []
    lives.time += PolitenessSection(delay_s=0.0, places=1).max_retry_after_s + 61
    assert [(lease.url, lease.attempt) for lease in frontier.leases.claim("me", 50)] == [("https://a/1", 1)]
    lives.close()


def test_the_first_page_after_a_checkpoint_of_nothing_is_not_lost(lives: Lives) -> None:
    frontier = lives.next(ALWAYS)
    frontier.durability.commit()
    frontier = lives.next(NEVER)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 0)])
    frontier.durability.commit()
    frontier = lives.next(NEVER)
    leases = frontier.leases.claim("me", 50)
    assert urls(leases) == ["https://a/1"]
    end(frontier, leases)
    frontier = lives.next(NEVER)
    assert frontier.status.stats().finished == 1
    assert frontier.leases.claim("me", 50) == []
    lives.close()


def test_a_bitmap_is_a_set_of_numbers() -> None:
    items = [1, 7, 8, 65_535, 65_536, 65_537, 3 << 40, (3 << 40) + 5]
    bitmap = Bitmap()
    assert not bitmap
    assert bitmap.add(items) == len(items)
    assert bitmap
    near = {item + step for item in items for step in (-8, -1, 0, 1, 8, 65_536)}
    assert {item for item in near if item in bitmap} == set(items)
    copy = Bitmap(bitmap.blocks())
    copy.add([2])
    assert {item for item in near | {2} if item in copy} == {*items, 2}
    assert 2 not in bitmap


@pytest.mark.parametrize("checkpoint_every", [NEVER, ALWAYS])
def test_who_reads_a_long_journal_or_a_checkpoint_tells_that_it_is_alive(lives: Lives, checkpoint_every: int) -> None:
    frontier = lives.next(checkpoint_every)
    for page in range(20):
        frontier.queue.admit(lives.crawl, [Found(f"https://a/{page}", 1)])
        frontier.durability.commit()
    lives.next(NEVER)
    assert lives.heartbeats >= (20 if checkpoint_every == NEVER else 1)
    lives.close()


def test_a_checkpoint_is_closed_before_the_journal_behind_it_is_read(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, checkpoint_every in enumerate((ALWAYS, NEVER)):
        frontier = lives.next(checkpoint_every)
        frontier.queue.admit(lives.crawl, [Found(f"https://a/{number}", 0)])
        frontier.durability.commit()
    held: list[bool] = []

    def look() -> None:
        held.append(any(link.resolve().name == "checkpoint" for link in Path("/proc/self/fd").iterdir()))

    monkeypatch.setattr(lives, "_beat", look)
    assert urls(lives.next(NEVER).leases.claim("me", 9)) == ["https://a/0", "https://a/1"]
    assert (True in held, held[-1]) == (True, False)
    lives.close()


@pytest.mark.parametrize("others", [0, 5])
@pytest.mark.parametrize("checkpoint_every", [NEVER, ALWAYS])
def test_numbers_go_on_beyond_those_of_a_crawl_that_is_not_open(
    lives: Lives, checkpoint_every: int, others: int
) -> None:
    frontier = lives.next(checkpoint_every)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 0)])
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    frontier.queue.admit(other, [Found(f"https://a/{number}", 0) for number in range(others)])
    frontier.durability.commit()
    last = max((item.item for item in frontier.queue.items(other)), default=1)
    frontier = lives.next(checkpoint_every)
    frontier.queue.admit(lives.crawl, [Found("https://a/2", 0)])
    assert [item.item for item in frontier.queue.items(lives.crawl)] == [1, last + 1]
    lives.close()


@pytest.mark.parametrize("checkpoint_every", [NEVER, ALWAYS])
def test_lines_of_the_journal_are_numbered_on_though_the_last_ones_were_forgotten(
    lives: Lives, checkpoint_every: int
) -> None:
    """A checkpoint tells by their numbers which of them it has."""
    frontier = lives.next(checkpoint_every)
    frontier.queue.admit(lives.crawl, [Found("https://a/1", 0)])
    frontier.durability.commit()
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    for number in range(5):
        frontier.queue.admit(other, [Found(f"https://a/{number}", 0)])
        frontier.durability.commit()
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    frontier.durability.commit()
    while not frontier.crawls.forget_crawls([other]):
        pass
    for number in (2, 3):
        frontier = lives.next(NEVER)
        frontier.queue.admit(lives.crawl, [Found(f"https://a/{number}", 0)])
        frontier.durability.commit()
    frontier = lives.next(NEVER)
    assert sorted(item.url for item in frontier.queue.items(lives.crawl)) == [
        f"https://a/{number}" for number in (1, 2, 3)
    ]
    lives.close()


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_journal_that_does_not_have_a_stored_page_is_damaged(tmp_path: Path, ahead: int) -> None:
    section = PolitenessSection(delay_s=0.0, places=1)
    for done in ((), (3 + ahead,)):
        frontier = EmbeddedFrontier(tmp_path, section)
        crawl = frontier.crawls.open_crawl("test", CrawlLimits())
        if ahead and done:
            with pytest.raises(Damaged, match="does not have what was fetched last"):
                frontier.recovery.recover(done)
        else:
            frontier.recovery.recover(done)
            frontier.queue.admit(crawl, [Found(f"https://a/{number}", 0) for number in range(3)])
        frontier.close()
