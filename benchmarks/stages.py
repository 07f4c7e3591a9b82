"""What the stage layer costs: per item and stage over the pool alone, and a rerun of which everything is cached.

    python benchmarks/stages.py [--rounds 5] [--quick] [--json FILE]

Overhead: the same trivial function in a pool, and in pipelines of one and of five stages, batch 50, one worker, without
logs, with journal, in turns. Parent and worker run beside each other, so an item costs what the busier of them spends
on it: that is judged, as processor time, which other work on the machine does not change; the wall time is shown.
Rerun: `weft pipeline run` of 1,000 items in three stages, as a process, from its start to its end, logs and report
included. The median of the rounds is judged; in brackets the round that was disturbed least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STAGES = (1, 5)
GOAL_US, GOAL_RERUN_S = 10.0, 1.0


def numbers(settings: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """The source."""
    for number in range(settings["count"]):
        yield {"id": number, "n": number}


def trivial(item: Mapping[str, Any], context: Any) -> int:
    """Costs nothing: what is measured is the layer."""
    return int(item["n"]) * 2


class Clock:
    """Wall time of a run, and processor time of its parent and its worker, between calls of `tick`."""

    def __init__(self) -> None:
        self._first: tuple[float, float, float] | None = None
        self._last = (0.0, 0.0, 0.0)
        self._ticks = self._counted = 0
        self.worker: int | None = None

    def tick(self) -> None:
        """An item has ended."""
        self._ticks += 1
        if self._first is None or self._ticks % 1000 == 0:
            self._last = (time.perf_counter(), time.process_time(), self._worker_s())
            self._counted = self._ticks
            self._first = self._first or self._last

    def _worker_s(self) -> float:
        if self.worker is None:
            return 0.0
        fields = Path(f"/proc/{self.worker}/schedstat").read_text().split()
        return int(fields[0]) / 1e9

    def us(self) -> dict[str, float]:
        """Microseconds an item."""
        assert self._first is not None
        wall, parent, worker = (
            (last - first) / (self._counted - 1) * 1e6 for first, last in zip(self._first, self._last, strict=True)
        )
        return {"wall": wall, "parent": parent, "worker": worker, "busier": max(parent, worker)}


def pool_us(count: int) -> dict[str, float]:
    """An item in a pool alone."""
    from weft.pipelines import WorkerPool

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        pool = WorkerPool(trivial, workers=1, batch_size=50, run_dir=Path(folder) / "run", logs=False)
        with pool.stream(numbers({"count": count})) as stream:
            for _ in stream:
                if clock.worker is None:
                    clock.worker = stream.workers()[0].pid or None
                clock.tick()
    return clock.us()


def stages_us(count: int, stages: int) -> dict[str, float]:
    """An item in a pipeline of so many stages, its output written."""
    from weft.pipelines.pool.view import NoView
    from weft.pipelines.run import PipelineRun, RunOptions
    from weft.pipelines.spec.definition import load

    clock = Clock()

    class FindWorker(NoView):
        def update(self, stream: Any) -> None:
            if clock.worker is None:
                clock.worker = stream.workers()[0].pid or None

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (pipeline,) = load(write_pipeline(folder, count, stages), os.environ).values()
        run = PipelineRun(
            pipeline, RunOptions(logs=folder / "logs", cache=folder / "cache", workers=1, item_logs=False)
        )
        add = run._writer.add

        def timed(pending: Any, result: Any) -> None:
            add(pending, result)
            if clock.worker is not None:
                clock.tick()

        run._writer.add = timed  # type: ignore[method-assign]
        run.run(FindWorker)
    return clock.us()


def write_pipeline(folder: Path, count: int, stages: int) -> Path:
    """A pipeline of stages that depend on nothing but the item."""
    lines = [f"items: {{source: 'stages:numbers', settings: {{count: {count}}}}}", "stages:"]
    lines += [f"  s{number}: {{run: 'stages:trivial', settings: {{number: {number}}}}}" for number in range(stages)]
    lines += [f"output: {{directory: '{folder}/out'}}"]
    path = folder / "bench.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def rerun_s(rounds: int) -> list[float]:
    """Seconds of a process that runs 1,000 items of which nothing has changed."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        path = write_pipeline(Path(name), 1000, 3)
        command = [sys.executable, "-m", "weft", "pipeline", "run", str(path), "-q"]
        variables = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # Weft is compiled when it is installed
        for number in range(rounds + 1):
            began_s = time.perf_counter()
            subprocess.run(command, cwd=name, env=variables, check=True)
            if number:
                found.append(time.perf_counter() - began_s)
    return found


def collect(rounds: int, count: int) -> dict[str, Any]:
    """All measurements, in turns."""
    sys.path.insert(0, str(Path(__file__).parent))
    pool: list[dict[str, float]] = []
    layers: dict[int, list[dict[str, float]]] = {stages: [] for stages in STAGES}
    for _ in range(rounds):
        pool.append(pool_us(count))
        for stages, found in layers.items():
            took = stages_us(count, stages)
            found.append({kind: (took[kind] - pool[-1][kind]) / stages for kind in took})
    return {
        "pool_us": _kinds(pool),
        "per_stage_us": {stages: _kinds(found) for stages, found in layers.items()},
        "rerun_s": _both(rerun_s(rounds)),
    }


def _kinds(found: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {kind: _both([one[kind] for one in found]) for kind in found[0]}


def _both(found: list[float]) -> dict[str, float]:
    return {"median": statistics.median(found), "least": min(found)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a quarter of the items")
    parser.add_argument("--json", type=Path, default=ROOT / ".bench" / "stages.json")
    options = parser.parse_args()
    found = collect(options.rounds, 5_000 if options.quick else 20_000)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=2))
    lines = {"the pool alone, with journal": found["pool_us"]}
    lines |= {f"{stages} stages: more an item and stage": us for stages, us in found["per_stage_us"].items()}
    for what, us in lines.items():
        print(f"{what}: " + ", ".join(f"{kind} {_shown(figure)}" for kind, figure in us.items()) + " µs")
    print(f"goal: busier at most {GOAL_US:g} µs more")
    print(f"1,000 items unchanged, the whole process: {_shown(found['rerun_s'])} s (goal {GOAL_RERUN_S:g})")
    missed = found["rerun_s"]["median"] > GOAL_RERUN_S
    missed |= max(us["busier"]["median"] for us in found["per_stage_us"].values()) > GOAL_US
    print("goals: " + ("missed" if missed else "all met"))
    sys.exit(missed)


def _shown(figure: dict[str, float]) -> str:
    return f"{figure['median']:.2f} ({figure['least']:.2f})"


if __name__ == "__main__":
    main()
