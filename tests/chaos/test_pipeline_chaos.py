"""A pipeline's parent killed with -9, at every named step and at random moments: what was done is not done again, and
the output is that of an undisturbed run, byte for byte.

A few kills run always; WEFT_TEST_CHAOS=1 runs every step of every kind and 20 random kills.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import staged
from pace import patience
from staged import traced, words_file

from weft.pipelines.steps import STEPS

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
COUNT = 400 if FULL else 90
SHARD = 50 if FULL else 30
FORMATS = "[jsonl, parquet]" if FULL else "jsonl"
KINDS = ["rows", "collected"]
COLLECT = 'collect: {run: "staged:collect"}\n'
FILES = "  thumbnail: {run: 'staged:thumbnail'}\n"
# the kind of pipeline, a step, and how often it is passed before the kill
FEW = [("rows", "shard-renamed", 2), ("rows", "shard-published", 2), ("collected", "collected", 1)]
ALL = [(kind, step, times) for kind in KINDS for step in STEPS for times in (1, 2)]
ALL += [(kind, step, times) for kind in KINDS for step, times in (("result-read", 150), ("values-written", 20))]


class Folder:
    """A pipeline in its folder, run in a process."""

    def __init__(self, path: Path, *, collect: bool) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.trace = path / "trace"
        self.expected: dict[str, bytes] = {}
        text = words_file(path, count=COUNT, shard_items=SHARD, sleep=0.002).read_text()
        text = text.replace("output: {", FILES + "output: {format: " + FORMATS + ", ")
        (path / "words.yaml").write_text(text + (COLLECT if collect else ""))

    def start(self, *more: str, crash_at: str = "") -> subprocess.Popen[str]:
        variables = {
            "PYTHONPATH": str(Path(staged.__file__).parent), "PIPELINE_WORKER_COUNT": "2", "NO_COLOR": "1",
            staged.TRACE: str(self.trace), "WEFT_TEST_CRASH_AT": crash_at,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "weft", "pipeline", "run", "words.yaml", "-q", "--batch-size", "7", *more],
            cwd=self.path, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> int:
        _, said = process.communicate(timeout=patience(60))
        assert process.returncode in (0, -signal.SIGKILL, 2), said
        if process.returncode == 2:
            assert "there is no run" in said or "has finished" in said, said
        return process.returncode

    def resume(self) -> None:
        """Goes on; a run that was killed before it had written anything is begun."""
        if self.finish(self.start("--resume")) == 2 and not self.output():
            assert self.finish(self.start()) == 0

    def output(self) -> dict[str, bytes]:
        """What readers of the output see."""
        folder = self.path / "output" / "words"
        found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    def results(self) -> list[str]:
        (run,) = sorted((self.path / "logs").iterdir())
        return [json.loads(line)["id"] for line in (run / "results.jsonl").read_text().splitlines()]


Make = Callable[[str], Folder]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A maker of folders, each with the output that it should come to: that of a run that nobody killed."""
    base, expected = tmp_path_factory.mktemp("chaos"), dict[str, dict[str, bytes]]()

    def made(kind: str) -> Folder:
        if kind not in expected:
            folder = Folder(base / kind, collect=kind == "collected")
            assert folder.finish(folder.start()) == 0
            expected[kind] = folder.output()
            assert len(expected[kind]) > 3
        folder = Folder(base / f"{kind}-{len(list(base.iterdir()))}", collect=kind == "collected")
        folder.expected = expected[kind]
        return folder

    return made


def judged(folder: Folder, kills: int) -> None:
    """The output is right, and only what was under way at a kill was done twice."""
    assert folder.output() == folder.expected
    assert folder.results() == [f"i{number:05}" for number in range(COUNT)]
    counts = {name: count for name, count in traced(folder.trace).items() if name.startswith("join ")}
    assert len(counts) == COUNT
    # two workers, each in the middle of an item at each kill
    assert sum(counts.values()) - COUNT <= 2 * kills
    assert not (folder.path / "output" / "words" / ".new").exists()


@pytest.mark.parametrize(("kind", "step", "times"), ALL if FULL else FEW)
def test_killed_at_a_step_it_goes_on_as_if_it_had_not_been(make: Make, kind: str, step: str, times: int) -> None:
    folder = make(kind)
    died = folder.finish(folder.start(crash_at=f"{step}:{times}")) == -signal.SIGKILL
    if died:
        folder.resume()
    judged(folder, kills=int(died))


@pytest.mark.parametrize("kind", KINDS if FULL else ["rows"])
def test_killed_at_random_moments_it_goes_on_as_if_it_had_not_been(make: Make, kind: str) -> None:
    folder = make(kind)
    chance = random.Random(7)
    kills = 0
    process = folder.start()
    for _ in range(20 if FULL else 2):
        time.sleep(chance.uniform(0.1, 0.9))
        if process.poll() is None:
            process.kill()
            kills += 1
        if folder.finish(process) == 0:
            break
        process = folder.start(*(["--resume"] if list(folder.path.glob("logs/*/pipeline.json")) else []))
    if folder.finish(process) == -signal.SIGKILL:
        folder.resume()
    judged(folder, kills)


def test_values_that_the_cache_lost_to_a_power_cut_are_made_again(make: Make) -> None:
    folder = make("rows")
    assert folder.finish(folder.start(crash_at="result-read:50")) == -signal.SIGKILL
    data = folder.path / ".weft" / "cache" / "words" / "data"
    os.truncate(data, data.stat().st_size * 3 // 4)
    folder.resume()
    assert folder.output() == folder.expected
    assert folder.results() == [f"i{number:05}" for number in range(COUNT)]


@pytest.mark.parametrize(("done", "limit"), [(0, 1 << 13), (20, 1 << 11), (20, 1 << 13)] if FULL else [(20, 1 << 11)])
def test_on_a_full_disk_it_says_so_and_resumes_when_there_is_room(make: Make, done: int, limit: int) -> None:
    folder = make("rows")
    process = folder.start()
    until_s = time.monotonic() + patience(30)
    while traced(folder.trace)["join"] < done and time.monotonic() < until_s:
        time.sleep(0.01)
    # a limit on the size of files stands for the disk: writing beyond it fails alike
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 1, said
    assert "Traceback" not in said
    assert "no space left" in said or "File too large" in said, said
    folder.resume()
    assert folder.output() == folder.expected
    assert folder.results() == [f"i{number:05}" for number in range(COUNT)]


def test_a_new_run_after_a_kill_takes_what_was_done_from_the_cache(make: Make) -> None:
    folder = make("rows")
    assert folder.finish(folder.start(crash_at="checkpointed:2")) == -signal.SIGKILL
    (killed,) = (folder.path / "logs").iterdir()
    before = traced(folder.trace)["join"]
    assert folder.finish(folder.start()) == 0
    assert folder.output() == folder.expected
    assert traced(folder.trace)["join"] < COUNT + before, "nothing was taken from the cache"
    assert killed.exists()
