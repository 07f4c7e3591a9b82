"""Hands killed with -9 while they work for a pipeline: its output is that of a local run, byte for byte.

Two kills over 200 items run always; WEFT_TEST_CHAOS=1 makes it 20 over 2,000.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pool_hands
import pytest
import staged
from hands import wait_until
from pace import patience
from staged import traced, words_file

from weft.supervise.redis_server import RedisServer

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
COUNT, KILLS = (2000, 20) if FULL else (200, 2)
HANDS = 3
FILES = "  thumbnail: {run: 'staged:thumbnail'}\n"
CODE = Path(staged.__file__).parent


class HandsFolder:
    """A pipeline of five stages in its folder."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.trace = path / "trace"
        text = words_file(path, count=COUNT, shard_items=30, sleep=0.03).read_text()
        (path / "words.yaml").write_text(text.replace("output: {", FILES + "output: {format: jsonl, "))

    def start(self, *more: str) -> subprocess.Popen[str]:
        variables = {"PYTHONPATH": str(CODE), "NO_COLOR": "1", staged.TRACE: str(self.trace)}
        return subprocess.Popen(
            [sys.executable, "-m", "weft", "pipeline", "run", "words.yaml", "-q", "--batch-size", "20", *more],
            cwd=self.path, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> None:
        _, errors = process.communicate(timeout=patience(120 if not FULL else 900))
        assert process.returncode == 0, errors

    def output(self) -> dict[str, bytes]:
        """What readers of the output see."""
        folder = self.path / "output" / "words"
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_hands_are_killed_and_the_output_is_that_of_a_local_run(
    start_server: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: RedisServer = start_server()  # type: ignore[operator]
    local, remote = HandsFolder(tmp_path / "local"), HandsFolder(tmp_path / "remote")
    monkeypatch.setenv(staged.TRACE, str(remote.trace))
    undisturbed = local.start("--workers", "2")
    with pool_hands.cluster(server.url, tmp_path) as hands:
        for _ in range(HANDS):
            hands.start("--concurrency", "1", path=[CODE], wait=False)
        for hand in hands.running:
            hand.wait_ready()
        run = remote.start("--engine", "celery")
        draw = random.Random(COUNT)
        for kill in range(KILLS):
            _wait_until_done(remote, run, (kill + 1) * COUNT // (KILLS + 2))
            assert run.poll() is None, run.communicate()
            hands.kill(draw.choice(hands.running))
            hands.start("--concurrency", "1", path=[CODE], wait=False)
        remote.finish(run)
    local.finish(undisturbed)
    assert remote.output() == local.output()
    counts = {name: count for name, count in traced(remote.trace).items() if name.startswith("join ")}
    assert len(counts) == COUNT
    # of a hand that was killed: the item that it held, and those whose results it had not sent
    assert sum(counts.values()) - COUNT <= 3 * KILLS


def _wait_until_done(folder: HandsFolder, run: subprocess.Popen[str], count: int) -> None:
    wait_until(lambda: traced(folder.trace)["join"] >= count or run.poll() is not None, "no progress", 120)
