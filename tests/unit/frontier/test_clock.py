"""The machine's politeness clock: what one process has asked, another waits for; and nobody waits for the dead."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.frontier import clock as clock_module
from weft.frontier.clock import CELL_COUNT, REREAD_S, RESERVED_TURN_S, MachineClock, UnusableClock, default_clock_path
from weft.frontier.politeness import LONG_WAIT_IN_DELAYS

Open = Callable[[], MachineClock]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    made: list[MachineClock] = []

    def make() -> MachineClock:
        made.append(MachineClock(tmp_path / "clock", me=os.getpid() << 32 | len(made) + 1))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(clock: MachineClock, now: float, delay_s: float = 1.0, *, alone: bool = True, key: str = "a") -> float:
    return clock.due(key, now, delay_s, alone=alone)


def test_anothers_request_is_waited_for_ones_own_is_not(opened: Open) -> None:
    mine, yours = opened(), opened()
    assert ask(mine, 10.0) <= 10.0
    mine.started("a", 10.0, 60.0)
    assert ask(mine, 10.1) <= 10.1, "its own clock knows better"
    mine.ended([("a", 10.2, 0.0)])
    assert ask(yours, 10.3) == 11.2
    assert ask(yours, 10.3, delay_s=5.0) == 15.2, "the delay of the one who asks"
    assert ask(yours, 10.3, key="b") <= 10.3


def test_what_is_in_flight_is_waited_for_by_those_who_want_to_be_alone(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    assert ask(yours, 20.0) == 20.0 + REREAD_S
    assert ask(yours, 20.0, alone=False) <= 20.0
    assert ask(yours, 71.0) <= 71.0, "a request that was never seen to end is over at its time"


def test_a_process_is_known_by_its_number(tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", lambda size: b"\xff" * size)
        mine, yours = MachineClock(tmp_path / "clock"), opened()
    mine.started("a", 10.0, 60.0)
    assert ask(yours, 20.0) == 20.0 + REREAD_S, "it lives"
    assert mine._own_process == os.getpid() << 32 | 0xFFFFFFFF, "with a random number that leaves it as it is"
    mine.close()


def test_no_key_is_kept_where_the_table_tells_of_itself(opened: Open) -> None:
    clock = opened()
    first = next(key for key in map(str, range(1 << 22)) if clock.cell_of(key) == 0)
    clock.started(first, 10.0, 60.0)
    assert ask(opened(), 20.0, key=first) > 20.0, "the table is still good for one who comes later"


def test_the_dead_hold_nobody_up(tmp_path: Path, opened: Open) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    dead = MachineClock(tmp_path / "clock", me=gone.pid << 32 | 7)
    dead.started("a", 10.0, 600.0)
    dead.close()
    living = opened()
    assert ask(living, 10.5) == 11.0, "its delay is kept"
    assert ask(living, 11.5) <= 11.5


def test_one_insists_from_the_moment_that_it_has_waited_long(opened: Open) -> None:
    fast, slow = opened(), opened()
    fast.started("a", 10.0, 60.0)
    fast.ended([("a", 10.0, 0.0)])
    slow_due = ask(slow, 10.0, delay_s=1.0)
    insists_at = 10.0 + LONG_WAIT_IN_DELAYS * 1.0
    for now in (insists_at - 0.5, insists_at):
        fast.started("a", now - 0.25, 60.0)
        fast.ended([("a", now - 0.25, 0.0)])
        slow_due = ask(slow, now - 0.25, delay_s=1.0)
        assert slow_due == now + 0.75
        assert (ask(fast, now, delay_s=0.0) > now) == (now == insists_at)


def test_silence_binds_the_others(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    mine.ended([("a", 10.1, 500.0)])
    assert ask(yours, 20.0) == 500.0 and ask(yours, 20.0, delay_s=0.0) == 500.0


def test_no_silence_is_kept_for_longer_than_anyone_waits(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    mine.ended([("a", 10.0, 9_999_999_999.0)])
    assert ask(yours, 20.0) == 610.0, "not for 317 years"
    mine.ended([("a", 11.0, 300.0)])
    assert ask(yours, 20.0) == 610.0, "a shorter one takes nothing back"


def test_a_silence_is_of_its_own_key_alone_and_a_collision_costs_a_delay(opened: Open) -> None:
    mine, yours = opened(), opened()
    cell = mine.cell_of("victim")
    other, third = islice((key for key in map(str, range(1 << 22)) if mine.cell_of(key) == cell), 2)
    for key, until in ((other, 400.0), (third, 500.0)):
        mine.started(key, 10.0, 60.0)
        mine.ended([(key, 10.0, until)])
    assert ask(yours, 10.5, key="victim") == 11.0, "a delay, and no silence"
    assert ask(yours, 100.0, key=other) == 400.0 and ask(yours, 100.0, key=third) == 500.0, "both are kept"


def test_the_cell_of_a_name_is_another_in_each_table(tmp_path: Path) -> None:
    """Or a hostile name could be chosen for the cell of its victim."""
    tables = [MachineClock(tmp_path / name) for name in "ab"]
    again = MachineClock(tmp_path / "a")
    cells = [[clock.cell_of(str(key)) for key in range(8)] for clock in (*tables, again)]
    assert cells[0] != cells[1] and cells[0] == cells[2]
    for clock in (*tables, again):
        clock.close()


def test_the_times_of_a_wrong_clock_are_not_waited_for(opened: Open) -> None:
    wrong, right = opened(), opened()
    wrong.started("a", 9e9, 60.0)
    assert ask(right, 10.0, alone=False) <= 10.0, "a last request in the future is void"
    wrong.ended([("a", 9e9, 9e9 + 300.0)])
    assert ask(right, 10.0) == 610.0, "its silence ends as one of a right clock would"
    assert ask(right, 300.0) == 610.0, "and is not put off again"
    assert ask(right, 610.0) <= 610.0
    right.ended([("a", 611.0, 0.0)])
    third = opened()
    assert ask(third, 611.5) == 612.0, "a right time replaces the wrong one"


@settings(max_examples=200)
@given(st.lists(st.binary(min_size=8, max_size=8), min_size=12, max_size=12), st.sampled_from([0.0, 1.0, 30.0]))
def test_whatever_a_cell_holds_it_holds_nobody_up_for_long(words: list[bytes], delay_s: float) -> None:
    """Bytes of a stranger, or of another version: pids, times that are no numbers, huge counts."""
    path = Path(os.environ["WEFT_RUNTIME_DIR"]) / "stranger"
    clock = MachineClock(path, me=os.getpid() << 32 | 1)
    size = path.stat().st_size // (CELL_COUNT + 1)
    with path.open("r+b") as file:
        file.seek((1 + clock.cell_of("a")) * size)
        file.write(b"".join(words)[:size])
    now = begun = 1000.0
    while (due := ask(clock, now, delay_s)) > now:
        assert due - now <= 600.0 + RESERVED_TURN_S, "no time is put off by more"
        now = due
        assert now - begun <= 2 * (600.0 + RESERVED_TURN_S) + 90.0
    clock.started("a", now, 60.0)
    clock.ended([("a", now, 0.0)])
    clock.close()


def test_the_turn_of_a_dead_process_is_not_waited_for(tmp_path: Path, opened: Open) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    mine, dead = opened(), MachineClock(tmp_path / "clock", me=gone.pid << 32 | 7)
    mine.started("a", 10.0, 0.0)
    assert ask(dead, 10.0, 1.0) == 11.0, "its turn"
    dead.close()
    assert ask(mine, 11.0) <= 11.0


def test_who_waits_goes_first_when_its_time_comes(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    mine.ended([("a", 10.0, 0.0)])
    assert ask(yours, 10.5) == 11.0
    assert ask(mine, 11.0) > 11.0, "it is the other's turn"
    assert ask(yours, 11.0) <= 11.0
    yours.started("a", 11.0, 60.0)
    yours.ended([("a", 11.0, 0.0)])
    assert ask(mine, 11.5) == 12.0


def test_who_may_ask_at_once_is_not_put_down_for_a_turn(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    mine.ended([("a", 10.0, 0.0)])
    assert ask(yours, 11.0) == 11.0
    assert ask(mine, 11.0) <= 11.0, "nobody waits"


def test_a_turn_that_is_not_taken_lapses(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    mine.ended([("a", 10.0, 0.0)])
    ask(yours, 10.5)
    assert ask(mine, 11.9) > 11.9
    assert ask(mine, 11.0 + RESERVED_TURN_S) <= 11.0 + RESERVED_TURN_S


def test_one_without_a_delay_is_held_up_only_by_one_that_has_waited_long(opened: Open) -> None:
    fast, slow = opened(), opened()
    now, fast_asks, slow_asked = 100.0, 0, 0.0
    due_again = now
    while not slow_asked and now < 150.0:
        if ask(fast, now, 0.0) <= now:
            fast.started("a", now, 60.0)
            fast.ended([("a", now, 0.0)])
            fast_asks += 1
        if now >= due_again:
            due_again = ask(slow, now, 1.0)
            if due_again <= now:
                slow.started("a", now, 60.0)
                slow_asked = now
        now += 0.01
    assert 0 < slow_asked - 100.0 < LONG_WAIT_IN_DELAYS + 3 * RESERVED_TURN_S
    assert fast_asks > 500, "until then it went on nearly undisturbed"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 0.4)), min_size=20, max_size=120), st.data())
def test_no_gap_is_shorter_than_the_askers_delay(steps: list[tuple[int, float]], data: st.DataObject) -> None:
    folder = Path(os.environ["WEFT_RUNTIME_DIR"]) / f"t{next(_NUMBERS)}"
    folder.mkdir()
    delays = data.draw(st.tuples(*[st.sampled_from([0.2, 1.0, 1.7])] * 3))
    clocks = [MachineClock(folder / "clock", me=os.getpid() << 32 | number + 1) for number in range(3)]
    own_due = [0.0] * 3
    asked: list[tuple[float, float, int]] = []
    now = 1.0
    for who, passed in steps:
        now += passed
        with clocks[who].locked() as may:
            assert may
            if now >= own_due[who] and ask(clocks[who], now, delays[who]) <= now:
                clocks[who].started("a", now, 60.0)
                clocks[who].ended([("a", now + 0.05, 0.0)])
                own_due[who] = now + 0.05 + delays[who]
                asked.append((now, now + 0.05, who))
    for (_, ended, before), (started, _, who) in pairwise(asked):
        assert started - ended >= delays[who] - 1e-9, (before, who)
    for one in clocks:
        one.close()


_NUMBERS = count()


def test_a_lock_that_somebody_keeps_is_told_and_waited_for_shortly(opened: Open) -> None:
    mine, yours = opened(), opened()
    with mine.locked() as first, yours.locked() as second:
        assert (first, second) == (True, False)
    with yours.locked() as now:
        assert now


def test_a_table_of_an_earlier_boot_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "boot_id"
    monkeypatch.setattr(clock_module, "_BOOT_ID_FILE", told)
    for boot, due in (("0e7a-1", 0.0), ("0e7a-1", 11.0), ("0e7a-2", 0.0)):
        told.write_text(f"{boot}\n")
        clock = MachineClock(tmp_path / "clock")
        assert ask(clock, 10.5) == due
        clock.started("a", 10.0, 0.0)
        clock.close()


def test_what_cannot_be_used_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableClock, match=r"Not a directory|File exists"):
        MachineClock(tmp_path / "file" / "clock")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UnusableClock, match="somebody else"):
        MachineClock(tmp_path / "link" / "clock")
    (tmp_path / "real" / "clock").symlink_to(tmp_path / "file")
    with pytest.raises(UnusableClock):
        MachineClock(tmp_path / "real" / "clock")
    monkeypatch.delenv("WEFT_RUNTIME_DIR")
    assert f"weft-{os.getuid()}" in str(default_clock_path())


def test_a_lock_that_is_held_is_held_to_the_end_of_the_batch(opened: Open) -> None:
    mine, yours = opened(), opened()
    with mine.locked():
        mine.started("a", 10.0, 60.0)
        mine.ended([("a", 10.1, 0.0)])  # takes the lock itself
        with mine.locked() as still:
            assert still
        with yours.locked() as now:
            assert not now


def test_each_batch_takes_the_lock_anew(opened: Open) -> None:
    mine, yours = opened(), opened()
    with mine.locked():
        pass
    with yours.locked(), mine.locked() as now:
        assert not now


def test_a_turn_that_was_taken_holds_nobody_up(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 0.0)
    assert ask(yours, 10.5) == 11.0, "its turn"
    yours.started("a", 11.0, 0.0)
    assert ask(mine, 11.375, delay_s=0.25) == 11.25, "at once, by the delay of the one who asks"


def test_only_ones_own_requests_are_counted_down(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.ended([("a", 5.0, 0.0)])  # nothing was in flight
    mine.started("a", 10.0, 60.0)
    yours.ended([("a", 10.0, 0.0)])
    assert ask(yours, 30.0) > 30.0, "the other's is still in flight"
    mine.started("a", 31.0, 60.0)
    mine.ended([("a", 31.0, 0.0)])
    assert ask(yours, 50.0) > 50.0, "one of two"
    mine.ended([("a", 50.0, 0.0)])
    assert ask(yours, 51.0) <= 51.0


@pytest.mark.parametrize("number", [0, 1, CELL_COUNT // 2, CELL_COUNT - 1])
def test_every_cell_can_be_used(opened: Open, number: int) -> None:
    mine, yours = opened(), opened()
    key = next(key for key in map(str, range(1 << 22)) if mine.cell_of(key) == number)
    mine.started(key, 10.0, 60.0)
    mine.ended([(key, 10.0, 500.0)])
    assert ask(yours, 10.5, key=key) == 500.0


def test_what_one_cell_holds_is_not_taken_for_its_neighbours(opened: Open) -> None:
    """The words of a cell lie between those of two others, of which each may be anything."""
    mine, yours, third = opened(), opened(), opened()
    cells = {mine.cell_of(key): key for key in map(str, range(1 << 12))}
    low = next(cell for cell in sorted(cells) if {cell + 1, cell + 2} <= cells.keys())
    for key in (cells[low], cells[low + 2]):
        mine.started(key, 1000.0, 600.0)
        mine.ended([(key, 1000.0, 1500.0)])
        mine.started(key, 1000.0, 600.0)
        assert ask(third, 1000.0, key=key) == 1500.0, "it waits for its turn"
    key = cells[low + 1]
    assert ask(yours, 10.0, key=key) == 0.0, "nobody has asked there"
    yours.started(key, 10.0, 60.0)
    assert ask(mine, 20.0, key=key) == 20.0 + REREAD_S
    yours.ended([(key, 20.0, 0.0)])
    assert ask(mine, 20.5, key=key) == 21.0
    assert ask(third, 21.0, key=key) == 21.0 + REREAD_S, "the turn of another"
    for key in (cells[low], cells[low + 2]):
        assert ask(yours, 1000.0, key=key) == 1000.0 + REREAD_S or ask(yours, 1000.0, key=key) == 1500.0


@pytest.mark.parametrize("delay_s", [0.5, 2.0])
def test_who_has_waited_ten_delays_of_its_own_insists(opened: Open, delay_s: float) -> None:
    fast, slow = opened(), opened()
    insists_at = 10.0 + LONG_WAIT_IN_DELAYS * delay_s
    fast.started("a", 10.0, 0.0)
    assert ask(slow, 10.0, delay_s) == 10.0 + delay_s
    for now in (insists_at - 0.25, insists_at):
        fast.started("a", now, 0.0)
        assert ask(slow, now, delay_s) == now + delay_s
        assert (ask(fast, now, 0.0) > now) == (now == insists_at)


def test_another_goes_first_only_within_ones_own_delay(opened: Open) -> None:
    quick, slow = opened(), opened()
    quick.started("a", 10.0, 0.0)
    assert ask(slow, 10.0, 4.0) == 14.0, "its turn"
    assert ask(quick, 12.0, 1.5) == 0.0, "which is too far for one with a short delay"
    assert ask(quick, 12.0, 2.0) == 12.0 + REREAD_S, "and no further than a longer one"
    assert ask(quick, 14.95, 2.0) == 14.0 + RESERVED_TURN_S, "it looks again when the turn lapses"


def test_one_without_a_delay_does_not_wait_for_what_is_in_flight(opened: Open) -> None:
    mine, yours = opened(), opened()
    mine.started("a", 10.0, 60.0)
    assert ask(yours, 20.0, 0.0) <= 20.0
    assert ask(yours, 70.0) <= 70.0, "at its time it is over"
    mine.ended([("a", 20.0, 0.0)])
    mine.started("b", 10.0, 60.0)
    mine.ended([("b", 10.0, 0.0)])
    assert ask(yours, 20.0, key="b") <= 20.0, "nothing is in flight, although one might have lasted until now"


class Watch:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.then: Callable[[], object] = bool

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.then()


def test_a_lock_is_waited_for_as_long_as_a_batch_may_take(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(clock_module, "time", watch)
    mine, yours = opened(), opened()
    with mine.locked(), yours.locked() as second:
        assert not second and 0.04 < watch.now < 0.06
    batch = mine.locked()
    batch.__enter__()
    watch.then = lambda: batch.__exit__(None, None, None)
    with yours.locked() as now:
        assert now, "the other's batch has ended meanwhile"


def test_the_table_is_where_all_of_a_users_processes_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_RUNTIME_DIR", str(tmp_path / "named"))
    assert default_clock_path() == tmp_path / "named" / "clock-2"
    monkeypatch.delenv("WEFT_RUNTIME_DIR")
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for folders, used in (("folder", "other"), "folder"), (("file", "folder"), "folder"), (("none", "other"), "other"):
        monkeypatch.setattr(clock_module, "_DEFAULT_FOLDERS", tuple(tmp_path / name for name in folders))
        assert default_clock_path() == tmp_path / used / f"weft-{os.getuid()}" / "clock-2"


def test_the_table_is_its_users_alone_and_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "clock"

    def held() -> int:
        files = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        return files.count(str(path)) + Path("/proc/self/maps").read_text().count(str(path))

    before = os.umask(0)
    try:
        clock = MachineClock(path)
    finally:
        os.umask(before)
    assert [path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777] == [0o700, 0o600]
    assert held() > 1
    clock.close()
    assert held() == 0

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(clock_module, "_prepare_table", full)
    with pytest.raises(UnusableClock, match="No space left"):
        MachineClock(path)
    assert held() == 0


def test_a_table_that_is_being_made_is_waited_for(tmp_path: Path) -> None:
    MachineClock(tmp_path / "clock").close()
    made: list[MachineClock] = []
    with (tmp_path / "clock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        other = Thread(target=lambda: made.append(MachineClock(tmp_path / "clock")), daemon=True)
        other.start()
        other.join(0.1)
        assert not made
    other.join()
    made[0].close()


@pytest.mark.parametrize("damage", ["cut", "longer"])
def test_a_table_of_another_size_is_void(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "clock"
    first = MachineClock(path)
    first.started("a", 10.0, 0.0)
    first.close()
    size = path.stat().st_size
    os.truncate(path, size // 2 if damage == "cut" else size * 2)
    clock = MachineClock(path)
    assert ask(clock, 10.5) == 0.0 and path.stat().st_size == size
    clock.close()


def test_a_machine_that_does_not_tell_its_boot_has_a_table_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "_BOOT_ID_FILE", tmp_path / "none")
    for due in (0.0, 11.0):
        clock = MachineClock(tmp_path / "clock")
        assert ask(clock, 10.5) == due
        clock.started("a", 10.0, 0.0)
        clock.close()
