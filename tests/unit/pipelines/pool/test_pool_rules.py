"""The rules without processes: seen ids, intake, suspects and queue, order, settings, targets, frames, rates, views."""

from __future__ import annotations

import functools
import io
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
import misbehaving
from pace import patience

from weft.errors import BadInput
from weft.frontier.seen.seen_set import SeenSet
from weft.pipelines import WorkerPool
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.task import BadItem, Intake, Pause, PoolTask, new_ids
from weft.pipelines.pool.events import Event, PoolProgress
from weft.pipelines.pool.items import Feeder, check_items, count_lines, parse_line, read_items
from weft.pipelines.pool.record import Result, Status, cut
from weft.pipelines.pool.settings import PoolSettings, worker_count
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.pool.worker.wire import batch_frame, decode_batch
from weft.supervise.pool.frame_reader import FrameReader
from weft.supervise.pool.suspects import STORM_ITEMS, STORM_TRIES, CrashRules


def task(item_id: str | int = "a", position: int = 0) -> PoolTask:
    return PoolTask(position, item_id, b"\x80")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TestIntake:
    def take(self, *items: Any, done: SeenSet | None = None) -> list[Any]:
        """What each item became, in their order."""
        intake, found = Intake(iter(items), done), dict[int, Any]()
        while not intake.exhausted:
            harvest = intake.take(looks=3, wanted=2)
            found |= {task.position: task for task in harvest.tasks} | dict(harvest.refused) | dict(harvest.known)
        return [found[place] for place in sorted(found)]

    def test_good_item_becomes_a_task_with_its_bytes(self) -> None:
        (first, second) = self.take({"id": "a", "n": 1}, {"id": 2})
        assert (first.position, first.item_id, msgspec.msgpack.decode(first.payload)) == (0, "a", {"id": "a", "n": 1})
        assert (second.position, second.item_id) == (1, 2)

    def test_any_mapping_will_do(self) -> None:
        import types

        (found,) = self.take(types.MappingProxyType({"id": "a"}))
        assert msgspec.msgpack.decode(found.payload) == {"id": "a"}

    @pytest.mark.parametrize(
        ("item", "name", "why"),
        [
            (None, "#0", "mapping"),
            ([1], "#0", "list"),
            ({}, "#0", "no id"),
            ({"id": None}, "#0", "no id"),
            ({"id": 1.0}, "#0", "float"),
            ({"id": True}, "#0", "bool"),
            ({"id": "x", "v": {1, object()}}, "x", "cannot be encoded"),
            ({"id": "x", "v": "\ud800"}, "x", "cannot be encoded"),
            ({"id": "x\ud800"}, "#0", "no text"),
            ({"id": 2**64}, "#0", "more than 64 bits"),
            ({"id": "x", "v": b"y" * (65 << 20)}, "x", "too large"),
            (BadItem("line 3", "not JSON"), "line 3", "not JSON"),
        ],
    )
    def test_bad_item_fails_as_it_arrives(self, item: Any, name: str, why: str) -> None:
        (result,) = self.take(item)
        assert isinstance(result, Result)
        assert (result.item_id, result.status, result.failure_phase, result.attempts) == (name, "failed", "input", 0)
        assert why in str(result.error)

    def test_duplicates_fail_also_across_number_and_text(self) -> None:
        found = self.take({"id": "7"}, {"id": 7}, {"id": "7"})
        assert [type(got) for got in found] == [PoolTask, Result, Result]

    def test_done_items_are_passed_over_and_their_duplicates_still_fail(self) -> None:
        done = new_ids()
        done.add("b")
        found = self.take({"id": "a"}, {"id": "b"}, {"id": "b"}, done=done)
        assert found[1] == "b"
        assert isinstance(found[2], Result)

    def test_a_source_may_have_nothing_yet(self) -> None:
        intake = Intake(iter([Pause.LATER, {"id": "a"}, Pause.LATER]), None)
        assert intake.take(10, 10).tasks == []
        assert not intake.exhausted
        assert [task.position for task in intake.take(10, 10).tasks] == [0]
        intake.take(10, 10)
        assert intake.exhausted

    def test_looks_wanted_and_bytes_bound_a_batch(self) -> None:
        intake = Intake(iter([{"id": n, "v": b"x" * 1_000_000} for n in range(20)]), None)
        assert [len(intake.take(looks, wanted).tasks) for looks, wanted in ((3, 9), (9, 2), (9, 9), (0, 9))] == [
            3,
            2,
            5,
            0,
        ]


