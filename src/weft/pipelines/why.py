"""Says why each stage of an item was run, or was not: by comparing it with the last run before that had the item.

What is compared is kept with every run: the plan (code versions, settings, config) and, in the journal, a mark for each
field of the item, the hash of each stage's value, and what its fingerprint was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from weft.errors import BadInput
from weft.pipelines import run_facts
from weft.pipelines.output.outcome import (
    CACHED,
    FAILED,
    RAN,
    SKIPPED,
    SKIPPED_CACHED,
    ItemRecord,
    SentStage,
    item_record,
)
from weft.pipelines.output.results import ResultLine
from weft.pipelines.pool import shared_config
from weft.pipelines.pool.durability.journal import ResultJournal
from weft.pipelines.pool.record import STATUSES, ResultRecord
from weft.pipelines.spec.plan import Plan, StagePlan

NOTE = (
    "Code is a stage's module and those of its own package that it imports by name; other code and data: under `code`."
)
_SECRET = re.compile(r"pass|secret|token|key|auth|credential|cookie", re.IGNORECASE)
_SHOWN_CHARS = 60


class ItemInRun(NamedTuple):
    """An item in a run, with its record and its outcome."""

    run_id: str
    plan: Plan
    record: ItemRecord | None
    status: str
    phase: str | None
    error: str | None


class StageReason(msgspec.Struct):
    """Why one stage of an item was run, or was not."""

    stage: str
    did: str
    """ran, unchanged, skipped or failed."""
    reasons: list[str]


class ItemExplanation(msgspec.Struct):
    """Why each stage of an item was run, or was not."""

    run_id: str
    item: str
    status: str
    before: str | None
    """The run that it is compared with."""
    stages: list[StageReason]
    error: str | None = None


def why(root: Path, run: str, item: str) -> ItemExplanation:
    """Explains the stages of an item; raises BadInput if the run did not have the item."""
    directory, facts = run_facts.find(root, run)
    seen = find_item(directory.path, item)
    if seen is None and (line := _find_refused(directory.path, item)) is not None:
        return ItemExplanation(facts.run_id, item, line.status, None, [], line.error)
    if seen is None:
        raise BadInput(f"run {facts.run_id} has no result of an item {item!r}")
    before = _earlier_run(directory.path.parent, facts, item)
    if seen.record is None:
        return ItemExplanation(facts.run_id, item, seen.status, before.run_id if before else None, [], seen.error)
    stages = [
        _reason_of_stage(plan, sent, seen, before)
        for plan, sent in zip(seen.plan.stages, seen.record.stages, strict=True)
    ]
    return ItemExplanation(facts.run_id, item, seen.status, before.run_id if before else None, stages, seen.error)


def find_item(folder: Path, item: str) -> ItemInRun | None:
    """Finds an item in a run's journal; None if it is not there."""
    if not (folder / "journal").is_file():
        return None
    journal = ResultJournal(folder / "journal", read_only=True)
    try:
        for block in journal.read():
            for record in block.records:
                if str(record.item_id) == item:
                    return _item_from_record(folder, record)
    finally:
        journal.close()
    return None


def _find_refused(folder: Path, item: str) -> ResultLine | None:
    """Finds an item that failed on arrival: it is not in the journal, but in the results."""
    try:
        with (folder / "results.jsonl").open("rb") as file:
            lines = map(msgspec.json.Decoder(ResultLine).decode, file)
            return next((line for line in lines if line.failure_phase == "input" and str(line.id) == item), None)
    except (OSError, ValueError):
        return None


def _item_from_record(folder: Path, record: ResultRecord) -> ItemInRun:
    plan = Plan.of(shared_config.of_run(folder))
    return ItemInRun(
        folder.name, plan, item_record(record.value), STATUSES[record.status].value, record.phase, record.error
    )


def _earlier_run(root: Path, facts: run_facts.RunFacts, item: str) -> ItemInRun | None:
    """The item in the newest earlier run that has finished its stages; None if there is none."""
    for directory, other in run_facts.runs(root):
        if other.pipeline == facts.pipeline and other.run_id < facts.run_id:
            earlier = find_item(directory.path, item)
            if earlier is not None and earlier.record is not None:
                return earlier
    return None


def _reason_of_stage(plan: StagePlan, sent: SentStage, now: ItemInRun, before: ItemInRun | None) -> StageReason:
    if sent.code in (CACHED, SKIPPED_CACHED):
        reasons = ["its inputs, code and settings are those of an earlier run"]
        return StageReason(plan.name, "unchanged", reasons + _skip_reasons(sent, "which skipped it"))
    if sent.code not in (RAN, SKIPPED, FAILED):
        return StageReason(plan.name, "skipped", [sent.text or ""])
    did = {RAN: "ran", SKIPPED: "skipped", FAILED: "failed"}[sent.code]
    reasons = [*_reasons_to_run(plan, sent, now, before), *_skip_reasons(sent, "it skipped the item")]
    if sent.code == FAILED:
        reasons.append(f"it failed: {(sent.text or '').partition(chr(10))[0]}")
    return StageReason(plan.name, did, reasons)


