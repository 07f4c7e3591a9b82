"""What the author of a pipeline writes: stages, a source, a collector; and what each of them is handed.

Everything here is imported from `weft.pipelines`. All callables stand at the top level of a module (or `script.py`)
and are named in the pipeline's file as `package.module:function`; workers import them by that name, nothing is
pickled.

A **source** gives the items, each a mapping with an `id` (text or whole number, unique):

    def items(settings: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        for line in Path(settings["list"]).read_text().split():
            yield {"id": line, "url": f"https://example.org/{line}"}

It runs in the parent, which does nothing else while the source computes: give references (a path and an offset), and
let a stage do the reading. It must give the same items in the same order while a run is resumed. `settings` are
`items.settings` of the file. It may raise `BadInput`: then nothing is begun. Instead of a callable the file may name
a list of items (.jsonl, .json, .csv).

A **stage** gets one item and returns a plain value (what msgpack can carry: None, bool, int, float, str, bytes, list,
dict):

    def words(item: Mapping[str, Any], context: StageContext) -> dict[str, int]:
        context.log.info("Counting", bytes=len(context.results["fetch"]["text"]))
        return {"words": len(context.results["fetch"]["text"].split())}

All stages of an item run one after the other in one worker. A stage that raises has failed: what needs it is not run,
other branches are. `context.skip("reason")` ends the stage as skipped, and what needs it is skipped too. The value is
cached under what the stage could read: the item's fields (only those that the file names under `inputs`, where it
names any: others, the id too, are then not in `item`), the values of the stages it `needs`, its settings, the shared
`config` (only the names under `config`, where it names any), and its code version. So a stage must depend on nothing
else; where the outside world matters (a git remote, a file's content), the file names a **fingerprint**, which is
asked before the cache is checked:

    def newest_commit(item: Mapping[str, Any], settings: Mapping[str, Any]) -> str: ...

A **condition** (`when:`) is an expression over `item`, `results`, `settings` and `config`, or a callable `def
condition(item, context: StageContext) -> bool`. A stage whose condition is false is skipped.

A **collector** (`collect:`) runs once, in the parent, when all items have ended, and gives the rows of the output;
without one, each item that ended well is a row. It must be deterministic: it is run again when a run is killed in the
middle of it.

    def collect(results: Iterator[ItemResult], context: CollectContext) -> Iterator[Mapping[str, Any]]:
        for result in results:                          # in the order of the source, read as they are asked for
            if result.status != "failed":
                yield {"id": result.id, "words": result.values["words"]["words"]}
        context.files.write("card.md", "# What this is\n")

A **check** (`check:`) may look at all settings before anything is begun: `def check(settings: Mapping[str,
Mapping[str, Any]]) -> None`, with the settings by stage, and those of the source and the collector under `items` and
`collect`; it raises `BadInput`.

The file, `pipelines/words.yaml` (those that ship: `weft/pipelines/builtin/NAME.yaml`):

    description: Counts words.
    items: {source: "mypackage.work:items", settings: {list: names.txt}, keep: [url]}   # or {file: items.jsonl}
    item_name: items              # the folder of the items' logs; item_logs: auto, each, worker or off
    config: {registry: "https://registry.example.org"}       # context.config of every stage
    pool: {item_timeout: 60}      # any setting of the pool
    stages:
      fetch: {run: "mypackage.work:fetch", inputs: [url], fingerprint: "mypackage.work:etag", config: []}
      words: {run: "mypackage.work:words", needs: [fetch], settings: {minimum: 3}, when: "results.fetch.status == 200"}
      links: {run: "mypackage.work:links", needs: [fetch], after: [words], code: [rules/]}
    collect: {run: "mypackage.work:collect", settings: {}}
    check: "mypackage.work:check"
    output: {directory: out/words, format: jsonl, shard_items: 10000}        # jsonl, parquet, or [jsonl, parquet]

`needs`: must have ended well. `after`: is waited for, and its value is in `context.results` if it ended well. `keep`:
fields of the item that are in `ItemResult.item` (the id always is). `cache: false`: run each time. `version`:
replaces the hash of the callable's module file, of the author's modules that it imports (`imports.py`) and of the files
under `code`. Settings may be given on the command
line: `--set words.minimum=4`, `--set items.list=other.txt`, `--set collect.KEY=…`, `--set config.KEY=…`. Paths in
settings are the author's affair: relative ones are to the current directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from weft.pipelines.pool.context import Context, Skip
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.pipelines.files import RunFiles
    from weft.pipelines.pool.worker.item_log import ItemLog


@dataclass(slots=True, eq=False, repr=False)
class StageContext:
    """What a stage gets besides its item: the values of other stages, its settings, a log."""

    _item: Context
    stage: str
    """Its name in the pipeline's file."""
    results: Mapping[str, Any]
    """The values of the stages it needs, and of those it comes after that ended well, by name."""
    settings: Mapping[str, Any]
    """Its settings in the pipeline's file."""
    config: Mapping[str, Any]
    """What all stages share."""
    files: RunFiles
    """Writes files below the pipeline's output directory. A cached value is used only while its files are there."""

    @property
    def log(self) -> ItemLog:
        """The item's log: `context.log.info("Cloning", url=url)`; `warning`, `error`, `debug` as well."""
        return self._item.log

    @property
    def deadline(self) -> float | None:
        """The time at which the item is stopped, by `time.monotonic()`; None without a limit."""
        return self._item.deadline

    def remaining_s(self) -> float | None:
        """Seconds until the deadline."""
        return self._item.remaining_s()

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1, unless a worker has died with this item before."""
        return self._item.attempt

    def skip(self, reason: str = "") -> NoReturn:
        """Ends this stage as skipped; what needs it is skipped, too. The decision is cached as a value would be."""
        raise Skip(reason)


class StageOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one stage of one item."""

    status: str
    """ok, skipped or failed."""
    duration_ms: float = 0.0
    cached: bool = False
    """Nothing was done: the value, or the decision to skip, is that of an earlier run."""
    reason: str | None = None
    """Why it was skipped."""
    error: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class ItemResult:
    """One item as a collector sees it."""

    item: Mapping[str, Any]
    """The id, and the fields that the file names under `items.keep`."""
    position: int
    """Its position in the source, from 0."""
    status: str
    """ok, skipped (nothing had to be done: unchanged, or skipped by its stages), failed, timeout or crashed."""
    failure_phase: str | None
    """The stage that failed first; `input` for an item that was no good."""
    error: str | None
    stages: Mapping[str, StageOutcome]
    """How each stage ended; empty for an item that never came to its stages' end."""
    _value: Callable[[str], Any]

    @property
    def id(self) -> str | int:
        """The item's id."""
        item_id: str | int = self.item["id"]
        return item_id

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of the stages that ended well, by name, read when asked for."""
        return _StageValues(self.stages, self._value)


class _StageValues(Mapping[str, Any]):
    def __init__(self, stages: Mapping[str, StageOutcome], value: Callable[[str], Any]) -> None:
        self._names = [name for name, outcome in stages.items() if outcome.status == "ok"]
        self._value = value

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._value(name)

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(slots=True, eq=False, repr=False)
class CollectContext:
    """What a collector gets besides the results: its settings, files to write, a log."""

    settings: Mapping[str, Any]
    """Its settings in the pipeline's file."""
    config: Mapping[str, Any]
    files: RunFiles
    """Writes files beside the output's shards."""
    total: int
    """How many results there are."""
    log: Log = field(default_factory=lambda: Log("weft.pipelines"))
    """The program's log: what a user should see, sparingly."""
