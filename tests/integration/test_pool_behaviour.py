"""What the pool does with functions that misbehave, with limits, with order, and with the work when a worker goes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import ChainMap, Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving
from pace import patience

from weft.errors import BadInput
from weft.pipelines import PoolBroken, Result, Status, WorkerPool
from weft.pipelines.pool.events import Event
from weft.supervise import process

# For those that never end. The others come to their end by themselves, however slow the machine is.
LIMIT_S = float(round(patience(0.4)))
# action -> (status, failure phase, a piece of the error, attempts)
EXPECTED: dict[str, tuple[str, str | None, str, int]] = {
    "raise": ("failed", "clone", "ValueError: no such branch", 1),
    "unprintable": ("failed", "process", "Worse", 1),
    "sys_exit": ("failed", "process", "SystemExit: 3", 1),
    "interrupt": ("failed", "process", "KeyboardInterrupt", 1),
    "recurses": ("failed", "process", "RecursionError", 1),
    "unencodable": ("failed", "result", "cannot be encoded: TypeError", 1),
    "too_big": ("failed", "result", "too large", 1),
    "exit_0": ("crashed", "process", "exited with code 0", 2),
    "exit_7": ("crashed", "process", "exited with code 7", 2),
    "segfault": ("crashed", "process", "SIGSEGV", 2),
    "recurses_to_death": ("crashed", "process", "SIGSEGV", 2),
    "allocates": ("crashed", "process", "memory limit of 300 MB", 2),
    "native_block": ("timeout", "process", f"limit of {LIMIT_S:g} s", 1),
    "sleeps": ("timeout", "process", f"limit of {LIMIT_S:g} s", 1),
    "skips": ("skipped", "process", "seen before", 1),
    "forks": ("ok", None, "", 1),
    "installs_handler": ("ok", None, "", 1),
    "closes_everything": ("ok", None, "", 1),
    "scribbles": ("crashed", "process", "its shared memory is corrupt", 2),
    "prints_past_python": ("ok", None, "", 1),
    "big": ("ok", None, "", 1),
    "kill_once": ("ok", None, "", 2),
    "logs_and_dies": ("crashed", "process", "SIGKILL", 2),
}


ENDLESS = [name for name, (status, *_) in EXPECTED.items() if status == "timeout"]


def bystanders(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"by-{number}", **more} for number in range(first, first + count)]


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Every misbehaving function once, in three pools (storm evidence from one would reach the other, and two need a
    short limit), and bystanders."""
    results: list[Result] = []
    others = [name for name in EXPECTED if name not in ("kill_once", *ENDLESS)]
    for names, limit_s, beside in (
        (others, patience(20), bystanders(80, sleep=0.001)),
        (ENDLESS, LIMIT_S, bystanders(20, first=80, sleep=0.001)),
        (["kill_once"], patience(20), []),
    ):
        work = beside
        for place, name in enumerate(names):
            work.insert(place * 5 + 3, {"id": name, "do": name, "mb": 20})
        pool = WorkerPool(
            misbehaving.act,
            workers=3,
            batch_size=10,
            item_timeout=limit_s,
            memory_limit_mb=300,
            run_dir=tmp_path_factory.mktemp("pool") / "run",
        )
        results += pool.run(work)
        assert [result.item_id for result in results][-len(work) :] == [item["id"] for item in work]
    return {str(result.item_id): result for result in results}


@pytest.mark.parametrize("name", EXPECTED)
def test_misbehaving_function_gets_its_status(misbehaved: dict[str, Result], name: str) -> None:
    status, phase, error, attempts = EXPECTED[name]
    result = misbehaved[name]
    assert (result.status, result.failure_phase, result.attempts) == (status, phase, attempts), result
    assert error in (result.error or "")


def test_bystanders_are_untouched(misbehaved: dict[str, Result]) -> None:
    theirs = [result for result in misbehaved.values() if str(result.item_id).startswith("by-")]
    assert len(theirs) == 100
    assert {(result.status, result.value, result.error) for result in theirs} == {("ok", "fine", None)}


def test_failed_result_has_a_traceback_of_the_users_code_only(misbehaved: dict[str, Result]) -> None:
    traceback = misbehaved["raise"].traceback
    assert traceback is not None
    assert "_raise" in traceback
    assert "worker.py" not in traceback


def test_crashed_result_tells_how_its_worker_died(misbehaved: dict[str, Result]) -> None:
    death = misbehaved["segfault"].death
    assert death is not None
    assert (death.signal, death.exit_code) == ("SIGSEGV", None)
    assert 5 < death.peak_memory_mb < 100
    allocated = misbehaved["allocates"].death
    assert allocated is not None
    assert 300 <= allocated.peak_memory_mb < 600


