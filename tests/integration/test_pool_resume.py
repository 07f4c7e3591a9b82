"""A run that was cut short goes on where it was: nothing done twice, nothing forgotten, the result that of one run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving
from pace import patience

from weft.errors import BadInput, WeftError
from weft.pipelines import WorkerPool
from weft.supervise import process

FUNCTIONS = Path(misbehaving.__file__).parent
ITEMS = 250


class Run:
    """`weft pool run` in a directory of its own."""

    def __init__(self, place: Path, items: list[dict[str, Any]]) -> None:
        self.place = place
        self.trace = place / "trace"
        (place / "items.jsonl").write_text(
            "".join(json.dumps(item | {"trace": str(self.trace)}) + "\n" for item in items)
        )

    def start(self, *more: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "weft", "pool", "run", "misbehaving:act", "--items", "items.jsonl"]
        command += ["--out", "out.jsonl", "--workers", "3", "--batch-size", "8", *more]
        path = os.pathsep.join([str(FUNCTIONS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.Popen(command, cwd=self.place, env=environment, stderr=stderr, stdout=subprocess.DEVNULL)

    def wait_for(self, done: int) -> None:
        until_s = time.monotonic() + patience(20)
        while len(self.traced()) < done:
            assert time.monotonic() < until_s
            time.sleep(0.01)

    def traced(self) -> list[str]:
        return self.trace.read_text().splitlines() if self.trace.exists() else []

    def results(self) -> dict[str, Any]:
        lines = [json.loads(line) for line in (self.place / "out.jsonl").read_text().splitlines()]
        counts = Counter(line["item_id"] for line in lines)
        assert set(counts.values()) <= {1}
        # How much memory a worker had is not the same twice.
        errors = {line["item_id"]: re.sub(r" \(peak \d+ MB\)", "", line["error"] or "") for line in lines}
        return {line["item_id"]: (line["status"], line["value"], errors[line["item_id"]]) for line in lines}


def work(count: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"id": f"i{n}", "sleep": 0.02} for n in range(count)]
    items[5] = {"id": "bad", "do": "raise"}
    items[40] = {"id": "poison", "do": "exit_7"}
    return items


def family(pid: int) -> set[int]:
    """A process and all below it."""
    return {pid}.union(*(family(child) for child in process.children(pid)))


def gone(pids: set[int], within_s: float) -> bool:
    until_s = time.monotonic() + patience(within_s)
    while time.monotonic() < until_s:
        if all(process.has_ended(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = Run(tmp_path_factory.mktemp("undisturbed"), work(ITEMS))
    assert run.start().wait(patience(30)) == 1
    return run.results()


def test_killed_parent_takes_everything_with_it_and_the_run_goes_on(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    run = Run(tmp_path, work(ITEMS))
    for done in (30, 80):
        parent = run.start(*(["--resume"] if done > 30 else []))
        run.wait_for(done)
        everybody = family(parent.pid)
        assert len(everybody) >= 4  # the poisoned one may just be on its way back
        parent.kill()
        parent.wait()
        assert gone(everybody, 3)
    assert run.start("--resume").wait(patience(30)) == 1
    assert run.results() == undisturbed
    # done items are not done again; two kills may each have hit one between its last act and its commit
    assert len(run.traced()) - len(set(run.traced())) <= 2
    assert len(list((tmp_path / "logs").iterdir())) == 1
    assert not list((tmp_path / "logs").glob("*/slots/*"))


def test_ctrl_c_stops_it_and_the_run_goes_on(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run = Run(tmp_path, work(ITEMS))
    for number in (signal.SIGINT, signal.SIGTERM):
        parent = run.start(*([] if number == signal.SIGINT else ["--resume"]), stderr=subprocess.PIPE)
        run.wait_for(len(run.traced()) + 20)
        everybody = family(parent.pid)
        parent.send_signal(number)
        _, told = parent.communicate(timeout=patience(10))
        assert parent.returncode == 130
        assert len(run.traced()) < ITEMS
        assert b"--resume" in told
        assert gone(everybody, 0.1)
    assert run.start("--resume").wait(patience(30)) == 1
    assert run.results() == undisturbed
    assert max(Counter(run.traced()).values()) == 1  # what was running when it was stopped could end


def test_resuming_a_run_that_is_alive_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, [{"id": n, "sleep": 0.5} for n in range(60)])
    parent = run.start()
    run.wait_for(1)
    second = run.start("--resume", stderr=subprocess.PIPE)
    _, told = second.communicate(timeout=patience(20))
    assert second.returncode == 2
    assert b"still running" in told
    parent.terminate()
    assert parent.wait(patience(10)) == 130
    assert (tmp_path / "out.jsonl").read_bytes().startswith(b"{"), "what is there is what the first one wrote"


def test_resume_of_a_finished_run_does_nothing_and_gives_the_same(tmp_path: Path) -> None:
    run = Run(tmp_path, work(50))
    run.start().wait(patience(30))
    first, traced = run.results(), run.traced()
    assert run.start("--resume").wait(patience(30)) == 1
    assert (run.results(), run.traced()) == (first, traced)


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    run = Run(tmp_path, work(50))
    parent = run.start("--resume", stderr=subprocess.PIPE)
    assert b"leave out --resume" in parent.communicate()[1]
    assert parent.returncode == 2


def test_python_run_resumes_in_the_order_of_the_items(tmp_path: Path) -> None:
    items = [{"id": f"i{n}", "trace": str(tmp_path / "trace")} for n in range(60)]
    pool = WorkerPool(misbehaving.act, workers=2, batch_size=5, run_dir=tmp_path / "run", logs=False)
    with pool.stream(items) as stream:
        for _ in range(20):
            next(stream)
    again = WorkerPool(misbehaving.act, workers=2, run_dir=tmp_path / "run", logs=False, resume=True)
    results = again.run(items)
    assert [result.item_id for result in results] == [item["id"] for item in items]
    assert Counter((tmp_path / "trace").read_text().splitlines()) == Counter(item["id"] for item in items)
    assert [result.item_id for result in again.stream(items, ordered=True)] == [item["id"] for item in items]


def test_a_run_directory_with_results_is_not_run_over(tmp_path: Path) -> None:
    WorkerPool(misbehaving.double, workers=1, run_dir=tmp_path / "run").run([{"id": 1, "n": 1}])
    with pytest.raises(BadInput, match="resume it"):
        WorkerPool(misbehaving.double, workers=1, run_dir=tmp_path / "run").run([{"id": 1, "n": 1}])


def test_torn_journal_is_cut_and_only_what_it_lost_is_done_again(tmp_path: Path) -> None:
    items = [{"id": n, "n": n} for n in range(40)]
    for some in (items[:20], items):  # two runs, so that the journal has a part that is older than its last record
        resume = some is items
        WorkerPool(misbehaving.double, workers=1, batch_size=10, run_dir=tmp_path / "run", resume=resume).run(some)
    journal = tmp_path / "run" / "journal"
    os.truncate(journal, journal.stat().st_size - 7)
    told: list[Any] = []
    pool = WorkerPool(misbehaving.double, workers=1, run_dir=tmp_path / "run", resume=True)
    pool.on_progress(told.append)
    results = pool.run(items)
    assert [result.value for result in results] == [2 * n for n in range(40)]
    assert 0 < sum(event.kind == "finished" for event in told) < 40


def test_full_disk_ends_the_run_and_what_was_finished_is_not_done_again(tmp_path: Path) -> None:
    items = [{"id": f"i{n}", "sleep": 0.01, "trace": str(tmp_path / "trace")} for n in range(60)]
    pool = WorkerPool(misbehaving.act, workers=2, batch_size=5, run_dir=tmp_path / "run", logs=False)
    stream = pool.stream(items)
    for _ in range(10):
        next(stream)
    full = os.open("/dev/full", os.O_WRONLY)
    links = {fd: str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.exists()}
    (journal,) = [int(fd.name) for fd, path in links.items() if path == str(tmp_path / "run" / "journal")]
    os.dup2(full, journal)
    os.close(full)
    with pytest.raises(WeftError, match="No space left"):
        list(stream)
    again = WorkerPool(misbehaving.act, workers=2, run_dir=tmp_path / "run", logs=False, resume=True)
    assert Counter(result.item_id for result in again.stream(items)) == Counter(item["id"] for item in items)
    done = Counter((tmp_path / "trace").read_text().splitlines())
    assert sum(done.values()) - len(done) <= 1  # the end may hit one between its last act and its commit


def test_stealing_never_runs_an_item_twice(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    items = [{"id": n, "sleep": 0.004 if n % 50 < 3 else 0, "trace": str(trace)} for n in range(1500)]
    for batch_size in (3, 50):
        trace.unlink(missing_ok=True)
        assert len(WorkerPool(misbehaving.act, workers=4, batch_size=batch_size).run(items)) == 1500
        assert Counter(trace.read_text().splitlines()) == {str(n): 1 for n in range(1500)}
