"""The process between the parent and the workers: killed by items, stopped, left behind by its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pace import patience

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving

from weft.pipelines import PoolBroken, WorkerPool
from weft.supervise import process


def test_items_that_kill_the_keeper_among_slow_ones_cost_nobody_else_a_result() -> None:
    work = [{"id": f"slow-{n}", "sleep": 0.02} for n in range(20)]
    killers = [f"killer-{n}" for n in range(4)]
    for place, name in enumerate(killers):
        work.insert(place * 4 + 2, {"id": name, "do": "kill_parent"})
    results = WorkerPool(misbehaving.act, workers=3, batch_size=3).run(work)
    assert [result.item_id for result in results] == [item["id"] for item in work]
    assert [result.item_id for result in results if result.status == "crashed"] == killers
    assert {result.status for result in results if result.item_id not in killers} == {"ok"}
    assert {str(result.error) for result in results if result.item_id in killers} == {
        "the fork server died while this item ran"
    }


def test_a_keeper_that_dies_before_any_item_is_begun_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "kills_at_import.py").write_text(
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\ndef work(item, context): ...\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(PoolBroken, match="keeps dying before any item is begun"):
            WorkerPool("kills_at_import:work", workers=2).run([{"id": n} for n in range(20)])
    finally:
        sys.path.remove(str(tmp_path))


def test_workers_that_are_killed_at_their_start_are_tried_again_where_others_have_worked(tmp_path: Path) -> None:
    (tmp_path / "killed_at_start.py").write_text(
        "import os, signal\n"
        f"fd = os.open({str(tmp_path / 'starts')!r}, os.O_RDWR | os.O_CREAT | os.O_APPEND)\n"
        "os.write(fd, b'x')\n"
        "if 2 <= os.fstat(fd).st_size <= 6:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def work(item, context):\n"
        "    if item['id'] == 1 and context.attempt == 1:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        results = WorkerPool("killed_at_start:work", workers=1).run([{"id": 1}, {"id": 2}])
    finally:
        sys.path.remove(str(tmp_path))
    assert [(result.status, result.attempts) for result in results] == [("ok", 2), ("ok", 1)]
    assert (tmp_path / "starts").stat().st_size == 7


class Run:
    """`weft pool run` in a directory of its own."""

    def __init__(self, place: Path, *items: dict[str, Any]) -> None:
        self.place = place
        self.trace = place / "trace"
        (place / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "weft", "pool", "run", "misbehaving:act", "--items", "items.jsonl", "-q"]
        path = os.pathsep.join([str(Path(misbehaving.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.Popen(
            [*command, "--out", "out.jsonl", "--workers", "2", *more],
            cwd=self.place,
            env=os.environ | {"PYTHONPATH": path},
            stderr=(self.place / "stderr").open("wb"),
        )

    def told(self) -> str:
        """What the last one said."""
        return (self.place / "stderr").read_text()

    def statuses(self) -> dict[str, str]:
        lines = [json.loads(line) for line in (self.place / "out.jsonl").read_text().splitlines()]
        return {line["item_id"]: line["status"] for line in lines}


def until(what: Callable[[], Any]) -> Any:
    """Its first true answer; the time limit is against hangs only."""
    until_s = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return found


def gone(*pids: int) -> bool:
    return all(process.has_ended(pid) for pid in pids)


def started(run: Run, parent: subprocess.Popen[bytes]) -> tuple[int, list[int]]:
    """Keeper and workers of a run whose first item is done and whose second one is running."""
    until(lambda: run.trace.exists() and (run.place / "slept-second").exists())
    (engine_process,) = process.children(parent.pid)
    return engine_process, process.children(engine_process)


def test_a_stopped_keeper_whose_parent_is_killed_ends_and_the_run_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path, {"id": "first", "trace": str(tmp_path / "trace")}, {"id": "second", "do": "sleeps_once"})
    parent = run.start()
    engine_process, workers = started(run, parent)
    os.kill(engine_process, signal.SIGSTOP)
    os.kill(workers[0], signal.SIGSTOP)
    until(lambda: process.state(engine_process) == "T")
    parent.kill()
    parent.wait()
    try:
        until(lambda: gone(engine_process, *workers))
        again = run.start("--resume")
        again.wait(patience(60))
    finally:
        for pid in (engine_process, *workers):
            process.kill(pid)
    assert (again.returncode, run.told()) == (0, "")
    assert run.statuses() == {"first": "ok", "second": "ok"}


def test_what_a_dead_run_left_running_is_ended_by_the_next(tmp_path: Path) -> None:
    """Parent and keeper killed at once leave what an item had put into a session of its own, and that has the lock."""
    run = Run(
        tmp_path,
        {"id": "first", "do": "daemon", "trace": str(tmp_path / "trace")},
        {"id": "second", "do": "sleeps_once"},
    )
    parent = run.start()
    engine_process, workers = started(run, parent)
    stray = int((tmp_path / "trace.daemon").read_text())
    bystander = subprocess.Popen(["sleep", "60"])  # not of the run: nobody's business
    os.kill(parent.pid, signal.SIGSTOP)  # so that it does not start another keeper, and neither ends anything
    os.kill(engine_process, signal.SIGSTOP)
    until(lambda: process.state(engine_process) == "T")
    os.kill(engine_process, signal.SIGKILL)
    parent.kill()
    parent.wait()
    try:
        until(lambda: gone(engine_process, *workers))
        assert not gone(stray)
        again = run.start("--resume")
        assert again.wait(patience(60)) == 0, run.told()
        assert "1 processes that it left were ended" in run.told()
        assert gone(stray)
        assert bystander.poll() is None
    finally:
        process.kill(stray)
        bystander.kill()
        bystander.wait()
    assert run.statuses() == {"first": "ok", "second": "ok"}


def test_a_fork_of_the_parent_has_no_part_in_the_lock(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, time\n"
        f"sys.path.insert(0, {str(Path(misbehaving.__file__).parent)!r})\n"
        "from weft.pipelines import WorkerPool\n"
        "if __name__ == '__main__':\n"
        "    stream = WorkerPool('misbehaving:double', workers=1, run_dir='run').stream([{'id': 1, 'n': 1}])\n"
        "    next(stream)\n"
        "    fork = os.fork()\n"
        "    if fork == 0:\n        time.sleep(60)\n"
        "    print(fork, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert parent.stdout is not None
    fork = int(parent.stdout.readline())
    try:
        parent.wait(patience(60))
        again = WorkerPool(misbehaving.double, workers=1, run_dir=tmp_path / "run", resume=True)
        assert [result.value for result in again.run([{"id": 1, "n": 1}, {"id": 2, "n": 2}])] == [2, 4]
        assert not gone(fork)
    finally:
        process.kill(fork)
        parent.stdout.close()