def test_native_traceback_of_a_segfault_is_in_the_log(misbehaved: dict[str, Result]) -> None:
    log = misbehaved["segfault"].log
    assert log is not None
    assert "in _segfault" in Path(log).read_text()


def test_nothing_that_was_forked_is_left(misbehaved: dict[str, Result]) -> None:
    commands = [Path(f"/proc/{pid}/cmdline") for pid in process.pids()]
    running = [path.read_bytes() for path in commands if path.exists()]
    assert not [command for command in running if command in (b"sleep\x00600\x00", b"sleep\x00601\x00")]


def test_a_hundred_megabytes_of_prints_stay_out_of_memory_and_are_cut_in_the_log(tmp_path: Path) -> None:
    pool = WorkerPool(misbehaving.act, workers=1, run_dir=tmp_path / "run", memory_limit_mb=100)
    (result,) = pool.run([{"id": "loud", "do": "prints", "mb": 100}])
    assert result.status == "ok"
    (log,) = (tmp_path / "run" / "items").iterdir()
    assert log.stat().st_size < 11 * 1024 * 1024
    *_, said, dropped, end = log.read_text().splitlines()
    assert "Output limit reached" in said
    assert "droppedBytes" in dropped
    assert "[end] ok" in end


@pytest.mark.parametrize("how", ["installs_handler", "installs_handler_by_name"])
def test_an_alarm_that_one_item_sets_does_not_hit_the_next(how: str) -> None:
    results = WorkerPool(misbehaving.act, workers=1).run([{"id": 1, "do": how}, {"id": 2, "sleep": 0.2}])
    assert [(result.status, result.error) for result in results] == [("ok", None), ("ok", None)]


def test_stopped_worker_counts_as_dead_and_its_item_is_tried_again() -> None:
    pool = WorkerPool(misbehaving.act, workers=2, heartbeat_timeout=patience(0.2))
    results = pool.run([*bystanders(5), {"id": "s", "do": "stop_once"}, {"id": "t", "do": "stop"}])
    assert (results[5].status, results[5].value) == ("ok", 2)
    assert results[6].status == "crashed"
    assert "no sign of life" in str(results[6].error)


def test_an_item_that_kills_the_keeper_is_found_and_its_neighbours_are_not_blamed() -> None:
    work = [*bystanders(6, sleep=0.05), {"id": "killer", "do": "kill_parent"}, *[{"id": f"b{n}"} for n in range(6)]]
    results = {result.item_id: result for result in WorkerPool(misbehaving.act, workers=3, batch_size=2).run(work)}
    assert results.pop("killer").status == "crashed"
    assert {result.status for result in results.values()} == {"ok"}


def test_batch_over_its_limit_costs_only_the_one_that_takes_too_long() -> None:
    work = [{"id": "a"}, {"id": "slow", "sleep": 600}, {"id": "b"}, {"id": "c", "sleep": 0.1}]
    pool = WorkerPool(misbehaving.act, workers=1, batch_size=4, batch_timeout=patience(0.2), item_timeout=None)
    results = pool.run(work)
    assert [result.status for result in results] == ["ok", "timeout", "ok", "ok"]
    assert "batch" in str(results[1].error)
    assert results[1].attempts == 2  # once with the others, once alone


def test_idle_workers_steal_what_a_busy_one_has_not_begun() -> None:
    work = [{"id": "long", "sleep": patience(0.5)}, *bystanders(40, sleep=0.02)]
    results = WorkerPool(misbehaving.act, workers=3, batch_size=50).run(work)
    by_worker = Counter(result.worker_pid for result in results if result.item_id != "long")
    assert by_worker[results[0].worker_pid] == 0
    assert len(by_worker) >= 2
    assert {result.attempts for result in results} == {1}


def test_worker_is_recycled_after_so_many_items() -> None:
    results = WorkerPool(misbehaving.act, workers=1, batch_size=4, recycle_after=10).run(
        [{"id": n, "do": "pid"} for n in range(35)]
    )
    assert sorted(Counter(result.value for result in results).values()) == [5, 10, 10, 10]


def test_leaking_worker_is_replaced_before_it_hurts() -> None:
    pool = WorkerPool(misbehaving.act, workers=1, batch_size=50, memory_limit_mb=200)
    results = pool.run([{"id": n, "do": "leaks", "sleep": 0.02} for n in range(60)])
    assert {result.status for result in results} == {Status.OK}
    assert len({result.value for result in results}) >= 2


