"""Runs all stages of one item, in a worker: the function that a pipeline's pool has.

`run_item` gets `{"id", "n": position in the source, "item"}` and returns an ItemRecord whatever happened. Invariants:
each stage has its own error boundary; a stage sees only what is in its cache key; its dependents see its value as the
cache would give it, decoded again for each, so that a run with a cache and one without cannot differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from isal.isal_zlib import crc32

from weft.errors import BadInput
from weft.pipelines.cache.cache import CacheReader, entry_of
from weft.pipelines.files import RunFiles
from weft.pipelines.output.outcome import (
    CACHED,
    FAILED,
    GOOD,
    RAN,
    SKIPPED,
    SKIPPED_BY_CONDITION,
    SKIPPED_BY_FAILURE,
    SKIPPED_BY_NEED,
    SKIPPED_CACHED,
    CachedOutcome,
    SentStage,
    encode_record,
    stage_line,
)
from weft.pipelines.pool.context import Context, ItemEnd, Skip
from weft.pipelines.pool.failure import describe, message, traceback_of
from weft.pipelines.pool.record import Status
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.pool.worker.slot import stage_label
from weft.pipelines.spec.conditions import ROOTS, Condition, compile_condition, uses_results
from weft.pipelines.spec.plan import Plan, StagePlan, digest
from weft.pipelines.stage import StageContext

UNCHANGED = "unchanged"
_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder().decode
_decode_entry = msgspec.msgpack.Decoder(CachedOutcome).decode
_ABSENT_MARK = b"\xc1"
"""Stands for a field or value that is not there: no msgpack begins with it."""
_SKIP_CODES = (SKIPPED, SKIPPED_CACHED, SKIPPED_BY_CONDITION, SKIPPED_BY_NEED)


class StageInputs(dict[str, Any]):
    """The fields of an item that a stage has named as its inputs."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(f"{key!r} is not among the stage's inputs, or the item does not have it")


class PreparedStage:
    """A stage with its callables imported, and everything that is the same for all items."""

    def __init__(self, plan: StagePlan, config: dict[str, Any]) -> None:
        self.plan = plan
        self.name = plan.name
        self.needs = plan.needs
        self.when = plan.when
        self.label = stage_label(plan.name)
        self.before = [*plan.needs, *plan.after]
        self.is_read = False
        """Another stage reads its value: only then the value is kept at hand, and hashed."""
        self.key = plan.key
        self.cached = plan.cache
        self.looked_up = plan.cache and not plan.forced
        self.run = _load_callable(plan.run, plan.name)
        self.fingerprint = _load_callable(plan.fingerprint, plan.name) if plan.fingerprint else None
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
            self.condition_call = _load_callable(when, self.name)


def _load_callable(name: str, stage: str) -> Callable[..., Any]:
    try:
        return CallableTarget.of(name).load()
    except BaseException as error:
        why = message(error) if isinstance(error, BadInput) else f"{name} cannot be imported: {describe(error)}"
        raise BadInput(f"stage {stage!r}: {why}") from None


class _ItemInStages:
    """An item on its way through the stages, with the outcomes so far."""

    __slots__ = ("bodies", "context", "digests", "done", "fields", "logged", "marks", "parts", "whole")

    def __init__(self, fields: dict[str, Any], context: Context, keep_parts: bool) -> None:
        self.fields = fields
        self.context = context
        self.logged = context.log.open
        # before any stage can change what lies inside the fields
        if keep_parts:
            self.parts = {name: _encode_sorted(value) for name, value in fields.items()}
            self.marks = {name: crc32(part) for name, part in self.parts.items()}
        else:
            self.marks = {name: crc32(_encode_sorted(value)) for name, value in fields.items()}
        self.done: dict[str, SentStage] = {}
        self.bodies: dict[str, bytes] = {}
        """The values so far that other stages read, as they are cached."""
        self.digests: dict[tuple[str, ...] | None, bytes] = {}
        self.whole = MappingProxyType(fields)

    def inputs_digest(self, names: tuple[str, ...] | None) -> bytes:
        """The hash of the fields that a stage reads."""
        if names is None:
            read = _encode_sorted(self.fields)
        else:
            parts = self.parts
            read = b"".join([_encode(name) + parts.get(name, _ABSENT_MARK) for name in names])
        hashed = self.digests[names] = blake2b(read, digest_size=16).digest()
        return hashed

    def view(self, names: tuple[str, ...] | None) -> Mapping[str, Any]:
        """The item as a stage sees it."""
        if names is None:
            return self.whole
        fields = self.fields
        return StageInputs({name: fields[name] for name in names if name in fields})


