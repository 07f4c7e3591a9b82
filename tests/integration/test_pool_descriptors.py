"""An item that closes descriptors of its worker: the next one does not pay for it, and no stranger is written to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving

from weft.pipelines import Result, WorkerPool

CLOSERS: dict[str, dict[str, Any]] = {
    "everything": {"do": "closes_everything"},
    "and opens others": {"do": "closes_and_opens"},
    "its link": {"do": "closes_one", "kind": "socket:"},
    "its output": {"do": "closes_one", "kind": "output"},
    "its log": {"do": "closes_one", "kind": ".log"},
    "stdout": {"do": "closes_output"},
}


def run(run_dir: Path | None, closer: dict[str, Any]) -> list[Result]:
    """One batch on one worker: the closer between innocent items, twice."""
    work: list[dict[str, Any]] = [{"id": f"innocent-{n}", "do": "uses_files"} for n in range(8)]
    for place in (2, 5):
        work.insert(place, {"id": f"closer-{place}", **closer})
    results = WorkerPool(misbehaving.act, workers=1, batch_size=50, run_dir=run_dir).run(work)
    assert [result.item_id for result in results] == [item["id"] for item in work]
    return results


@pytest.mark.parametrize("logs", [True, False], ids=["logs", "no logs"])
@pytest.mark.parametrize("name", CLOSERS)
def test_the_items_after_one_that_closes_descriptors_are_not_touched(tmp_path: Path, name: str, logs: bool) -> None:
    results = run(tmp_path / "run" if logs else None, CLOSERS[name])
    assert [(result.status, result.error, result.attempts) for result in results] == [("ok", None, 1)] * len(results)
    if logs:
        for result in results:
            assert result.log is not None
            assert "[end] ok" in Path(result.log).read_text().splitlines()[-1], result.item_id
            replaced = "closed descriptors of its worker" in Path(result.log).read_text()
            # a log is opened again; whatever else is gone, the worker goes as well
            assert replaced == (str(result.item_id).startswith("closer") and name != "its log")


def test_what_is_put_in_the_place_of_the_link_gets_nothing_of_the_workers(tmp_path: Path) -> None:
    work = [{"id": "thief", "do": "replaces_link", "heard": str(tmp_path / "heard"), "sleep": 0.02}, {"id": "next"}]
    results = WorkerPool(misbehaving.act, workers=1).run(work)
    assert [(result.status, result.attempts) for result in results] == [("ok", 1), ("ok", 1)]
    assert results[0].worker_pid != results[1].worker_pid
    assert (tmp_path / "heard").read_bytes() == b"ready"