def test_ordered_stream_gives_results_in_the_order_of_the_items_and_bounds_what_waits() -> None:
    pulled = 0

    def source() -> Any:
        nonlocal pulled
        for number in range(400):
            pulled += 1
            yield {"id": number, "sleep": 0.3 if number == 0 else 0}

    stream = WorkerPool(misbehaving.act, workers=2, batch_size=5, max_ahead=50).stream(source(), ordered=True)
    first = next(stream)
    assert first.item_id == 0
    assert pulled <= 51
    assert [result.item_id for result in stream] == list(range(1, 400))


class Unreadable(dict[str, Any]):
    def __iter__(self) -> Any:
        raise OSError("the row has gone")


def test_refused_items_are_failed_results_in_their_place() -> None:
    work: list[Any] = [
        {"id": "a"},
        {"id": "a"},
        {"no": "id"},
        "text",
        {"id": 1.5},
        {"id": "o", "x": object()},
        {"id": "huge", "n": 1 << 70},
        {"id": True},
        {"id": 7},
        {"id": "7"},
        ChainMap(Unreadable()),
    ]
    results = WorkerPool(misbehaving.act, workers=2).run(work)
    assert [r.status for r in results] == ["ok", *["failed"] * 7, "ok", "failed", "failed"]
    assert {r.failure_phase for r in results if r.status == "failed"} == {"input"}
    assert [r.item_id for r in results] == ["a", "a", "#2", "#3", "#4", "o", "huge", "#7", 7, "7", "#10"]


def test_values_travel_unchanged() -> None:
    values = [None, True, 0, -1, 1 << 63, 1.5, "", "é\n\0", b"\xff", [1, [2]], {"a": {"b": [None]}}, "x" * 300_000]
    results = WorkerPool(misbehaving.act, workers=2, batch_size=3).run(
        [{"id": n, "do": "value", "value": value} for n, value in enumerate(values)]
    )
    assert [result.value for result in results] == values


def test_large_items_and_values_pass_through_full_sockets_and_banks() -> None:
    work = [{"id": n, "do": "value", "value": bytes([n]) * (3 << 20)} for n in range(20)]
    results = WorkerPool(misbehaving.act, workers=2, batch_size=4).run(work)
    assert [len(result.value) for result in results] == [3 << 20] * 20
    assert all(result.value[0] == n for n, result in enumerate(results))


def test_an_item_that_no_worker_can_decode_is_found_by_halving_its_batch() -> None:
    rotten = {"id": "rotten", "v": msgspec.Raw(b"\xc1")}
    results = WorkerPool(misbehaving.echo, workers=2, batch_size=20).run([*bystanders(15), rotten, {"id": "z"}])
    assert [result.item_id for result in results if result.status != "ok"] == ["rotten"]
    assert results[15].status == "crashed"


def test_slow_consumer_holds_the_workers_back_and_loses_nothing() -> None:
    stream = WorkerPool(misbehaving.act, workers=2, batch_size=20).stream(
        {"id": n, "do": "value", "value": "x" * 20_000} for n in range(600)
    )
    seen = []
    for result in stream:
        seen.append(result.item_id)
        if len(seen) % 100 == 0:
            time.sleep(0.2)
    assert sorted(seen) == list(range(600))


def test_events_tell_the_story_with_right_counts() -> None:
    told: list[Event] = []
    pool = WorkerPool(misbehaving.act, workers=2, batch_size=4)
    pool.on_progress(told.append)
    work = [*bystanders(10), {"id": "st", "do": "stages"}, {"id": "k", "do": "kill"}, {"id": "r", "do": "raise"}]
    pool.run(work)
    kinds = Counter(event.kind for event in told)
    assert kinds["started"] == 14  # the killer twice
    assert kinds["finished"] == 11
    assert kinds["failed"] == 2
    assert kinds["retried"] == 1
    assert kinds["worker-died"] >= 2
    assert [e.phase for e in told if e.kind == "stage" and e.item_id == "st"] == ["one", "two"]
    last = told[-1]
    assert (last.kind, last.counts.total, last.counts.done, last.counts.ok) == ("done", 13, 13, 11)
    done = [event.counts.done for event in told]
    assert done == sorted(done)
    died = next(event for event in told if event.kind == "worker-died" and event.text == "killed by SIGKILL")
    assert died.worker_pid


