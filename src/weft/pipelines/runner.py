"""Runs all stages of one item, in a worker: the function that a pipeline's pool has.

`run_item` gets `{"id", "n": place in the source, "item"}` and returns an ItemRecord whatever happened. Invariants: each
stage has its own error boundary; a stage sees only what is in its cache key; its dependents see its value as the cache
would give it, decoded anew for each, so that a run with a cache and one without cannot differ.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from weft.errors import BadInput
from weft.pipelines.cache import CacheReader
from weft.pipelines.conditions import ROOTS, Condition, compile_condition, uses_results
from weft.pipelines.files import RunFiles, WrittenFile
from weft.pipelines.outcome import (
    CACHED,
    FAILED,
    FAILED_BY_NEED,
    GOOD,
    RAN,
    SKIPPED,
    SKIPPED_BY_CONDITION,
    SKIPPED_BY_NEED,
    SKIPPED_CACHED,
    Entry,
    StageRecord,
)
from weft.pipelines.plan import Plan, StagePlan, digest
from weft.pipelines.pool.context import Context, Ended, Skip
from weft.pipelines.pool.failure import describe, message, traceback_of
from weft.pipelines.pool.record import Status
from weft.pipelines.pool.target import Target
from weft.pipelines.stage import StageContext

UNCHANGED = "unchanged"
_encode = msgspec.msgpack.Encoder().encode
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder().decode
_decode_entry = msgspec.msgpack.Decoder(Entry).decode
_ABSENT = b"\xc1"
"""Stands for a field or value that is not there: no msgpack begins with it."""
_FAILURES = (FAILED, FAILED_BY_NEED)
_SKIPS = (SKIPPED, SKIPPED_CACHED, SKIPPED_BY_CONDITION, SKIPPED_BY_NEED)


class Fields(dict[str, Any]):
    """The fields of an item that a stage has named as its inputs."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(f"{key!r} is not among the stage's inputs, or the item does not have it")


class PreparedStage:
    """A stage with its callables imported, and all that is the same for every item."""

    def __init__(self, plan: StagePlan, config: dict[str, Any]) -> None:
        self.plan = plan
        self.name = plan.name
        self.before = [*plan.needs, *plan.after]
        self.run = _load(plan.run, plan.name)
        self.fingerprint = _load(plan.fingerprint, plan.name) if plan.fingerprint else None
        self.settings = MappingProxyType(plan.settings)
        self.config = MappingProxyType(
            {key: value for key, value in config.items() if plan.config is None or key in plan.config}
        )
        self.inputs = None if plan.inputs is None else tuple(sorted(set(plan.inputs)))
        self.condition: Condition | None = None
        self.condition_call: Callable[..., Any] | None = None
        self.needs_results = plan.when is not None and (":" in plan.when or uses_results(plan.when))
        if plan.when is not None:
            self._prepare_condition(plan.when)

    def _prepare_condition(self, when: str) -> None:
        try:
            self.condition = compile_condition(when, self.before)
        except BadInput:
            self.condition_call = _load(when, self.name)


def _load(name: str, stage: str) -> Callable[..., Any]:
    try:
        return Target.of(name).load()
    except BaseException as error:
        why = message(error) if isinstance(error, BadInput) else f"{name} cannot be imported: {describe(error)}"
        raise BadInput(f"stage {stage!r}: {why}") from None


