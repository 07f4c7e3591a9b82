"""Unkind ends of a run: signals in odd places, a fork that outlives its parent, a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving
from pace import patience

from weft.errors import WeftError
from weft.pipelines import WorkerPool
from weft.supervise import process

FUNCTIONS = Path(misbehaving.__file__).parent


def gone(pids: set[int], within_s: float) -> bool:
    until_s = time.monotonic() + patience(within_s)
    while time.monotonic() < until_s:
        if all(process.has_ended(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def test_workers_end_with_their_parent_though_a_fork_of_it_lives_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, time\n"
        "from weft.pipelines import WorkerPool\n"
        "def wait(item, context):\n    time.sleep(item['s'])\n"
        "if __name__ == '__main__':\n"
        "    stream = WorkerPool(wait, workers=1).stream([{'id': 1, 's': 0}, {'id': 2, 's': 6000}])\n"
        "    print(next(stream).worker_pid, flush=True)\n"
        "    fork = os.fork()\n"
        "    if fork == 0:\n        time.sleep(6000)\n"
        "    print(fork, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker, fork = int(parent.stdout.readline()), int(parent.stdout.readline())
    try:
        parent.wait(patience(10))
        assert gone({worker}, 5)
        assert not process.has_ended(fork)
    finally:
        process.kill(fork)
        parent.stdout.close()


def test_sigterm_ends_a_run_in_the_background_of_a_script_where_ctrl_c_is_ignored(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "items.jsonl").write_text(
        "".join(f'{{"id": {n}, "sleep": 0.2, "trace": "{trace}"}}\n' for n in range(200))
    )
    command = [sys.executable, "-m", "weft", "pool", "run", "misbehaving:act", "--items", "items.jsonl", "-q"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        path = os.pathsep.join([str(FUNCTIONS), *filter(None, [os.environ.get("PYTHONPATH")])])
        parent = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        until_s = time.monotonic() + patience(20)
        while not trace.exists() and time.monotonic() < until_s:
            time.sleep(0.01)
        parent.terminate()
        _, told = parent.communicate(timeout=patience(10))
        assert (parent.returncode, b"--resume" in told) == (130, True)
    finally:
        parent.kill()


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)


def test_ctrl_c_belongs_to_the_main_thread_though_another_reads_the_stream() -> None:
    stream = WorkerPool(misbehaving.act, workers=1).stream([{"id": n, "sleep": 0.05} for n in range(40)])
    problems: list[BaseException] = []

    def read() -> None:
        try:
            list(stream)
        except BaseException as error:
            problems.append(error)

    next(stream)
    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                _interrupt()
    finally:
        thread.join(patience(30))
    assert not problems


def test_a_new_run_takes_nothing_over_from_one_that_was_killed_before_its_first_word(tmp_path: Path) -> None:
    (tmp_path / "run" / "slots").mkdir(parents=True)
    (tmp_path / "run" / "slots" / f"{os.getpid()}-1.slot").write_bytes(b"left behind")
    (result,) = WorkerPool(misbehaving.double, workers=1, run_dir=tmp_path / "run").run([{"id": 1, "n": 1}])
    assert result.value == 2
    assert list((tmp_path / "run" / "slots").iterdir()) == []


@pytest.fixture
def small_disk(mount_disk: Callable[[str], Path]) -> Path:
    return mount_disk("2m")


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


def test_a_disk_that_fills_up_is_no_items_fault(tmp_path: Path, small_disk: Path) -> None:
    work = [{"id": n, "sleep": 0.001, "do": "value", "value": "x" * 200} for n in range(600)]
    run_dir, died = small_disk / "run", list[str]()
    pool = WorkerPool(misbehaving.act, workers=2, batch_size=1, run_dir=run_dir, logs=False)
    pool.on_progress(lambda event: died.append(event.text or "") if event.kind == "worker-died" else None)
    stream = pool.stream(work)
    next(stream)
    with pytest.raises(OSError, match="No space left"):
        _fill(small_disk / "filler")
    with pytest.raises(WeftError, match="No space left"):
        list(stream)
    assert not [text for text in died if "SIGBUS" in text]
    (small_disk / "filler").unlink()
    again = WorkerPool(misbehaving.act, workers=2, run_dir=run_dir, logs=False, resume=True)
    assert Counter(result.status for result in again.stream(work)) == {"ok": 600}


def test_no_room_for_even_one_worker_is_said(tmp_path: Path, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * (1_900 << 10))
    with pytest.raises(WeftError, match=r"cannot create the files for its results.*No space left"):
        WorkerPool(misbehaving.double, workers=1, run_dir=small_disk / "run").run([{"id": 1, "n": 1}])


def test_full_disk_for_the_results_is_reported_and_the_run_goes_on_later(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text("".join(f'{{"id": {n}, "n": {n}}}\n' for n in range(500)))
    path = os.pathsep.join([str(FUNCTIONS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "weft", "pool", "run", "misbehaving:double", "--items", "items.jsonl", "-q"]
    done = [
        subprocess.run([*command, *more], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True)
        for more in (["--out", "/dev/full"], ["--out", "out.jsonl", "--resume"])
    ]
    assert [each.returncode for each in done] == [1, 0]
    assert b"cannot be written to /dev/full: No space left" in done[0].stderr
    assert b"internal" not in done[0].stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 500