def test_a_pool_with_nothing_wrong_reports_no_death() -> None:
    told: list[Event] = []
    pool = WorkerPool(misbehaving.act, workers=2, recycle_after=5)
    pool.on_progress(told.append)
    pool.run(bystanders(30))
    kinds = Counter(event.kind for event in told)
    assert kinds["worker-died"] == 0 and kinds["worker-started"] >= 1 and kinds["finished"] == 30


def test_a_long_source_of_unknown_length_has_a_log_for_each_worker_and_each_failed_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.pipelines.pool.engine.ledger.AUTO_EACH", 20)
    odd = [{"id": "r", "do": "raise"}, {"id": "k", "do": "kill"}, {"id": "s", "do": "skips"}]
    pool = WorkerPool(misbehaving.act, workers=2, batch_size=4, run_dir=tmp_path)
    results = {result.item_id: result for result in pool.stream(iter([*bystanders(60), *odd, *bystanders(40, 60)]))}
    assert len(results) == 103
    own = {path.name.partition(".worker-")[0] for path in (tmp_path / "items").glob("*.worker-*.log")}
    # 20, the two that failed, and those that were out when the source turned out to be long: two batches a worker.
    assert {"r", "k"} <= own and "s" not in own and len(own) <= 22 + 2 * 2 * 4
    for name in ("r", "k"):
        assert "] [end] " in Path(results[name].log or "").read_text().splitlines()[-1]
    shared: dict[Any, str] = {}
    for index in (tmp_path / "items").glob("worker-*.index"):
        log = index.with_suffix(".log").read_bytes()
        for entry in map(json.loads, index.read_text().splitlines()):
            shared[entry["item"]] = log[entry["offset"] : entry["offset"] + entry["bytes"]].decode()
    for item_id in {str(one) for one in results} - own:
        lines = shared[int(item_id) if item_id.isdigit() else item_id].splitlines()
        assert "] [begin] " in lines[0] and "] [end] " in lines[-1]


@pytest.mark.parametrize(("mode", "files"), [("each", 30), ("worker", 2), ("off", 0), (False, 0)])
def test_item_logs_are_kept_as_asked(tmp_path: Path, mode: str | bool, files: int) -> None:
    pool = WorkerPool(misbehaving.act, workers=1, run_dir=tmp_path, logs=mode)
    assert len(pool.run(bystanders(30))) == 30
    assert len(list((tmp_path / "items").iterdir())) == files


def test_a_source_that_is_known_to_be_long_has_no_file_for_an_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.pipelines.pool.engine.ledger.AUTO_EACH", 20)
    WorkerPool(misbehaving.act, workers=1, run_dir=tmp_path).run(bystanders(30))
    assert {path.name.partition("-")[0] for path in (tmp_path / "items").iterdir()} == {"worker"}


def test_deadline_is_given_to_the_function() -> None:
    (result,) = WorkerPool(misbehaving.act, workers=1, item_timeout=30).run([{"id": "d", "do": "deadline"}])
    assert 25 < result.value <= 30


def test_async_for_and_other_coroutines_run_beside_each_other(tmp_path: Path) -> None:
    """The last item waits for a file that another coroutine makes after the first result."""
    file = tmp_path / "made"

    async def make(has_begun: asyncio.Event) -> None:
        await has_begun.wait()
        await asyncio.sleep(0.05)
        file.touch()

    async def main() -> list[Result]:
        has_begun, results = asyncio.Event(), []
        making = asyncio.create_task(make(has_begun))
        pool = WorkerPool(misbehaving.act, workers=2, batch_size=2, item_timeout=patience(10))
        items = [*bystanders(20), {"id": "last", "do": "wait_for_file", "file": str(file)}]
        async for result in pool.stream(items):
            has_begun.set()
            results.append(result)
        await making
        return [*results, *await pool.run_async([{"id": 0, "do": "exit_0"}])]

    results = asyncio.run(main())
    assert [result.status for result in results] == ["ok"] * 21 + ["crashed"]


def test_cancelled_async_stream_leaves_no_worker() -> None:
    before = set(process.children(os.getpid()))

    async def main() -> None:
        async for _ in WorkerPool(misbehaving.act, workers=2).stream(bystanders(100, sleep=0.1)):
            pass

    async def cancelled() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(main(), 0.6)

    asyncio.run(cancelled())
    assert set(process.children(os.getpid())) == before


def test_leaving_a_stream_early_ends_the_workers() -> None:
    before = set(process.children(os.getpid()))
    for result in WorkerPool(misbehaving.act, workers=2).stream(bystanders(1000, sleep=0.01)):
        assert result.status == "ok"
        break
    assert set(process.children(os.getpid())) == before
    with WorkerPool(misbehaving.act, workers=2).stream(bystanders(1000, sleep=0.01)) as stream:
        next(stream)
    assert set(process.children(os.getpid())) == before
    assert list(stream) == []