class _Item:
    """One item on its way through the stages."""

    __slots__ = ("context", "digests", "done", "fields", "parts", "views")

    def __init__(self, fields: dict[str, Any], context: Context) -> None:
        self.fields = fields
        self.context = context
        self.parts = {name: _encode_sorted(value) for name, value in fields.items()}
        self.done: dict[str, StageRecord] = {}
        self.digests: dict[tuple[str, ...] | None, bytes] = {}
        self.views: dict[tuple[str, ...] | None, Mapping[str, Any]] = {None: MappingProxyType(fields)}

    def inputs_digest(self, names: tuple[str, ...] | None) -> bytes:
        """The hash of the fields that a stage reads."""
        found = self.digests.get(names)
        if found is None:
            parts = self.parts
            read = sorted(parts) if names is None else names
            found = digest(b"".join([_encode(name) + parts.get(name, _ABSENT) for name in read]))
            self.digests[names] = found
        return found

    def view(self, names: tuple[str, ...] | None) -> Mapping[str, Any]:
        """The item as a stage sees it."""
        found = self.views.get(names)
        if found is None:
            found = Fields({name: self.fields[name] for name in names or () if name in self.fields})
            self.views[names] = found
        return found


class ItemRunner:
    """Takes items through the stages of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stages = [PreparedStage(stage, plan.config) for stage in plan.stages]
        self._cache = CacheReader(Path(plan.cache))
        self._folder = Path(plan.files)
        self._files = RunFiles(self._folder)
        self._pid = os.getpid()

    def run(self, wrapped: dict[str, Any], context: Context) -> Any:
        """Every stage of one item."""
        item = _Item(wrapped["item"], context)
        for stage in self._stages:
            item.done[stage.name] = self._stage(stage, item)
        marks = {name: zlib.crc32(part) for name, part in item.parts.items()}
        kept = {name: item.fields[name] for name in self._plan.keep if name in item.fields}
        return _ended(wrapped["n"], kept, marks, item.done)

    def _stage(self, stage: PreparedStage, item: _Item) -> StageRecord:
        """One stage: held back by what it needs, or by its condition; found in the cache; or run."""
        done = item.done
        for need in stage.plan.needs:
            code = done[need].code
            if code in _FAILURES:
                return StageRecord(FAILED_BY_NEED, text=f"needs {need}, which failed")
            if code in _SKIPS:
                return StageRecord(SKIPPED_BY_NEED, text=f"needs {need}, which was skipped")
        began_ns = time.monotonic_ns()
        try:
            record = self._unwanted(stage, item) or self._found_or_run(stage, item)
        except Skip as skip:
            record = StageRecord(SKIPPED_BY_CONDITION, text=message(skip))
        except BaseException as error:
            record = StageRecord(FAILED, text=describe(error), traceback=traceback_of(error))
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the stage has forked and let return
        record.duration_us = (time.monotonic_ns() - began_ns) // 1000
        if item.context.log.open:
            _log(item.context, stage.name, record)
        return record

    def _unwanted(self, stage: PreparedStage, item: _Item) -> StageRecord | None:
        """The outcome of a stage whose condition is false."""
        if stage.plan.when is None:
            return None
        results = self._results(stage, item) if stage.needs_results else {}
        if stage.condition is not None:
            names = (item.fields, results, stage.settings, stage.config)
            wanted = stage.condition(dict(zip(ROOTS, names, strict=True)))
        else:
            assert stage.condition_call is not None
            wanted = stage.condition_call(MappingProxyType(item.fields), self._context(stage, item, results))
        return None if wanted else StageRecord(SKIPPED_BY_CONDITION, text=f"not {stage.plan.when}")

    def _found_or_run(self, stage: PreparedStage, item: _Item) -> StageRecord:
        asked = None
        if stage.fingerprint is not None:
            item.context.stage(stage.name)
            asked = digest(_encode_sorted(stage.fingerprint(item.view(stage.inputs), stage.settings)))
        key = self._key(stage, item, asked)
        mark = None if asked is None else asked[:8]
        if stage.plan.cache and not stage.plan.forced and (found := self._cache.find(key)) is not None:
            entry = _decode_entry(found)
            if all(map(self._files.holds, entry.files)):
                code = SKIPPED_CACHED if entry.skipped else CACHED
                text = entry.body.decode() if entry.skipped else None
                return StageRecord(
                    code, key=key, value=entry.digest, body=entry.body, asked=mark, text=text, files=entry.files
                )
        return self._run(stage, item, key, mark)

    def _key(self, stage: PreparedStage, item: _Item, asked: bytes | None) -> bytes:
        if not stage.plan.cache:  # nobody may find it again, but the output reads it
            return digest(b"\0".join([self._plan.run_id.encode(), _encode(item.fields["id"]), stage.name.encode()]))
        parts = [stage.plan.key, item.inputs_digest(stage.inputs)]
        for name in stage.before:
            before = item.done[name]
            parts.append(before.value if before.code in GOOD and before.value is not None else _ABSENT)
        if asked is not None:
            parts.append(asked)
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest()

    def _run(self, stage: PreparedStage, item: _Item, key: bytes, mark: bytes | None) -> StageRecord:
        context = self._context(stage, item, self._results(stage, item))
        item.context.stage(stage.name)
        try:
            value = stage.run(item.view(stage.inputs), context)
        except Skip as skip:
            reason = message(skip)
            return _made(SKIPPED, key, mark, reason.encode(), list(context.files.written.values()), reason)
        try:
            body = _encode(value)
        except Exception as error:
            raise TypeError(f"the value cannot be encoded: {describe(error)}") from None
        return _made(RAN, key, mark, body, list(context.files.written.values()), None)

    def _results(self, stage: PreparedStage, item: _Item) -> dict[str, Any]:
        found = {}
        for name in stage.before:
            record = item.done[name]
            if record.code in GOOD and record.body is not None:
                found[name] = _decode(record.body)
        return found

    def _context(self, stage: PreparedStage, item: _Item, results: Mapping[str, Any]) -> StageContext:
        return StageContext(item.context, stage.name, results, stage.settings, stage.config, RunFiles(self._folder))


def _made(
    code: int, key: bytes, mark: bytes | None, body: bytes, files: list[WrittenFile], text: str | None
) -> StageRecord:
    value = hashlib.blake2b(body, digest_size=16).digest()
    entry = _encode(Entry(code == SKIPPED, value, body, files))
    return StageRecord(code, key=key, value=value, body=body, asked=mark, text=text, entry=entry, files=files)


def _ended(place: int, kept: dict[str, Any], marks: dict[str, int], done: dict[str, StageRecord]) -> Ended:
    """What the pool is told: failed with the first stage that failed, skipped where no stage had to run."""
    records = list(done.items())
    value = (place, kept, marks, [record.plain() for _, record in records])
    for name, record in records:
        if record.code == FAILED:
            return Ended(Status.FAILED, value, name, record.text, record.traceback)
    if any(record.code in (RAN, SKIPPED) for _, record in records):
        if any(record.code in GOOD for _, record in records):
            return Ended(Status.OK, value)
        return Ended(Status.SKIPPED, value, None, next(record.text for _, record in records if record.code == SKIPPED))
    if any(record.code in (CACHED, SKIPPED_CACHED) for _, record in records):
        return Ended(Status.SKIPPED, value, None, UNCHANGED)
    return Ended(Status.SKIPPED, value, None, records[0][1].text)


_WORDS = {CACHED: UNCHANGED, SKIPPED_CACHED: "skipped, unchanged"}


def _log(context: Context, name: str, record: StageRecord) -> None:
    """One line for each stage."""
    if record.code == FAILED:
        context.log.add("ERROR", record.text or "", phase=name)
        return
    word = _WORDS.get(record.code) or (
        "ok" if record.code == RAN else "failed" if record.code in _FAILURES else "skipped"
    )
    data: dict[str, Any] = {"durationMs": round(record.duration_us / 1000, 1)}
    if record.text:
        data["reason"] = record.text
    context.log.add("INFO", word, data, name)


_runner: ItemRunner | None = None


def _start(config: Mapping[str, Any]) -> None:
    global _runner
    _runner = ItemRunner(Plan.of(config))


def run_item(item: dict[str, Any], context: Context) -> Any:
    """The pool's function."""
    assert _runner is not None
    return _runner.run(item, context)


run_item.worker_start = _start  # type: ignore[attr-defined]