class TestCrashRules:
    def test_second_death_quarantines(self) -> None:
        rules, suspect = CrashRules(), task()
        assert not rules.strike(suspect, outside=True)
        assert rules.strike(suspect, outside=True)
        assert suspect.tries == 2

    def test_tries_can_be_set(self) -> None:
        assert CrashRules(tries=1).strike(task(), outside=False)

    def test_in_a_storm_signals_from_outside_prove_nothing_for_a_while(self) -> None:
        rules, suspect = CrashRules(), task()
        rules.saw_innocent()
        verdicts = [rules.strike(suspect, outside=True) for _ in range(STORM_TRIES)]
        assert verdicts == [False] * (STORM_TRIES - 1) + [True]

    def test_so_many_different_items_hit_from_outside_are_a_storm(self) -> None:
        rules = CrashRules()
        tasks = [task(n, n) for n in range(STORM_ITEMS)]
        assert not any(rules.strike(each, outside=True) for each in tasks)
        assert not rules.strike(tasks[0], outside=True)
        few = CrashRules()
        tasks = [task(n, n) for n in range(STORM_ITEMS - 1)]
        assert not any(few.strike(each, outside=True) for each in tasks)
        assert all(few.strike(each, outside=True) for each in tasks)

    def test_own_crashes_count_in_a_storm_as_ever(self) -> None:
        rules, suspect = CrashRules(), task()
        rules.saw_innocent()
        assert not rules.strike(suspect, outside=False)
        assert not rules.strike(suspect, outside=True)
        assert rules.strike(suspect, outside=False)

    def test_a_storm_passes(self) -> None:
        clock = Clock()
        rules, suspect = CrashRules(clock=clock), task()
        rules.saw_innocent()
        clock.now_s = 61
        rules.strike(suspect, outside=True)
        assert rules.strike(suspect, outside=True)

    def test_an_item_that_ends_well_after_a_kill_shows_a_storm(self) -> None:
        rules, innocent, suspect = CrashRules(), task("i"), task("s")
        rules.strike(innocent, outside=True)
        rules.ended([task(), innocent])
        rules.strike(suspect, outside=True)
        assert not rules.strike(suspect, outside=True)

    def test_a_storm_that_shows_late_acquits_those_it_hit_before(self) -> None:
        rules, early, crashing = CrashRules(), task("e"), task("c")
        assert [rules.strike(early, outside=True), rules.strike(early, outside=True)] == [False, True]
        assert [rules.strike(crashing, outside=False), rules.strike(crashing, outside=False)] == [False, True]
        assert [rules.doubtful(early), rules.doubtful(crashing)] == [True, False]
        rules.saw_innocent()
        assert [rules.guilty(early), rules.guilty(crashing)] == [False, True]

    def test_one_that_had_segfaulted_shows_none(self) -> None:
        rules, flaky, suspect = CrashRules(), task("f"), task("s")
        rules.strike(flaky, outside=False)
        rules.ended([flaky])
        rules.strike(suspect, outside=True)
        assert rules.strike(suspect, outside=True)