class ItemRunner:
    """Runs items through the stages of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stages = [PreparedStage(stage, plan.config) for stage in plan.stages]
        self._keep_parts = any(stage.inputs is not None for stage in self._stages)
        read = {name for stage in self._stages for name in stage.before}
        for stage in self._stages:
            stage.is_read = stage.name in read
        self._cache = CacheReader(Path(plan.cache))
        self._folder = Path(plan.files)
        self._files = RunFiles(self._folder)
        self._forked = False
        os.register_at_fork(after_in_child=self._in_forked_child)

    def _in_forked_child(self) -> None:
        self._forked = True

    def run(self, wrapped: dict[str, Any], context: Context) -> Any:
        """Runs every stage of one item; returns the encoded ItemRecord."""
        item = _ItemInStages(wrapped["item"], context, self._keep_parts)
        done = item.done
        now_ns = time.monotonic_ns()
        for stage in self._stages:
            record = done[stage.name] = self._stage_outcome(stage, item)
            began_ns, now_ns = now_ns, time.monotonic_ns()
            if record.code != SKIPPED_BY_NEED and record.code != SKIPPED_BY_FAILURE:
                record.duration_us = (now_ns - began_ns) // 1000
                if item.logged:
                    _log_stage(context, stage.name, record)
        keep = self._plan.keep
        kept = {name: item.fields[name] for name in keep if name in item.fields} if keep else {}
        line = _encode_json({name: stage_line(record) for name, record in done.items()})
        ended = _end_of_item(encode_record((wrapped["n"], kept, item.marks, list(done.values()), line)), done)
        context.log.told = ended.rest[2]  # by the line of the stage
        return ended

    def _stage_outcome(self, stage: PreparedStage, item: _ItemInStages) -> SentStage:
        """The outcome of a stage: held back by its needs or its condition, found in the cache, or run."""
        if stage.needs and (held := _outcome_held_back(stage.needs, item.done)) is not None:
            return held
        try:
            if stage.when is None or (record := self._unwanted(stage, item)) is None:
                record = self._found_or_run(stage, item)
        except Skip as skip:
            record = SentStage(SKIPPED_BY_CONDITION, text=message(skip))
        except BaseException as error:
            record = SentStage(FAILED, text=describe(error), traceback=traceback_of(error))
        if self._forked:
            os._exit(0)  # a process that the stage has forked and let return
        return record

    def _unwanted(self, stage: PreparedStage, item: _ItemInStages) -> SentStage | None:
        """The outcome of a stage whose condition is false."""
        results = self._results_for_stage(stage, item) if stage.needs_results else {}
        if stage.condition is not None:
            names = (item.fields, results, stage.settings, stage.config)
            wanted = stage.condition(dict(zip(ROOTS, names, strict=True)))
        else:
            assert stage.condition_call is not None
            files = RunFiles(self._folder)
            context = StageContext(item.context, stage.name, results, stage.settings, stage.config, files)
            wanted = stage.condition_call(item.whole, context)
        return None if wanted else SentStage(SKIPPED_BY_CONDITION, text=f"not {stage.when}")

    def _found_or_run(self, stage: PreparedStage, item: _ItemInStages) -> SentStage:
        asked = mark = None
        if stage.fingerprint is not None:
            item.context.enter(stage.name, stage.label)
            asked = digest(_encode_sorted(stage.fingerprint(item.view(stage.inputs), stage.settings)))
            mark = asked[:8]
        key = stage.key + (item.digests.get(stage.inputs) or item.inputs_digest(stage.inputs))
        if stage.before or asked or not stage.cached:
            key = self._key_part_beyond_item(stage, item, key, asked)
        key = blake2b(key, digest_size=16).digest()
        if stage.looked_up and (cached := self._cache.find(key)) is not None:
            entry = _decode_entry(cached.data)
            if not entry.files or all(map(self._files.holds, entry.files)):
                return _found(stage, item, key, mark, entry, cached.offset)
        return self._run_stage(stage, item, key, mark)

    def _key_part_beyond_item(
        self, stage: PreparedStage, item: _ItemInStages, key: bytes, asked: bytes | None
    ) -> bytes:
        """The part of a cache key that depends on neither the stage nor the item's fields: results and fingerprint."""
        if not stage.cached:  # no later run may find it, but the output reads it
            return b"\0".join([self._plan.run_id.encode(), _encode(item.fields["id"]), stage.name.encode()])
        for name in stage.before:
            before = item.done[name]
            key += before.value if before.code in GOOD and before.value is not None else _ABSENT_MARK
        return key if asked is None else key + asked

    def _run_stage(self, stage: PreparedStage, item: _ItemInStages, key: bytes, mark: bytes | None) -> SentStage:
        files = RunFiles(self._folder)
        results = self._results_for_stage(stage, item) if stage.before else {}
        context = StageContext(item.context, stage.name, results, stage.settings, stage.config, files)
        item.context.enter(stage.name, stage.label)
        code, reason = RAN, None
        try:
            value = stage.run(item.whole if stage.inputs is None else item.view(stage.inputs), context)
        except Skip as skip:
            code, reason = SKIPPED, message(skip)
        try:
            body = _encode(value) if reason is None else reason.encode()
        except Exception as error:
            raise TypeError(f"the value cannot be encoded: {describe(error)}") from None
        hashed = b""
        if stage.is_read:
            item.bodies[stage.name] = body
            hashed = blake2b(body, digest_size=16).digest()
        written = list(files.written.values()) if files.written else None
        entry = entry_of(key, _encode((code == SKIPPED, hashed, body, written or ())))
        return SentStage(code, 0, key, hashed, mark, reason, None, entry, written)

    def _results_for_stage(self, stage: PreparedStage, item: _ItemInStages) -> dict[str, Any]:
        results = {}
        for name in stage.before:
            if item.done[name].code in GOOD:
                results[name] = _decode(item.bodies[name])
        return results


