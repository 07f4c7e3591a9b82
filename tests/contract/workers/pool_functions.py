"""Functions that pools under test run, by name, in their workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import BadInput
from weft.pipelines import Context, Status
from weft.pipelines.pool.context import ItemEnd


def with_outcome(item: Mapping[str, Any], context: Context) -> Any:
    if item["id"] == "skipped":
        return ItemEnd(Status.SKIPPED, ["a"], "parse", "unchanged")
    if item["id"] == "failed":
        return ItemEnd(Status.FAILED, ["b"], "clone", "no such branch", "Traceback …")
    return context.config["value"]


def guarded(item: Mapping[str, Any], context: Context) -> Any:
    return started[0]


started: list[str] = []


def _start(config: Mapping[str, Any]) -> None:
    if "word" not in config:
        raise BadInput("no word was given")
    started.append(config["word"])


guarded.worker_start = _start  # type: ignore[attr-defined]