class TestQueue:
    def test_suspects_go_first_and_to_fresh_workers_only(self) -> None:
        queue = WorkQueue(100)
        queue.batches.append([task("a"), task("b")])
        queue.suspects.append(task("s"))
        got = queue.next(fresh=False, pool_idle=True)
        assert got is not None
        assert ([each.item_id for each in got[0]], got[1]) == (["a", "b"], False)
        assert queue.next(fresh=False, pool_idle=True) is None
        got = queue.next(fresh=True, pool_idle=False)
        assert got is not None
        assert ([each.item_id for each in got[0]], got[1]) == (["s"], True)
        assert not queue

    def test_exclusive_suspects_wait_for_an_idle_pool_and_hold_everything_else_back(self) -> None:
        queue = WorkQueue(100)
        queue.exclusive.extend([task("x"), task("y")])
        queue.batches.append([task("a")])
        assert queue.next(fresh=True, pool_idle=False) is None
        got = queue.next(fresh=True, pool_idle=True)
        assert got is not None
        assert got[0][0].item_id == "x"
        assert queue.next(fresh=False, pool_idle=True) is None
        assert queue.tasks() == 2

    @given(st.integers(2, 60))
    def test_bisecting_halves_in_order_and_loses_none(self, count: int) -> None:
        queue = WorkQueue(100)
        queue.bisect([task(n) for n in range(count)])
        first, second = queue.batches
        assert [each.item_id for each in first + second] == list(range(count))
        assert 0 <= len(first) - len(second) <= 1

    def test_nothing_put_back_is_nothing(self) -> None:
        queue = WorkQueue(100)
        queue.put_back([])
        assert not queue

    def test_what_is_put_back_comes_next_in_its_order_and_in_usual_sizes(self) -> None:
        queue = WorkQueue(2)
        queue.batches.append([task("z")])
        queue.put_back([task(n) for n in range(5)])
        assert [[each.item_id for each in batch] for batch in queue.batches] == [[0, 1], [2, 3], [4], ["z"]]


class TestDelivery:
    @given(st.permutations(range(12)), st.lists(st.integers(1, 4), min_size=12, max_size=12))
    def test_ordered_results_come_in_order_whatever_the_arrival(self, arrival: list[int], sizes: list[int]) -> None:
        delivery = ResultDelivery(PoolProgress([], None), None, None, None)
        delivery.ordered = True
        for size in sizes:
            chunk, arrival = arrival[:size], arrival[size:]
            delivery.add([(place, Result(place, Status.OK)) for place in chunk])
            delivery.flush()
        assert [result.item_id for result in delivery.ready] == list(range(12))

    def test_room_shrinks_with_the_distance_to_the_oldest_missing_result(self) -> None:
        delivery = ResultDelivery(PoolProgress([], None), None, None, 10)
        assert delivery.room(500, 50) == 50
        delivery.ordered = True
        assert delivery.room(0, 50) == 10
        assert delivery.room(10, 50) == 0
        delivery.add([(0, Result("a", Status.OK))])
        delivery.flush()
        assert delivery.room(10, 50) == 1

    def test_no_room_while_the_user_has_a_thousand_waiting(self) -> None:
        delivery = ResultDelivery(PoolProgress([], None), None, None, None)
        delivery.add([(n, Result(n, Status.OK)) for n in range(1001)])
        delivery.flush()
        assert delivery.room(2000, 50) == 0


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"workers": 0}, "workers must be greater than 0"),
            ({"workers": -2}, "workers must be greater than 0"),
            ({"workers": 5000}, "at most 1000"),
            ({"workers": 1.5}, "whole number"),
            ({"workers": True}, "whole number"),
            ({"batch_size": 0}, "batch_size"),
            ({"item_timeout": -1}, "item_timeout"),
            ({"item_timeout": float("nan")}, "item_timeout"),
            ({"batch_timeout": "x"}, "batch_timeout must be a number"),
            ({"memory_limit_mb": 0}, "memory_limit_mb"),
            ({"item_timeout": 1e300}, "item_timeout must be at most 1000000000"),
            ({"batch_timeout": float("inf")}, "batch_timeout must be at most 1000000000"),
            ({"recycle_after": 10**23}, "recycle_after must be at most 1000000000"),
            ({"heartbeat_timeout": None}, "heartbeat_timeout"),
        ],
    )
    def test_nonsense_is_reported(self, given: dict[str, Any], told: str) -> None:
        with pytest.raises(BadInput, match=told):
            PoolSettings(**{"workers": 1} | given)

    def test_all_problems_at_once(self) -> None:
        with pytest.raises(BadInput) as caught:
            PoolSettings(0, batch_size=-1, item_timeout=0)
        assert len(str(caught.value).splitlines()) == 3

    def test_no_limit_is_none(self) -> None:
        assert PoolSettings(1, item_timeout=None, batch_timeout=None).item_timeout is None

    def test_worker_count_from_argument_then_environment_then_processors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIPELINE_WORKER_COUNT", "7")
        assert (worker_count(3), worker_count(None)) == (3, 7)
        monkeypatch.setenv("PIPELINE_WORKER_COUNT", "many")
        with pytest.raises(BadInput, match="PIPELINE_WORKER_COUNT"):
            worker_count(None)
        monkeypatch.delenv("PIPELINE_WORKER_COUNT")
        monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
        assert worker_count(None) == 7
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
        assert worker_count(None) == 1

    def test_unknown_setting_is_an_error(self) -> None:
        with pytest.raises(BadInput, match="wrokers"):
            WorkerPool("a:b", wrokers=3)

    def test_logs_need_a_place(self) -> None:
        with pytest.raises(BadInput, match="run_dir"):
            WorkerPool("a:b", logs=True)

    def test_item_logs_are_of_a_known_kind(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="must be auto, each, worker or off, this is 'all'"):
            WorkerPool("a:b", run_dir=tmp_path, logs="all")


