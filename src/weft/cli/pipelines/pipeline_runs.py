"""`weft pipeline runs|report|why|replay`: lists and explains runs, and runs one item again."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from weft.cli.pipelines.pool_display import failure_line
from weft.cli.pipelines.running import stdout_to_stderr
from weft.cli.terminal.output import columns, output_flags, print_document, print_json, printable
from weft.errors import BadInput
from weft.pipelines import run_facts
from weft.pipelines.replay import replay_item
from weft.pipelines.spec.definition import Pipeline, changed, load
from weft.pipelines.why import NOTE, ItemExplanation
from weft.pipelines.why import why as find_why

logs_option = click.option(
    "--logs", metavar="DIR", type=Path, default=Path("logs"), show_default=True, help="Where runs are kept."
)


@click.command("runs", short_help="List the runs, newest first.")
@logs_option
@output_flags
def runs(logs: Path, as_json: bool, quiet: bool) -> int:
    """List the runs of pipelines, newest first."""
    listed = [run_facts.plain(directory, facts) for directory, facts in run_facts.runs(logs)]
    if as_json:
        print_document({"runs": listed})
        return 0
    id_width, name_width = (max((len(one[key]) for one in listed), default=0) for key in ("run_id", "pipeline"))
    for one in listed:
        counts = counts_text(one["by_status"], one["unchanged"]) or "nothing yet"
        line = f"{one['run_id']:{id_width}}  {one['state']:11}  {one['pipeline']:{name_width}}  {counts}"
        click.echo(printable(line))
    if not listed and not quiet:
        click.echo(f"there are no runs of pipelines in {logs}", err=True)
    return 0


def counts_text(by_status: Mapping[str, int], unchanged: int) -> str:
    """How many items ended in each way; items that were skipped because nothing had changed are counted separately."""
    counts = dict(by_status)
    skipped = counts.pop("skipped", 0) - unchanged
    counts |= {"unchanged": unchanged, "skipped": skipped}
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)


def number_of(count: int, noun: str) -> str:
    """A count with its noun: `1 item`, `2 items`."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def report_of(folder: Path) -> dict[str, Any]:
    """The report.json of a run; raises BadInput if there is none."""
    try:
        return msgspec.json.decode((folder / "report.json").read_bytes(), type=dict[str, Any])
    except (OSError, ValueError) as error:
        raise BadInput(f"run {folder.name} has no report that can be read: {error}") from None


@click.command("report", short_help="Show the report of a run.")
@click.argument("run_id", metavar="RUN_ID")
@logs_option
@output_flags
def report(run_id: str, logs: Path, as_json: bool, quiet: bool) -> int:
    """Show the report of a run (`latest`: the newest): its stages, their times, its failures."""
    directory, facts = run_facts.find(logs, run_id)
    if not facts.finished and directory.is_running():
        raise BadInput(f"run {facts.run_id} is still running; its report is written at its end")
    document = report_of(directory.path)
    if as_json:
        print_json({"schema": 1} | document)
        return 0
    counts = counts_text(document["by_status"], document["unchanged"])
    state = "finished" if facts.finished else "interrupted"
    lines = [
        f"{document['pipeline']}, run {document['run_id']}, {state} in {document['seconds']:.1f} s: "
        f"{counts or 'no items'}",
        "",
    ]
    lines += _stage_table_lines(document["stages"])
    for failure in document["failures"][:20]:
        lines.append(f"{failure['id']} {failure['status']} in {failure['phase']}: {(failure['error'] or '')[:200]}")
    click.echo(printable("\n".join(lines)))
    if not quiet:
        click.echo(f"{directory.path}/report.html", err=True)
    return 0


def _stage_table_lines(stages: dict[str, dict[str, Any]]) -> list[str]:
    heads = ("stage", "ran", "unchanged", "skipped", "failed", "median ms", "95 % ms", "in all s")
    rows = [
        (
            name, *(f"{stage[key]:,}" for key in ("ran", "cached", "skipped", "failed")),
            digits(stage["p50_ms"]), digits(stage["p95_ms"]), digits(stage["total_ms"] / 1000),
        )
        for name, stage in stages.items()
    ]  # fmt: skip
    return [*columns([heads, *rows], is_right=lambda at: at > 0), ""]


def digits(value: float) -> str:
    """A number with three significant digits, and never in exponent notation: `1,230`, `12.3`, `0.000053`."""
    if value < 1e-6:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


@click.command("why", short_help="Say why an item's stages were run, or were not.")
@click.argument("run_id", metavar="RUN_ID")
@click.argument("item")
@logs_option
@output_flags
def why(run_id: str, item: str, logs: Path, as_json: bool, quiet: bool) -> int:
    """Say why each stage of ITEM was run in a run, or was not: the input, code or setting that had changed."""
    answer = find_why(logs, run_id, item)
    if as_json:
        print_document(msgspec.to_builtins(answer) | {"note": NOTE})
        return 0
    click.echo(printable("\n".join(_why_lines(answer))))
    if not quiet:
        click.echo(NOTE, err=True)
    return 0


def _why_lines(answer: ItemExplanation) -> list[str]:
    compared = f", compared with run {answer.before}" if answer.before else ""
    lines = [f"{answer.item} in run {answer.run_id}: {answer.status}{compared}"]
    if answer.error and not answer.stages:
        lines.append(answer.error.splitlines()[0])
    for stage in answer.stages:
        lines.append(f"  {stage.stage}: {stage.did}")
        lines += [f"    {reason}" for reason in stage.reasons]
    return lines


@click.command("replay", short_help="Run one item of a run again, by itself.")
@click.argument("run_id", metavar="RUN_ID")
@click.argument("item")
@logs_option
@output_flags
def replay(run_id: str, item: str, logs: Path, as_json: bool, quiet: bool) -> int:
    """Run all stages of one ITEM again, by itself, once, with its output on the terminal.

    The cache is not used, and nothing is stored.
    """
    directory, facts = run_facts.find(logs, run_id)
    with stdout_to_stderr():
        result, outcomes = replay_item(_pipeline_of(facts), directory, item)
    if as_json:
        print_document(
            {"item_id": result.item_id, "status": result.status, "failure_phase": result.failure_phase,
             "error": result.error, "stages": {name: msgspec.to_builtins(one) for name, one in outcomes.items()}}
        )  # fmt: skip
        return 0 if result.good else 1
    for name, outcome in outcomes.items():
        detail = f" ({outcome.error or outcome.reason})" if outcome.error or outcome.reason else ""
        click.echo(printable(f"{name}: {outcome.status} in {outcome.duration_ms:.1f} ms{detail}"))
    click.echo(printable(f"{result.item_id} {result.status}" if result.good else failure_line(result)))
    if result.traceback and not quiet:
        click.echo(result.traceback, err=True)
    return 0 if result.good else 1


def _pipeline_of(facts: run_facts.RunFacts) -> Pipeline:
    loaded = load(Path(facts.file), os.environ)
    if facts.pipeline not in loaded:
        raise BadInput(f"{facts.file} has no pipeline {facts.pipeline!r} any more")
    return changed(loaded[facts.pipeline], facts.settings, facts.items, facts.directory)
