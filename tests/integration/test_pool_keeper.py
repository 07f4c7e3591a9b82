"""The process between the parent and the workers: killed by items, killed or stopped from outside, left by its parent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving

from weft.pipelines import PoolBroken, WorkerPool


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
        "the workers' keeper died while this item ran"
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