def module_level(item: Any, context: Any) -> Any: ...


class TestTarget:
    @pytest.mark.parametrize("text", ["", "x", "x:", ":x", "a b:c", "a:b c", "a/b:c", "a:b:c", "os.path"])
    def test_text_that_names_nothing(self, text: str) -> None:
        with pytest.raises(BadInput, match="module:function"):
            CallableTarget.of(text)

    def test_text_is_taken_as_it_is(self) -> None:
        assert CallableTarget.of("a.b:c.d") == CallableTarget("a.b", "c.d")

    def functions(self) -> list[Callable[..., Any]]:
        def inner(item: Any, context: Any) -> Any: ...

        class Instance:
            def __call__(self, item: Any, context: Any) -> Any: ...

            def method(self, item: Any, context: Any) -> Any: ...

        return [
            lambda item, context: None,
            inner,
            functools.partial(inner),
            Instance(),
            Instance().method,
            Instance,
            "x".join,
        ]

    def test_functions_that_have_no_name_in_a_module_are_refused(self) -> None:
        for function in self.functions():
            with pytest.raises(BadInput, match="cannot be imported by name in a worker"):
                CallableTarget.of(function)

    def test_shadowed_function_is_refused(self) -> None:
        original = misbehaving.double
        misbehaving.double = misbehaving.echo
        try:
            with pytest.raises(BadInput, match="something else"):
                CallableTarget.of(original)
        finally:
            misbehaving.double = original

    def test_function_of_a_module(self) -> None:
        target = CallableTarget.of(misbehaving.Methods.static)
        assert str(target) == "misbehaving:Methods.static"
        assert target.load() is misbehaving.Methods.static


class TestWire:
    @given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1))
    def test_frames_arrive_whole_however_they_are_cut(self, bodies: list[bytes], sizes: list[int]) -> None:
        ours, theirs = socket.socketpair()
        stream = b"".join(batch_frame(n, 1, True, [msgspec.msgpack.encode(body)]) for n, body in enumerate(bodies))

        def send() -> None:
            at = number = 0
            while at < len(stream):
                size = sizes[number % len(sizes)]
                ours.send(stream[at : at + size])
                at, number = at + size, number + 1
            ours.close()

        sender = threading.Thread(target=send)
        sender.start()
        reader, found = FrameReader(theirs), []
        while (frame := reader.next()) is not None:
            found.append(decode_batch(frame))
        sender.join()
        theirs.close()
        assert found == [(n, 1, True, [body]) for n, body in enumerate(bodies)]