def test_pool_in_a_thread_that_ends_is_not_confused() -> None:
    results: list[Result] = []
    thread = threading.Thread(
        target=lambda: results.extend(WorkerPool(misbehaving.double, workers=2).run([{"id": 1, "n": 4}]))
    )
    thread.start()
    thread.join()
    assert [result.value for result in results] == [8]


def test_two_streams_side_by_side() -> None:
    first = WorkerPool(misbehaving.double, workers=1).stream({"id": n, "n": n} for n in range(100))
    second = WorkerPool(misbehaving.double, workers=1).stream({"id": n, "n": -n} for n in range(100))
    pairs = list(zip(first, second, strict=True))
    assert len(pairs) == 100
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fork_of_the_parent_does_not_end_the_workers_when_it_ends() -> None:
    stream = WorkerPool(misbehaving.act, workers=1).stream(bystanders(20, sleep=0.02))
    first = next(stream)
    if (pid := os.fork()) == 0:
        stream.__del__()
        os._exit(0)
    os.waitpid(pid, 0)
    assert {result.worker_pid for result in stream} == {first.worker_pid}


def test_stopping_waits_without_burning_the_processor() -> None:
    stream = WorkerPool(misbehaving.act, workers=2, stop_grace=1.0).stream([*bystanders(8), {"id": "x", "sleep": 600}])
    while "x" not in [view.item_id for view in stream.workers()]:
        stream.poll(0.01)
    began_s, burnt_s = time.monotonic(), time.process_time()
    stream.close()
    waited_s, burnt_s = time.monotonic() - began_s, time.process_time() - burnt_s
    assert waited_s > 0.8
    assert burnt_s < 0.5 * waited_s


def test_a_failing_source_ends_the_run_with_its_own_error() -> None:
    def source() -> Any:
        yield from bystanders(5)
        raise OSError("the disk fell off")

    before = set(process.children(os.getpid()))
    with pytest.raises(OSError, match="fell off"):
        list(WorkerPool(misbehaving.act, workers=2).stream(source()))
    assert set(process.children(os.getpid())) == before


def test_no_items_at_all() -> None:
    assert WorkerPool(misbehaving.act, workers=4).run([]) == []


def test_function_that_cannot_be_imported_is_one_clear_error_before_any_work() -> None:
    for name, message in [
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("misbehaving:nothing", "misbehaving:nothing is not there"),
        ("misbehaving:EXIT", "is not there"),
        ("misbehaving:coroutine", "coroutine"),
    ]:
        with pytest.raises(BadInput, match=message):
            WorkerPool(name, workers=2).run(bystanders(3))


def test_static_method_is_found_by_name() -> None:
    (result,) = WorkerPool(misbehaving.Methods.static, workers=1).run([{"id": 1}])
    assert result.value == "static"


def test_workers_that_all_die_at_their_start_end_the_run_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "stillborn.py").write_text("import os\nos.write(2, b'license expired')\nos._exit(9)\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(PoolBroken, match=r"(?s)exited with code 9.*license expired"):
            WorkerPool("stillborn:f", workers=2).run(bystanders(3))
    finally:
        sys.path.remove(str(tmp_path))


def test_script_with_its_function_in_main(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from weft.pipelines import WorkerPool\n"
        "FACTOR = 3\n"
        "def process_item(item, context):\n    return item['n'] * FACTOR\n"
        "if __name__ == '__main__':\n"
        "    print([r.value for r in WorkerPool(process_item, workers=2).run([{'id': n, 'n': n} for n in range(4)])])\n"
    )
    assert _run_script(script) == (0, "[0, 3, 6, 9]\n", "")
    script.write_text(script.read_text().replace("if __name__ == '__main__':", "if True:"))
    code, _, error = _run_script(script)
    assert code == 1
    assert 'put that part under `if __name__ == "__main__":`' in error


def test_quarantined_item_of_a_script_is_replayed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom weft.pipelines import WorkerPool\n"
        "def die(item, context):\n    os._exit(5)\n"
        "if __name__ == '__main__':\n"
        "    WorkerPool(die, workers=1, run_dir='run').run([{'id': 'x'}])\n"
    )
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)
    again = subprocess.run(
        [sys.executable, "-m", "weft", "pool", "replay", "run", "x"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (again.returncode, again.stdout[:20]) == (1, "x crashed in process"), again.stderr


def _run_script(path: Path) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=patience(30))
    return done.returncode, done.stdout, done.stderr
