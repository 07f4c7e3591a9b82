"""Which worker runs what, and when: the slowest files first, so that none is left for the end.

The tests of a file stay together, because they share servers and crawls; those of the files in SPREAD share nothing and
go wherever there is room. How long files take is in durations.json, which `--record-durations` writes; what is not in
there is taken for as slow as its folder usually is.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

DURATIONS = Path(__file__).with_name("durations.json")
SPREAD = {"tests/integration/test_docs.py"}
# Here the cases of one test function share something, and the functions nothing.
SPREAD_BY_FUNCTION = {
    "tests/integration/test_pods_redis.py",
    "tests/integration/test_nodes.py",
    "tests/integration/test_pods_embedded.py",
    "tests/integration/test_crawl_signals.py",
    "tests/integration/test_rebuild.py",
}
BY_FOLDER_S = {"chaos": 60.0, "integration": 20.0, "contract": 5.0}
WORTH_TELLING_S = 1.0


class SlowFirst(LoadFileScheduling):  # type: ignore[misc]
    """Hands the files out in the order of the collection, which `sort` has made."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in SPREAD:
            return nodeid
        return nodeid.partition("[")[0] if path in SPREAD_BY_FUNCTION else path

    def _reschedule(self, node: Any) -> None:
        """A worker must know its next test before it runs one; it gets no further file while it has that."""
        if self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)


def sort(items: list[pytest.Item]) -> None:
    """Slow files first; within a file nothing changes."""
    items.sort(key=lambda item: -_seconds(item.nodeid.partition("::")[0]))


def record(seconds_by_file: dict[str, float]) -> None:
    """Writes down what a run has measured."""
    slow = {path: round(seconds) for path, seconds in sorted(seconds_by_file.items()) if seconds >= WORTH_TELLING_S}
    DURATIONS.write_text(json.dumps(slow, indent=0) + "\n")
    _durations.cache_clear()


@cache
def _durations() -> dict[str, float]:
    return dict(json.loads(DURATIONS.read_text())) if DURATIONS.exists() else {}


def _seconds(path: str) -> float:
    known = _durations()
    return (
        known[path]
        if path in known
        else next((BY_FOLDER_S[part] for part in Path(path).parts if part in BY_FOLDER_S), 0.5)
    )
