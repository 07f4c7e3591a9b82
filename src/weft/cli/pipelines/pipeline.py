"""`weft pipeline`: runs items through stages, on the worker pool. Commands that report on runs are in
pipeline_runs.py.

Progress and the output of items go to stderr; with --json one document goes to stdout.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from weft.cli.pipelines import pipeline_runs
from weft.cli.pipelines.pool_display import RunView, phases
from weft.cli.pipelines.running import (
    LATEST,
    engine_flags,
    engine_options,
    item_log_flags,
    stdout_to_stderr,
    terminate_like_interrupt,
)
from weft.cli.terminal.output import output_flags, print_document, print_json, printable
from weft.errors import BadConfig, BadInput
from weft.pipelines import catalogue, run_facts
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.run import CACHE, OUTPUT, PipelineRun, RunOptions, RunSummary, check_callables
from weft.pipelines.spec.definition import Pipeline, changed, json_schema, load, located
from weft.pipelines.spec.graph import picture
from weft.supervise import process


@click.group()
def pipeline() -> None:
    """Run items through stages; unchanged items are skipped.

    A pipeline is a file in pipelines/, an entry of stage-graph.json, or one that ships.
    """
    process.open_standard_descriptors()


@pipeline.command("list", short_help="List the pipelines there are.")
@output_flags
def list_(as_json: bool, quiet: bool) -> int:
    """List the pipelines here and those that ship."""
    listed = list(catalogue.listed())
    if as_json:
        print_document({"pipelines": [_list_entry(one) for one in listed]})
        return 0
    width = max((len(one.name) for one in listed), default=0)
    for one in listed:
        description = one.problem or (one.pipeline.spec.description if one.pipeline else "")
        origin = "ships" if one.ships else str(one.path)
        click.echo(printable(f"{one.name:{width}}  {origin}  {description}".rstrip()))
    if not listed and not quiet:
        click.echo("there are no pipelines here", err=True)
    return 0


def _list_entry(one: catalogue.ListedPipeline) -> dict[str, Any]:
    spec = one.pipeline.spec if one.pipeline else None
    return {
        "name": one.name,
        "file": str(one.path),
        "ships": one.ships,
        "description": spec.description if spec else None,
        "stages": one.pipeline.order if one.pipeline else None,
        "problem": one.problem,
    }


@pipeline.command(short_help="Show a pipeline: its items, stages and output.")
@click.argument("name")
@output_flags
def show(name: str, as_json: bool, quiet: bool) -> int:  # noqa: ARG001
    """Show the pipeline NAME (or FILE, or FILE:NAME), its stages drawn as a graph."""
    chosen = catalogue.find(name)
    if as_json:
        document = {"name": chosen.name, "file": str(chosen.path), "order": chosen.order}
        print_document(document | {"pipeline": msgspec.to_builtins(chosen.spec)})
        return 0
    spec = chosen.spec
    lines = [
        chosen.name + (f": {spec.description}" if spec.description else ""),
        f"file    {chosen.path}",
    ]
    lines.append(f"items   {spec.items.source or spec.items.file}{_settings_text(spec.items.settings)}")
    lines += ["", *picture(spec.stages, chosen.order), ""]
    width = max(map(len, chosen.order))
    lines += [f"{stage:{width}}  {_stage_text(chosen, stage)}" for stage in chosen.order]
    if spec.collect is not None:
        lines.append(f"{'':{width}}  then {spec.collect.run}{_settings_text(spec.collect.settings)}")
    output = spec.output.directory or OUTPUT / chosen.name
    lines += ["", f"output  {output}, {' and '.join(spec.output.formats)}, {spec.output.shard_items:,} items a shard"]
    lines.append(f"cache   {spec.cache.directory or CACHE / chosen.name}")
    click.echo(printable("\n".join(lines)))
    return 0


def _stage_text(pipeline: Pipeline, name: str) -> str:
    stage = pipeline.spec.stages[name]
    text = stage.run + _settings_text(stage.settings)
    if stage.inputs is not None:
        text += f", reads {', '.join(stage.inputs) or 'no field'}"
    if stage.when is not None:
        text += f", when {stage.when}"
    if stage.fingerprint is not None:
        text += f", fingerprint {stage.fingerprint}"
    return text + ("" if stage.cache else ", never cached")


def _settings_text(settings: dict[str, Any]) -> str:
    return f" ({', '.join(f'{name}={value!r}' for name, value in settings.items())})" if settings else ""


@pipeline.command(short_help="Check a pipeline's file and its callables.")
@click.argument("name", metavar="FILE")
@output_flags
def check(name: str, as_json: bool, quiet: bool) -> int:
    """Check FILE (or the file of the pipeline NAME): its form, the graph of its stages, and that every callable can be
    imported.

    The exit code is 2 if there is a problem; all are reported, each with its line.
    """
    file = catalogue.file_of(name)
    problems: list[str] = []
    try:
        for loaded in load(file, os.environ).values():
            problems += [located(file, loaded.name, problem) for problem in check_callables(loaded)]
    except BadConfig as error:
        problems += error.problems
    if as_json:
        print_document({"file": str(file), "valid": not problems, "problems": problems})
    elif problems:
        raise BadConfig(problems)
    elif not quiet:
        click.echo(f"{file}: valid", err=True)
    return 2 if problems else 0


@pipeline.command()
def schema() -> None:
    """Print the JSON Schema of a pipeline's file, for editors."""
    print_json(json_schema())