def _skip_reasons(sent: SentStage, lead: str) -> list[str]:
    return [f"{lead}: {sent.text}"] if sent.code in (SKIPPED, SKIPPED_CACHED) and sent.text else []


def _reasons_to_run(plan: StagePlan, sent: SentStage, now: ItemInRun, before: ItemInRun | None) -> Iterator[str]:
    if plan.forced:
        yield "it was asked for with --fresh or --from-stage"
        return
    if not plan.cache:
        yield "it is never cached (cache: false)"
        return
    if before is None or before.record is None:
        yield "no earlier run that is kept has this item"
        return
    old = {one.name: (one, record) for one, record in zip(before.plan.stages, before.record.stages, strict=True)}
    if plan.name not in old:
        yield f"the stage is new since run {before.run_id}"
        return
    old_plan, old_sent = old[plan.name]
    changes = [
        *_input_changes(plan, old_plan, now, before),
        *_code_changes(plan, old_plan),
        *_value_changes("setting", old_plan.settings, plan.settings),
        *_value_changes("config", _config_of_stage(before.plan, old_plan), _config_of_stage(now.plan, plan)),
        *_dependency_changes(plan, now, old),
    ]
    if old_sent.asked != sent.asked:
        changes.append(f"its fingerprint ({plan.fingerprint}) is another")
    yield from changes
    if old_sent.code == FAILED:
        yield f"it failed in run {before.run_id}: {(old_sent.text or '').partition(chr(10))[0]}"
    elif not changes and old_sent.key is None:
        yield f"it was not run in run {before.run_id}: {old_sent.text}"
    elif not changes:
        yield (
            f"nothing has changed since run {before.run_id}: the cache had lost its value, "
            "or a file that it wrote was gone"
        )


def _input_changes(plan: StagePlan, old_plan: StagePlan, now: ItemInRun, before: ItemInRun) -> Iterator[str]:
    assert now.record is not None
    assert before.record is not None
    if plan.inputs != old_plan.inputs:
        yield f"its inputs are {plan.inputs or 'all fields'} and were {old_plan.inputs or 'all fields'}"
        return
    new, old = now.record.checksums(), before.record.checksums()
    for name in sorted(new.keys() | old.keys()) if plan.inputs is None else plan.inputs:
        if new.get(name) != old.get(name):
            yield f"input {name!r} " + ("is new" if name not in old else "is gone" if name not in new else "changed")


def _code_changes(plan: StagePlan, old: StagePlan) -> Iterator[str]:
    if plan.run != old.run:
        yield f"its function is {plan.run} and was {old.run}"
    if plan.version != old.version:
        yield f"its version is {plan.version or 'the hash of its code'} and was {old.version or 'the hash of its code'}"
    elif plan.version is None:
        for path in sorted(plan.code.keys() | old.code.keys()):
            if plan.code.get(path) != old.code.get(path):
                yield f"code {path} " + (
                    "is new" if path not in old.code else "is gone" if path not in plan.code else "changed"
                )


def _value_changes(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name) or (name in old) != (name in new):
            before, after = _display_setting(name, old), _display_setting(name, new)
            yield f"{kind} {name!r} is {after} and was {before}"


def _display_setting(name: str, values: dict[str, Any]) -> str:
    if name not in values:
        return "not given"
    if _SECRET.search(name):
        return "***"
    text = repr(values[name])
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def _config_of_stage(plan: Plan, stage: StagePlan) -> dict[str, Any]:
    return {name: value for name, value in plan.config.items() if stage.config is None or name in stage.config}


def _dependency_changes(plan: StagePlan, now: ItemInRun, old: dict[str, tuple[StagePlan, SentStage]]) -> Iterator[str]:
    assert now.record is not None
    values = {one.name: record.value for one, record in zip(now.plan.stages, now.record.stages, strict=True)}
    before = {*old[plan.name][0].needs, *old[plan.name][0].after}
    for name in [*plan.needs, *plan.after]:
        if name not in old:
            yield f"it needs {name!r}, which is new"
        elif name not in before:
            yield f"it needs {name!r} now, and did not"
        elif values[name] != old[name][1].value:
            yield f"the value of stage {name!r} changed"
    for name in sorted(before - {*plan.needs, *plan.after}):
        yield f"it no longer needs {name!r}"
