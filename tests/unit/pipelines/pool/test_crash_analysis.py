"""When an item is to blame for a death, to the second and to the strike; and what may run beside a suspect."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.dispatch import WorkDispatcher
from weft.pipelines.pool.engine.pool_worker import PoolSlot, PoolWorker
from weft.pipelines.pool.engine.task import Intake, PoolTask
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.worker import slot as slots
from weft.supervise.child import Child, RestartPolicy
from weft.supervise.pool.process_pool import ProcessPool
from weft.supervise.pool.suspects import STORM_ITEMS, STORM_TRIES, CrashRules
from weft.supervise.pool.worker_slot import Kill, KillReason
from weft.supervise.process import Exit


def task(position: int = 0) -> PoolTask:
    return PoolTask(position, f"item-{position}", b"\x80")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class TestStorm:
    def verdicts(self, rules: CrashRules, suspect: PoolTask, deaths: str) -> str:
        """`o`: a death from outside, `c`: a crash; for each, whether it convicts."""
        return "".join("gi"[not rules.strike(suspect, outside=death == "o")] for death in deaths)

    @pytest.mark.parametrize(
        ("tries", "deaths", "verdicts"),
        [
            (2, "oo", "ig"),
            (2, "oc", "ig"),
            (2, "cc", "ig"),
            (1, "o", "g"),
            (3, "ooo", "iig"),
        ],
    )
    def test_in_calm_weather_every_death_counts(self, tries: int, deaths: str, verdicts: str) -> None:
        assert self.verdicts(CrashRules(tries), task(), deaths) == verdicts

    @pytest.mark.parametrize(
        ("tries", "deaths", "verdicts"),
        [
            (2, "cc", "ig"),
            (2, "coc", "iig"),
            (2, "occ", "iig"),
            (2, "ooooo", "iiiii"),
            (2, "oooooo", "iiiiig"),
            (2, "cooooo", "iiiiig"),
            (1, "ooooo", "iiiii"),
            (1, "ooc", "iig"),
            (7, "ooooooo", "iiiiiig"),
            (7, "cccccc", "iiiiii"),
        ],
    )
    def test_in_a_storm_only_crashes_count_until_there_were_too_many_of_any_kind(
        self, tries: int, deaths: str, verdicts: str
    ) -> None:
        rules = CrashRules(tries)
        rules.saw_innocent()
        assert self.verdicts(rules, task(), deaths) == verdicts

    @pytest.mark.parametrize(("later_s", "verdict"), [(0.0, "i"), (59.9, "i"), (60.0, "g"), (60.1, "g")])
    def test_a_storm_lasts_a_minute(self, later_s: float, verdict: str) -> None:
        clock = Clock()
        rules, suspect = CrashRules(clock=clock), task()
        assert self.verdicts(rules, suspect, "o") == "i"
        rules.saw_innocent()
        clock.now_s += later_s
        assert self.verdicts(rules, suspect, "o") == verdict

    @pytest.mark.parametrize(("apart_s", "verdict"), [(0.0, "i"), (19.9, "i"), (20.0, "g"), (30.0, "g")])
    def test_four_items_make_a_storm_when_they_are_hit_within_a_minute(self, apart_s: float, verdict: str) -> None:
        clock = Clock()
        rules, tasks = CrashRules(clock=clock), [task(n) for n in range(STORM_ITEMS)]
        for number, each in enumerate(tasks):
            clock.now_s += apart_s if number else 0.0
            rules.strike(each, outside=True)
        # right behind the last of them: either all four are in the minute, or the first is out of it
        assert self.verdicts(rules, tasks[-1], "o") == verdict

    def test_one_item_hit_again_and_again_makes_none(self) -> None:
        rules, suspect = CrashRules(), task(1)
        for _ in range(STORM_ITEMS + 1):
            rules.strike(suspect, outside=True)
        assert self.verdicts(rules, task(2), "oo") == "ig"

    def test_crashes_of_their_own_make_none(self) -> None:
        rules = CrashRules()
        for number in range(STORM_ITEMS):
            rules.strike(task(number), outside=False)
        assert self.verdicts(rules, task(9), "oo") == "ig"

    def test_an_items_good_end_shows_a_storm_only_if_it_was_hit_from_outside(self) -> None:
        for outside, verdict in ((0, "g"), (1, "i")):
            rules, ended = CrashRules(), task(1)
            ended.outside = outside
            rules.ended([task(2), ended])
            assert self.verdicts(rules, task(3), "oo")[1] == verdict

    def test_a_verdict_is_in_doubt_while_a_storm_would_change_it(self) -> None:
        rules = CrashRules()

        def doubtful(strikes: int, outside: int) -> bool:
            suspect = task()
            suspect.strikes, suspect.outside = strikes, outside
            return rules.doubtful(suspect)

        assert [doubtful(2, 0), doubtful(2, 1), doubtful(2, 2), doubtful(3, 1)] == [False, True, True, False]
        assert [doubtful(STORM_TRIES - 1, STORM_TRIES - 1), doubtful(STORM_TRIES, STORM_TRIES)] == [True, False]

    def test_a_strike_is_a_try_and_is_counted_by_its_kind(self) -> None:
        rules, suspect = CrashRules(9), task()
        rules.strike(suspect, outside=True)
        rules.strike(suspect, outside=False)
        assert (suspect.tries, suspect.strikes, suspect.outside, suspect.secluded) == (2, 2, 1, False)


class TestKeeper:
    def test_death_in_company_proves_nothing_and_secludes(self) -> None:
        rules, suspect = CrashRules(tries=1), task()
        for _ in range(STORM_TRIES + 1):
            rules.in_company(suspect)
        assert (suspect.tries, suspect.strikes, suspect.outside) == (STORM_TRIES + 1, 0, 0)
        assert suspect.secluded
        assert not rules.guilty(suspect)

    def test_those_who_end_well_after_a_death_in_company_show_no_storm(self) -> None:
        rules, killer = CrashRules(), task()
        for number in range(1, 9):
            rules.in_company(beside := task(number))
            rules.ended([beside])
        assert [rules.strike(killer, outside=True, with_server=True) for _ in range(2)] == [False, True]

    def test_lone_killers_are_no_storm_however_many(self) -> None:
        rules = CrashRules()
        for number in range(STORM_ITEMS + 1):
            killer = task(number)
            assert [rules.strike(killer, outside=True, with_server=True) for _ in range(2)] == [False, True]
            assert killer.secluded

    def test_one_that_ends_well_after_a_lone_death_shows_that_the_keeper_was_hit_from_outside(self) -> None:
        rules, lucky, suspect = CrashRules(), task(1), task(2)
        rules.strike(lucky, outside=True, with_server=True)
        rules.ended([lucky])
        verdicts = [rules.strike(suspect, outside=True, with_server=True) for _ in range(STORM_TRIES)]
        assert verdicts == [False] * (STORM_TRIES - 1) + [True]


class TestQueue:
    def test_it_is_empty_only_without_work_of_any_kind(self) -> None:
        for kind in ("batches", "suspects", "exclusive"):
            queue = WorkQueue(5)
            assert not queue
            assert queue.tasks() == 0
            getattr(queue, kind).append([task()] if kind == "batches" else task())
            assert queue
            assert queue.tasks() == 1

    def test_every_kind_is_counted(self) -> None:
        queue = WorkQueue(5)
        queue.batches.extend([[task(1), task(2)], [task(3)]])
        queue.suspects.append(task(4))
        queue.exclusive.extend([task(5), task(6)])
        assert queue.tasks() == 6

    def test_an_exclusive_suspect_needs_a_fresh_worker_and_an_idle_pool(self) -> None:
        queue = WorkQueue(5)
        queue.exclusive.append(task(1))
        assert queue.next(fresh=False, pool_idle=True) is None
        assert queue.next(fresh=True, pool_idle=False) is None
        assert queue.next(fresh=True, pool_idle=True) == ([task(1)], True)
        assert queue.next(fresh=True, pool_idle=True) is None

    def test_a_fresh_worker_takes_a_batch_when_there_is_no_suspect(self) -> None:
        queue = WorkQueue(5)
        queue.batches.append([task(1)])
        assert queue.next(fresh=True, pool_idle=False) == ([task(1)], False)

    @pytest.mark.parametrize(("count", "first"), [(2, 1), (3, 2), (4, 2), (5, 3)])
    def test_halves(self, count: int, first: int) -> None:
        queue = WorkQueue(100)
        queue.bisect([task(n) for n in range(count)])
        assert [len(batch) for batch in queue.batches] == [first, count - first]

    def test_what_is_put_back_fills_batches_to_their_size(self) -> None:
        queue = WorkQueue(3)
        queue.put_back([task(n) for n in range(6)])
        assert [len(batch) for batch in queue.batches] == [3, 3]


class TestSeclusion:
    """Two workers that are played: what the dispatcher gives them."""

    @pytest.fixture
    def members(self) -> Iterator[list[PoolSlot]]:
        made, others = [], []
        for number in range(2):
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            made.append(PoolSlot(number, Child("w", RestartPolicy()), PoolSettings(1, batch_size=5)))
            made[-1].attach(PoolWorker(ours, slots.create(None), os.memfd_create("out"), None))
            made[-1].child.ready()
            others.append(theirs)
        yield made
        for member, other in zip(made, others, strict=True):
            member.detach()
            other.close()

    def test_nothing_runs_beside_the_last_exclusive_suspect_either(self, members: list[PoolSlot]) -> None:
        queue = WorkQueue(5)
        queue.exclusive.append(task(1))
        queue.batches.append([task(2), task(3)])
        pool = SimpleNamespace(slots=members, end=lambda *_, **__: None, start=lambda _: None, push=PoolSlot.push)
        delivery = ResultDelivery(PoolProgress([], None), None, None, None)
        dispatcher = WorkDispatcher(
            PoolSettings(2), Intake(iter(()), None), queue, cast(ProcessPool[PoolSlot], pool), delivery
        )
        for _ in range(3):
            dispatcher.run()
        assert [[each.position for each in member.outstanding.values()] for member in members] == [[1], []]
        members[0].outstanding.clear()  # it has ended, one way or the other
        dispatcher.run()
        assert [each.position for member in members for each in member.outstanding.values()] == [2, 3]


class TestStarts:
    def pool(self, count: int) -> ProcessPool[PoolSlot]:
        """Its slots only; no one is started."""
        pool: ProcessPool[PoolSlot] = ProcessPool.__new__(ProcessPool)
        pool.slots = [PoolSlot(n, Child("w", RestartPolicy(max_failures=30)), PoolSettings(1)) for n in range(count)]
        pool._hit_at_start = set()
        pool._by_fd = {}
        return pool

    def fail(
        self, pool: ProcessPool[PoolSlot], number: int, how: Exit, *, times: int = 1, kill: Kill | None = None
    ) -> None:
        for _ in range(times):
            member = pool.slots[number]
            member.child.spawned()
            member.kill = kill
            pool.remove(member, how, failed=True)
            member.child._due_s = 0.0

    def test_workers_that_fail_at_their_start_are_given_up_when_all_have_failed_five_times(self) -> None:
        pool = self.pool(2)
        told = []
        for number, times in ((0, 4), (1, 5), (0, 1)):
            self.fail(pool, number, Exit(code=1), times=times)
            told.append(pool.hopeless(ever_ready=True))
        assert told == [False, False, True]

    @pytest.mark.parametrize(("ever_ready", "patience"), [(True, 30), (False, 5)])
    def test_kills_from_outside_are_borne_for_longer_where_it_has_worked_before(
        self, ever_ready: bool, patience: int
    ) -> None:
        pool = self.pool(1)
        self.fail(pool, 0, Exit(signal=9), times=patience - 1)
        assert not pool.hopeless(ever_ready=ever_ready)
        self.fail(pool, 0, Exit(signal=9))
        assert pool.hopeless(ever_ready=ever_ready)

    def test_a_kill_of_our_own_is_not_from_outside(self) -> None:
        pool = self.pool(1)
        self.fail(pool, 0, Exit(signal=9), times=5, kill=Kill(KillReason.START, None, 0.0))
        assert pool.hopeless(ever_ready=True)

    def test_work_that_gets_done_forgives_kills_from_outside_and_nothing_else(self) -> None:
        pool = self.pool(2)
        self.fail(pool, 0, Exit(signal=9), times=9)
        self.fail(pool, 1, Exit(code=1), times=4)
        pool.worked()
        assert [member.child.failures for member in pool.slots] == [0, 4]
