"""Takes results as the pool gives them, in any order, and writes them in the order of the source.

Rows go to shards, each of which is committed with a checkpoint when its range of the source is complete. With a
collector the items make no rows here: it reads the results when all have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import BadInput
from weft.pipelines.cache.cache import Cache
from weft.pipelines.feed import PendingItem
from weft.pipelines.files import WrittenFile
from weft.pipelines.output.outcome import GOOD, item_record, line_of
from weft.pipelines.output.results import Checkpoint, EndedItem, ResultsFile, value_of
from weft.pipelines.output.sink import BadRow, OutputShard, OutputSink
from weft.pipelines.output.stats import ItemFailure, RunStats, StageStats
from weft.pipelines.pool.record import Result, Status
from weft.pipelines.runner import UNCHANGED

_ERROR_CHARS = 500
_COUNTED_AT_ONCE = 500
_TEXT_OF_STATUS = {status: status.value for status in Status}
"""A look-up is faster than an enum's own property, and every item has one."""
_GOOD_STATUSES = (Status.OK.value, Status.SKIPPED.value)


class OrderedWriter:
    """Receives results in any order, and writes them in the order of the source."""

    def __init__(
        self,
        folder: Path,
        stages: list[str],
        output_stages: list[str],
        cache: Cache,
        sink: OutputSink,
        shard_items: int,
        *,
        makes_rows: bool,
        step: Callable[[str], None],
    ) -> None:
        self._log_root = f"{folder}/"
        self._stages = stages
        self._output_stages = [(stages.index(name), name) for name in output_stages]
        self._row_stages = output_stages
        self._cache = cache
        self._sink = sink
        self._shard_items = shard_items
        self._makes_rows = makes_rows
        self._step = step
        self._results = ResultsFile(folder)
        self._early_results: dict[int, EndedItem] = {}
        self._range_files: list[WrittenFile] = []
        self._stats = RunStats({name: StageStats() for name in stages})
        self._uncounted: list[EndedItem] = []
        self.shards: list[OutputShard] = []
        self.files: list[WrittenFile] = []
        self.next = 0
        """The position that is written next: everything before it is."""
        self.complete = False
        """All of the source is written."""

    def open(self) -> None:
        """Opens the files; continues after the last checkpoint, if there is one."""
        last = None
        for last in self._results.checkpoints():
            self.shards += last.shards
            self.files += last.files
        if last is not None:
            self.next, self._stats, self.complete = last.items, last.stats, last.complete
        self._results.open(last.results_bytes if last is not None else 0)

    def add(self, pending: PendingItem, result: Result) -> None:
        """Adds the result of an item."""
        record = item_record(result.value)
        self._step("result-read")
        log, position = result.log, pending.position
        if log is not None:
            log = log.removeprefix(self._log_root)
        ended = EndedItem(
            position, pending.item_id, pending.kept, _TEXT_OF_STATUS[result.status], result.failure_phase, result.error,
            result.attempts, result.duration_ms, log,
        )  # fmt: skip
        if record is not None:
            ended.stages, ended.line = record.stages, record.line or line_of(self._stages, record)
        if position != self.next:
            self._early_results[position] = ended
            return
        self._write(ended)
        while self._early_results and (following := self._early_results.pop(self.next, None)) is not None:
            self._write(following)

    def _write(self, ended: EndedItem) -> None:
        """Writes the next item in the order of the source."""
        if self._makes_rows and (row := self._row_of_item(ended)) is not None:
            try:
                self._sink.add(ended.position // self._shard_items, row)
            except BadRow as error:
                ended.status, ended.failure_phase, ended.error = Status.FAILED.value, "output", str(error)
        self._results.add(ended)
        self._uncounted.append(ended)
        if len(self._uncounted) >= _COUNTED_AT_ONCE:
            self._count_waiting()
        self.next += 1
        if self.next % self._shard_items == 0:
            self._commit_range(complete=False)

    @property
    def stats(self) -> RunStats:
        """The statistics, including every item that is written."""
        self._count_waiting()
        return self._stats

    def _count_waiting(self) -> None:
        """Counts the waiting items together, which costs less than one by one."""
        ended, self._uncounted = self._uncounted, []
        stats = self._stats
        stats.add([(one.status, one.error == UNCHANGED, one.duration_ms, one.id) for one in ended])
        whole = [one.stages for one in ended if one.stages]
        for counts, column in zip(stats.stages.values(), zip(*whole, strict=True), strict=False):  # in the plan's order
            counts.add(column)
            self._range_files += [file for stage in column if stage.files for file in stage.files]
        for one in ended:
            if one.status not in _GOOD_STATUSES:
                if not one.stages and one.failure_phase in stats.stages:
                    stats.stages[one.failure_phase].failed += 1
                error = one.error[:_ERROR_CHARS] if one.error else None
                stats.add_failure(ItemFailure(one.id, one.status, one.failure_phase, error, one.log))

    def _row_of_item(self, ended: EndedItem) -> Mapping[str, Any] | None:
        """The item's row; None if it did not end well, or if the stages that make rows were skipped."""
        if ended.status not in _GOOD_STATUSES:
            return None
        values: dict[str, Any] = {}
        for number, name in self._output_stages:
            stage = ended.stages[number]
            if stage.code in GOOD and stage.key is not None:
                assert stage.at is not None, "its value was kept before"
                values[name] = value_of(self._cache.read(stage.key, stage.at), name)
        return row_of({"id": ended.id, **ended.kept}, values, self._row_stages)

    def finish(self, total: int) -> None:
        """Commits the last range, however short, after the source has ended."""
        assert self.next == total, f"{total - self.next} results are missing"
        self._commit_range(complete=True)
        self.complete = True

    def _commit_range(self, *, complete: bool) -> None:
        self._cache.sync()  # a checkpoint promises that values can be found
        stats = self.stats
        shards: list[OutputShard] = []
        if self._makes_rows and (self.next % self._shard_items or not complete):
            shards = self._sink.commit((self.next - 1) // self._shard_items)
        files, self._range_files = self._range_files, []

        def checkpoint(results_bytes: int) -> Checkpoint:
            return Checkpoint(self.next, results_bytes, shards, files, stats, complete)

        self._results.commit(checkpoint)
        self.shards += shards
        self.files += files
        self._step("checkpointed")

    def close(self) -> None:
        """Closes its files."""
        self._results.close()


def row_of(item: Mapping[str, Any], values: Mapping[str, Any], stages: list[str]) -> Mapping[str, Any] | None:
    """The row of an item: the value of the one stage that makes it, or the values of several by name."""
    if not values:
        return None
    if len(stages) > 1:
        return {**item, **{name: values.get(name) for name in stages}}
    value = values[stages[0]]
    return {**item, **value} if isinstance(value, dict) else {**item, "value": value}


def plain_row(row: Any, where: str) -> Mapping[str, Any]:
    """Checks a row of a collector; raises BadInput for what is not a mapping."""
    if not isinstance(row, Mapping):
        raise BadInput(f"{where} must give mappings, this is {type(row).__name__}")
    return row