@pipeline.command(short_help="Run a pipeline.")
@click.argument("name")
@click.option(
    "--workers", metavar="N", type=int, help="Worker processes. [default: PIPELINE_WORKER_COUNT, else processors - 1]"
)
@click.option("--batch-size", metavar="N", type=int, help="Items given to a worker at a time. [default: 50]")
@click.option("--only", metavar="ID", multiple=True, help="Run only this item. Repeatable.")
@click.option("--from-stage", metavar="STAGE", help="Run this stage, and what depends on it, even if nothing changed.")
@click.option("--fresh", is_flag=True, help="Run everything, whatever is cached.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[RUN_ID]",
    help="Continue an interrupted run: the latest of this pipeline, or the given one.",
)
@engine_flags
@click.option("--set", "settings", metavar="STAGE.KEY=VALUE", multiple=True, help="A setting, for this run.")
@click.option("--items", metavar="FILE", help="Another items file, for this run.")
@click.option("--out", "directory", metavar="DIR", help="Another output directory, for this run.")
@click.option("--cache", metavar="DIR", type=Path, help="Another cache directory, for this run.")
@item_log_flags
@pipeline_runs.logs_option
@output_flags
def run(name: str, resume: str | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Run the pipeline NAME (or FILE, or FILE:NAME).

    Exits with 0 when every item succeeded, 1 when some did not, 2 when it could not start, 130 when interrupted; then
    --resume continues. With --only the rows go to the run's own directory, and the output stays as it is.
    """
    beside = engine_options(options)
    asked = RunOptions(
        engine_options=beside,
        **{key: value for key, value in options.items() if key not in ("only", "settings")},
        only=list(options["only"]),
        settings=list(options["settings"]),
    )
    chosen = catalogue.find(name)
    directory = None
    if resume is not None:
        directory, facts = _find_run_to_resume(asked.logs, chosen.name, resume)
        if facts.finished:
            raise BadInput(f"run {facts.run_id} has finished: there is nothing to continue")
        asked = _options_of_resumed(asked, facts)
    else:
        _report_interrupted(asked.logs, chosen.name, quiet=quiet)
    chosen = changed(chosen, asked.settings, asked.items, asked.directory)
    return _run_pipeline(PipelineRun(chosen, asked, directory), name, chosen, quiet=quiet, as_json=as_json)


def _find_run_to_resume(logs: Path, name: str, run_id: str) -> tuple[RunDirectory, run_facts.RunFacts]:
    if run_id != LATEST:
        directory, facts = run_facts.find(logs, run_id)
        if facts.pipeline != name:
            raise BadInput(f"run {facts.run_id} is one of the pipeline {facts.pipeline!r}")
        return directory, facts
    for directory, facts in run_facts.runs(logs):
        if facts.pipeline == name:
            return directory, facts
    raise BadInput(f"there is no run of {name!r} in {logs} to resume; leave out --resume to start one")


def _options_of_resumed(asked: RunOptions, facts: run_facts.RunFacts) -> RunOptions:
    """The options of a resumed run: those it was started with; only options on how it is run may change."""
    for flag, given in (("--only", asked.only), ("--fresh", asked.fresh), ("--from-stage", asked.from_stage),
                        ("--set", asked.settings), ("--items", asked.items), ("--out", asked.directory)):  # fmt: skip
        if given:
            raise BadInput(
                f"{flag} cannot be changed for a resumed run: it continues with the value it was started with"
            )
    return msgspec.structs.replace(
        asked, only=facts.only, fresh=facts.fresh, from_stage=facts.from_stage, settings=facts.settings,
        items=facts.items, directory=facts.directory, engine=asked.engine or facts.engine,
    )  # fmt: skip


def _report_interrupted(logs: Path, name: str, *, quiet: bool) -> None:
    for directory, facts in run_facts.runs(logs):
        if facts.pipeline == name and not facts.only:
            if not quiet and run_facts.state_of(directory, facts) == "interrupted":
                click.echo(
                    f"weft: run {facts.run_id} was interrupted; --resume continues it. This is a new run.", err=True
                )
            return


def _run_pipeline(one: PipelineRun, asked: str, pipeline: Pipeline, *, quiet: bool, as_json: bool) -> int:
    run_id, folder = one.facts.run_id, one.directory.path
    title = f"weft pipeline {pipeline.name}  run {run_id}"
    try:
        with stdout_to_stderr(), terminate_like_interrupt():
            summary = one.run(lambda: RunView(title, quiet=quiet))
    except KeyboardInterrupt:
        # the name that the user gave: a file elsewhere than in pipelines/ would not be found by the pipeline's name
        click.echo(f"Interrupted; weft pipeline run {shlex.quote(asked)} --resume {run_id} continues.", err=True)
        if as_json:
            print_document(run_facts.shown(one.facts))
        return 130
    if as_json:
        print_json({"schema": 1} | pipeline_runs.report_of(folder))
    if not quiet:
        _report_end(summary)
    return 1 if summary.stats.bad else 0


def _report_end(summary: RunSummary) -> None:
    stats = summary.stats
    words = [pipeline_runs.number_of(stats.items, "item")]
    words += filter(None, [pipeline_runs.counts_text(stats.by_status, stats.unchanged)])
    click.echo(f"weft pipeline: {', '.join(words)} in {summary.seconds:.1f} s", err=True)
    if stats.by_phase:
        click.echo(f"Failures by phase: {phases(stats.by_phase)}", err=True)
    rows = pipeline_runs.number_of(summary.rows or 0, "row")
    click.echo(f"Output: {summary.output} ({rows})  Report: {summary.path}/report.html", err=True)
    if stats.by_status.get("crashed"):
        click.echo(f"Crashed items: weft pipeline replay {summary.run_id} ITEM runs one again by itself", err=True)


for command in (pipeline_runs.runs, pipeline_runs.report, pipeline_runs.why, pipeline_runs.replay):
    pipeline.add_command(command)
