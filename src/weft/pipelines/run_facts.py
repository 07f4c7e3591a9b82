"""A pipeline's run on the disk: where it is, what it was asked to do, how it ended (`pipeline.json` in its directory).

logs/2026-02-04T10-30-45/
  pipeline.json               what is here
  journal, config, items/ …   the pool's (pool/runs.py); config holds the plan
  results.jsonl, checkpoints  results.py
  report.json, report.html    report.py
  output/                     the rows of a run over chosen items (--only)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import BadInput
from weft.files import replace_file
from weft.pipelines.pool.durability.runs import ITEMS, RunDirectory


class RunFacts(msgspec.Struct):
    """The content of pipeline.json."""

    run_id: str
    pipeline: str
    file: str
    started_at: str
    output: str
    settings: list[str] = []
    """As `--set` had them."""
    items: str | None = None
    """Another items file than the pipeline's."""
    directory: str | None = None
    """Another output directory than the pipeline's."""
    only: list[str] = []
    fresh: bool = False
    from_stage: str | None = None
    item_name: str = ITEMS
    engine: str | None = None
    """Another one than the pipeline's."""
    finished: bool = False
    seconds: float = 0.0
    by_status: dict[str, int] = {}
    unchanged: int = 0

    @property
    def done(self) -> int:
        """The number of finished items."""
        return sum(self.by_status.values())


def facts_path(folder: Path) -> Path:
    """The path of a run's facts."""
    return folder / "pipeline.json"


def save(folder: Path, facts: RunFacts) -> None:
    """Writes the facts atomically; only the owner can read them, since settings may be secrets."""
    replace_file(facts_path(folder), msgspec.json.format(msgspec.json.encode(facts)) + b"\n")


def load(folder: Path) -> RunFacts:
    """Reads the facts of a run; raises BadInput if that fails."""
    try:
        return msgspec.json.decode(facts_path(folder).read_bytes(), type=RunFacts)
    except (OSError, ValueError) as error:
        raise BadInput(f"{facts_path(folder)} cannot be read: {error}") from None


def runs(root: Path) -> Iterator[tuple[RunDirectory, RunFacts]]:
    """The runs of pipelines under a folder, newest first, without damaged ones."""
    for path in sorted(root.glob("*/pipeline.json"), reverse=True):
        try:
            facts = load(path.parent)
        except BadInput:
            continue
        yield RunDirectory(path.parent, facts.item_name), facts


def find(root: Path, name: str) -> tuple[RunDirectory, RunFacts]:
    """Finds a run by its id, by its path, or as `latest`."""
    if name == "latest":
        for run in runs(root):
            return run
        raise BadInput(f"there are no runs of pipelines in {root}")
    for folder in (root / name, Path(name)):
        if facts_path(folder).is_file():
            facts = load(folder)
            return RunDirectory(folder, facts.item_name), facts
    known = ", ".join(facts.run_id for _, facts in list(runs(root))[:5])
    raise BadInput(f"no run {name!r} of a pipeline in {root}" + (f"; the last ones: {known}" if known else ""))


def state_of(directory: RunDirectory, facts: RunFacts) -> str:
    """The state of a run: finished, running or interrupted."""
    return "finished" if facts.finished else "running" if directory.is_running() else "interrupted"


def now_text() -> str:
    """The current time as the facts of a run have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def shown(facts: RunFacts) -> dict[str, Any]:
    """The facts without the settings of the command line, which may be secrets."""
    document: dict[str, Any] = msgspec.to_builtins(facts)
    del document["settings"]
    return document


def plain(directory: RunDirectory, facts: RunFacts) -> dict[str, Any]:
    """The facts of a run for a list of runs."""
    return shown(facts) | {"state": state_of(directory, facts), "path": str(directory.path)}