class TestItems:
    def test_broken_lines_stand_in_their_place(self) -> None:
        text = b'{"id":1}\n\n{broken\n[1,2]\n{"n":1}\n"x"\n\xff\xfe\n{"id":1.5}\n{"id":"last"}'
        found = list(read_items(io.BytesIO(text)))
        assert [item if isinstance(item, dict) else item.name for item in found] == [
            {"id": 1},
            "line 3",
            "line 4",
            "line 5",
            "line 6",
            "line 7",
            "line 8",
            {"id": "last"},
        ]

    def test_a_line_without_end_is_one_bad_item(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("weft.pipelines.pool.items._MAX_LINE_BYTES", 100)
        found = list(read_items(io.BytesIO(b'{"id":"' + b"x" * 5000 + b'"}\n{"id":"next"}\n')))
        assert isinstance(found[0], BadItem)
        assert found[1:] == [{"id": "next"}]

    @given(st.binary(max_size=60))
    def test_no_line_can_break_the_reader(self, line: bytes) -> None:
        found = parse_line(1, line)
        assert found is None or isinstance(found, dict | BadItem)

    def test_lines_are_counted_with_and_without_a_last_newline(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"1\n2\n3")
        (tmp_path / "b").write_bytes(b"1\n2\n3\n")
        (tmp_path / "c").write_bytes(b"")
        assert [count_lines(tmp_path / name) for name in "abc"] == [3, 3, 0]

    def test_unreadable_files_are_reported(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="no such file"):
            check_items(tmp_path / "none")
        with pytest.raises(BadInput, match="directory"):
            check_items(tmp_path)

    def test_feeder_never_blocks(self) -> None:
        gate = threading.Event()

        class Slow(io.BytesIO):
            def readline(self, size: int | None = -1, /) -> bytes:
                gate.wait(patience(5))
                return super().readline(size)

        feeder = Feeder(Slow(b'{"id":1}\n{"id":2}\n'))
        assert next(feeder) is Pause.LATER
        gate.set()
        found = [item for item in feeder if item is not Pause.LATER]
        assert found == [{"id": 1}, {"id": 2}]
        with pytest.raises(StopIteration):
            next(feeder)


class TestProgress:
    def test_rate_and_time_left_follow_the_last_seconds(self) -> None:
        clock = Clock()
        progress = PoolProgress([], 1000, clock)
        for second in range(1, 31):
            clock.now_s = second
            progress.done += 10 if second <= 15 else 30
            progress.sample()
        counts = progress.counts()
        assert 28 <= counts.rate <= 30
        assert counts.left_s == pytest.approx((1000 - 600) / counts.rate)

    def test_resumed_results_do_not_count_as_speed(self) -> None:
        clock = Clock()
        progress = PoolProgress([], 100, clock)
        for n in range(50):
            progress.count_resumed(Result(n, Status.OK))
        clock.now_s = 10
        progress.done += 10
        counts = progress.counts()
        assert (counts.done, counts.resumed, counts.rate) == (60, 50, 1.0)

    def test_listeners_hear_finished_and_failed(self) -> None:
        told: list[Event] = []
        progress = PoolProgress([told.append], None)
        progress.tell_result(Result("a", Status.SKIPPED))
        progress.tell_result(Result("b", Status.TIMEOUT, error="late"))
        assert [(event.kind, event.item_id, event.text) for event in told] == [
            ("finished", "a", None),
            ("failed", "b", "late"),
        ]


class TestRuns:
    def test_runs_of_one_second_get_different_names(self, tmp_path: Path) -> None:
        names = [RunDirectory.create(tmp_path, lambda: 1770201045.5).run_id for _ in range(3)]
        assert names == ["2026-02-04T10-30-45", "2026-02-04T10-30-45-2", "2026-02-04T10-30-45-3"]

    def test_unknown_run_names_the_known(self, tmp_path: Path) -> None:
        (tmp_path / "2026-01-01T00-00-00").mkdir()
        (tmp_path / "2026-01-01T00-00-00" / "journal").touch()
        with pytest.raises(BadInput, match="the last ones: 2026-01-01T00-00-00"):
            RunDirectory.find(tmp_path, "nope")

    def test_place_that_cannot_hold_runs(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(BadInput, match="cannot hold runs"):
            RunDirectory.create(tmp_path / "file")

    def test_quarantined_item_comes_back_as_it_was(self, tmp_path: Path) -> None:
        directory = RunDirectory(tmp_path / "run")
        directory.hold()
        item = {"id": "a/b", "data": b"\xff", "n": 1.5}
        directory.quarantine_item(
            CallableTarget("m", "f"), Result("a/b", Status.CRASHED, attempts=2), msgspec.msgpack.encode(item)
        )
        kept = directory.quarantined("a/b")
        assert kept is not None
        assert (kept.decoded(), str(kept.target)) == (item, "m:f")
        assert directory.quarantined("other") is None
        directory.release()


def test_cut_keeps_both_ends() -> None:
    text = cut("a" * 50 + "b" * 1000 + "c" * 50, 100)
    assert text.startswith("a" * 50)
    assert text.endswith("c" * 50)
    assert "1000 characters left out" in text


def test_statuses_are_plain_words() -> None:
    assert Counter(str(status) for status in Status) == Counter(["ok", "skipped", "failed", "timeout", "crashed"])
