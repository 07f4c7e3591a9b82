"""One item of a run again, by itself: one that failed, or that was given up because workers died of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.errors import BadInput
from weft.pipelines.output.outcome import item_record, stage_line
from weft.pipelines.pool.api import WorkerPool
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.record import Result
from weft.pipelines.run import RUNNER, prepare
from weft.pipelines.sources import open_source
from weft.pipelines.spec.definition import Pipeline
from weft.pipelines.spec.plan import make_plan
from weft.pipelines.stage import StageOutcome

_KEPT_SETTINGS = ("item_timeout", "memory_limit_mb")


def replay_item(pipeline: Pipeline, directory: RunDirectory, item_id: str) -> tuple[Result, dict[str, StageOutcome]]:
    """Runs one item again; returns its result, and how each stage ended. The cache is neither read nor written; files
    go to a folder that is deleted.
    """
    prepare(pipeline)
    item = _find_item(pipeline, directory, item_id)
    with tempfile.TemporaryDirectory(prefix="weft-replay-") as folder:
        plan = make_plan(
            pipeline, run_id=directory.run_id, cache=Path(folder) / "cache", files=Path(folder) / "files", fresh=True
        )
        settings = {name: value for name, value in pipeline.spec.pool.items() if name in _KEPT_SETTINGS}
        (result,) = WorkerPool(RUNNER, workers=1, crash_tries=1, config=plan.plain(), **settings).run([item])
    record = item_record(result.value)
    stages = record.stages if record is not None else []
    return result, {name: stage_line(stage) for name, stage in zip(pipeline.order, stages, strict=False)}


def _find_item(pipeline: Pipeline, directory: RunDirectory, item_id: str) -> dict[str, Any]:
    """The item as the pool would get it: from quarantine, or from the source."""
    if (kept := directory.quarantined(item_id)) is not None:
        return kept.decoded()
    for position, item in enumerate(open_source(pipeline.spec.items).items):
        if isinstance(item, Mapping) and str(item.get("id")) == item_id:
            return {"id": item["id"], "n": position, "item": dict(item)}
    raise BadInput(f"run {directory.run_id} has no item {item_id!r}, neither in quarantine nor in its source")