def _found(
    stage: PreparedStage, item: _ItemInStages, key: bytes, mark: bytes | None, entry: CachedOutcome, at: int
) -> SentStage:
    """The outcome of a stage whose value an earlier run has made."""
    hashed = entry.digest
    if stage.is_read:
        item.bodies[stage.name] = entry.body
        hashed = hashed or digest(entry.body)  # when it was made, no stage read it
    code, text = (SKIPPED_CACHED, entry.body.decode()) if entry.skipped else (CACHED, None)
    return SentStage(code, 0, key, hashed, mark, text, None, None, entry.files or None, at)


def _outcome_held_back(needs: list[str], done: dict[str, SentStage]) -> SentStage | None:
    """The outcome of a stage if one that it needs has not succeeded; None if all have."""
    for need in needs:
        code = done[need].code
        if code in (FAILED, SKIPPED_BY_FAILURE):
            why = "failed" if code == FAILED else "was not run"
            return SentStage(SKIPPED_BY_FAILURE, text=f"needs {need}, which {why}")
        if code in _SKIP_CODES:
            return SentStage(SKIPPED_BY_NEED, text=f"needs {need}, which was skipped")
    return None


def _end_of_item(value: bytes, done: dict[str, SentStage]) -> ItemEnd:
    """The item's status for the pool: failed with the first failed stage; skipped if no stage had to run."""
    codes = [record.code for record in done.values()]
    if FAILED in codes:
        name, record = next((name, record) for name, record in done.items() if record.code == FAILED)
        return ItemEnd(Status.FAILED, value, name, record.text, record.traceback)
    if RAN in codes or (SKIPPED in codes and CACHED in codes):
        return ItemEnd(Status.OK, value)
    if SKIPPED not in codes and (CACHED in codes or SKIPPED_CACHED in codes):
        return ItemEnd(Status.SKIPPED, value, None, UNCHANGED)
    return ItemEnd(
        Status.SKIPPED, value, None, next(record.text for record in done.values() if record.text is not None)
    )


_LOG_WORDS = {CACHED: UNCHANGED, SKIPPED_CACHED: "skipped, unchanged"}


def _log_stage(context: Context, name: str, record: SentStage) -> None:
    """Logs one line for a stage."""
    if record.code == FAILED:
        context.log.add("ERROR", record.text or "", {"traceback": record.traceback} if record.traceback else None, name)
        return
    word = _LOG_WORDS.get(record.code) or ("ok" if record.code == RAN else "skipped")
    data: dict[str, Any] = {"durationMs": round(record.duration_us / 1000, 1)}
    if record.text:
        data["reason"] = record.text
    context.log.add("INFO", word, data, name)


_runner: ItemRunner | None = None


def _make_runner(config: Mapping[str, Any]) -> None:
    global _runner
    _runner = ItemRunner(Plan.of(config))


def run_item(item: dict[str, Any], context: Context) -> Any:
    """The function that the pool calls for each item."""
    assert _runner is not None
    return _runner.run(item, context)


run_item.worker_start = _make_runner  # type: ignore[attr-defined]
