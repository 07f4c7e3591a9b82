"""The pool under random SIGKILL and SIGSTOP: every item once in the results, poison quarantined, nothing left behind.

A short version runs always; WEFT_TEST_CHAOS=1 runs 1,300 items, 100 kills and 20 stops, and storms that hit the keeper.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving
from pace import patience

from weft.pipelines import Result, Status, WorkerPool
from weft.supervise import process

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
POISON = {"poison-kill": "kill", "poison-segfault": "segfault", "poison-exit": "exit_7"}


class Assassin(threading.Thread):
    """Sends signals to random workers, found through /proc and not through the pool, until it has sent them all."""

    def __init__(
        self, signals: list[signal.Signals], pause_s: float, seed: int, *, server_after: Path | None = None
    ) -> None:
        """`server_after`: the fork server dies, too, once this trace of items has grown since the last time: a pool
        gives up when it dies again and again before any item is begun.
        """
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._random.shuffle(signals)
        self._signals = signals
        self._pause_s = pause_s
        self._trace = server_after
        self._traced = 0
        self.sent: Counter[int] = Counter()
        self.over = threading.Event()

    def run(self) -> None:
        for number in self._signals:
            while not self._hit(number):
                if self.over.wait(0.005):
                    return
            self.sent[number] += 1
            if self.over.wait(self._random.uniform(0.5, 1.5) * self._pause_s):
                return

    def _hit(self, number: int) -> bool:
        keepers = [pid for pid in process.children(os.getpid()) if _name(pid) == "weft-forkserver"]
        workers = [
            pid
            for engine_process in keepers
            for pid in process.children(engine_process)
            if process.state(pid) in ("R", "S", "D")
        ]
        if self._random.random() < 0.1 and self._has_grown():
            workers = keepers
        return bool(workers) and process.kill(self._random.choice(workers), number)

    def _has_grown(self) -> bool:
        """Whether items have ended since the last time that it was so."""
        size = self._trace.stat().st_size if self._trace is not None and self._trace.exists() else 0
        has_grown, self._traced = size > self._traced, max(size, self._traced)
        return has_grown


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def items(count: int, sleep_s: float, trace: Path) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [
        {"id": f"item-{n:04}", "sleep": sleep_s, "trace": str(trace)} for n in range(count - len(POISON))
    ]
    for number, (name, action) in enumerate(POISON.items(), 1):
        plain.insert(number * count // 5, {"id": name, "do": action})
    return plain


def leftovers(before: set[int]) -> list[str]:
    """Processes of ours that are still there."""
    return [f"{pid} {_name(pid)}" for pid in process.children(os.getpid()) if pid not in before]


def open_files() -> list[str]:
    return sorted(str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())


def mapped_slots() -> int:
    return Path("/proc/self/maps").read_text().count("weft-slot") + Path("/proc/self/maps").read_text().count(".slot")


def run_with_chaos(tmp_path: Path, work: list[dict[str, Any]], assassin: Assassin, **settings: Any) -> list[Result]:
    files, children = open_files(), set(process.children(os.getpid()))
    pool = WorkerPool(
        misbehaving.act,
        workers=4,
        run_dir=tmp_path / "run",
        heartbeat_timeout=patience(0.2),
        item_timeout=patience(20),
        **settings,
    )
    assassin.start()
    try:
        results = list(pool.stream(work))
    finally:
        assassin.over.set()
        assassin.join()
    assert leftovers(children) == []
    assert not Counter(open_files()) - Counter(files), "no file is left open"
    assert mapped_slots() == 0
    assert list((tmp_path / "run" / "slots").iterdir()) == []
    return results


def check(results: list[Result], work: list[dict[str, Any]], tmp_path: Path) -> None:
    assert Counter(result.item_id for result in results) == Counter(item["id"] for item in work)
    crashed = {str(result.item_id): result for result in results if result.status is Status.CRASHED}
    assert set(crashed) == set(POISON), [result for name, result in crashed.items() if name not in POISON]
    assert {result.status for result in results if result.item_id not in POISON} == {Status.OK}
    assert crashed["poison-segfault"].death is not None
    assert crashed["poison-segfault"].death.signal == "SIGSEGV"
    assert crashed["poison-exit"].death is not None
    assert crashed["poison-exit"].death.exit_code == 7
    for result in crashed.values():
        assert result.death is not None
        assert result.death.peak_memory_mb > 1
        assert result.log is not None
        assert "[end] crashed" in Path(result.log).read_text().splitlines()[-1]
        kept = json.loads((tmp_path / "run" / "quarantine" / f"{result.item_id}.json").read_text())
        assert kept["death"]["peak_memory_mb"] == result.death.peak_memory_mb


def test_random_kills_and_stops_lose_nothing(tmp_path: Path) -> None:
    count, kills, stops, sleep_s = (1300, 100, 20, 0.03) if FULL else (250, 15, 3, 0.02)
    work = items(count, sleep_s, tmp_path / "trace")
    assassin = Assassin([signal.SIGKILL] * kills + [signal.SIGSTOP] * stops, 0.08, seed=kills)
    began_s = time.monotonic()
    results = run_with_chaos(tmp_path, work, assassin, batch_size=20)
    print(f"{len(results)} results, signals {dict(assassin.sent)}, {time.monotonic() - began_s:.1f} s")
    if FULL:
        assert assassin.sent == {signal.SIGKILL: kills, signal.SIGSTOP: stops}
    check(results, work, tmp_path)
    # an item that was killed in the instant between its last act and its commit is rightly done again, and no other
    done = Counter((tmp_path / "trace").read_text().splitlines())
    assert sum(done.values()) - len(done) <= 3


@pytest.mark.skipif(not FULL, reason="WEFT_TEST_CHAOS=1 runs it")
@pytest.mark.timeout(600)
def test_storms_with_the_keeper_in_them(tmp_path: Path) -> None:
    for seed in range(5):
        place = tmp_path / str(seed)
        place.mkdir()
        work = items(600, 0.02, place / "trace")
        assassin = Assassin([signal.SIGKILL] * 50 + [signal.SIGSTOP] * 5, 0.08, seed, server_after=place / "trace")
        results = run_with_chaos(place, work, assassin, batch_size=random.Random(seed).choice([1, 7, 50]))
        print(f"seed {seed}: {len(results)} results, signals {dict(assassin.sent)}")
        check(results, work, place)


@pytest.mark.skipif(not FULL, reason="WEFT_TEST_CHAOS=1 runs it")
@pytest.mark.timeout(600)
def test_a_parent_killed_again_and_again_forgets_nothing(tmp_path: Path) -> None:
    """SIGKILL to `weft pool run` at random moments, its start included, and --resume each time; then all is checked."""
    trace, chance = tmp_path / "trace", random.Random(7)
    work = [{"id": f"i{n}", "sleep": 0.004, "trace": str(trace)} for n in range(2000)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in work))
    command = [
        sys.executable,
        "-m",
        "weft",
        "pool",
        "run",
        "misbehaving:act",
        "--items",
        "items.jsonl",
        "--workers",
        "3",
    ]
    command += ["--batch-size", "20", "--out", "out.jsonl", "--quiet"]
    places = [str(Path(misbehaving.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    kills = 0
    while True:
        resume = ["--resume"] if list((tmp_path / "logs").glob("*/run.json")) else []
        parent = subprocess.Popen([*command, *resume], cwd=tmp_path, env=environment)
        try:
            # later and later: where a start alone takes seconds, all of the early kills hit it
            if parent.wait(chance.uniform(0.2, 1.2 + 0.1 * kills)) == 0:
                break
        except subprocess.TimeoutExpired:
            kills += 1
        parent.kill()
        parent.wait()
    assert kills >= 3
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert Counter(result["item_id"] for result in results) == Counter(item["id"] for item in work)
    assert {result["status"] for result in results} == {"ok"}
    done = Counter(trace.read_text().splitlines())
    print(f"{kills} kills, {sum(done.values()) - len(done)} of {len(work)} items done twice")
    assert sum(done.values()) - len(done) <= kills  # each kill may hit one between its last act and its commit


def test_a_killed_keeper_costs_nothing(tmp_path: Path) -> None:
    work = items(120, 0.02, tmp_path / "trace")
    killed: list[int] = []

    def kill_keeper_once(event: Any) -> None:
        if event.counts.done == 30 and not killed:
            killed.extend(pid for pid in process.children(os.getpid()) if _name(pid) == "weft-forkserver")
            os.kill(killed[0], signal.SIGKILL)

    results = _with_listener(tmp_path, work, kill_keeper_once)
    assert len(killed) == 1
    check(results, work, tmp_path)


def _with_listener(tmp_path: Path, work: list[dict[str, Any]], listener: Callable[[Any], None]) -> list[Result]:
    pool = WorkerPool(misbehaving.act, workers=4, run_dir=tmp_path / "run")
    pool.on_progress(listener)
    return pool.run(work)
