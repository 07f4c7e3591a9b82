"""`weft pool run` and `weft pool replay`: the worker pool from the command line.

Results go to --out as JSON lines, everything else to stderr; with --json one summary goes to stdout. A run lives in
LOGS/RUN_ID: --resume continues from its journal, and --out is written again from it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from weft.cli.pipelines.pool_display import RunView, failure_line, sentence
from weft.cli.pipelines.running import (
    LATEST,
    engine_flags,
    engine_options,
    item_log_flags,
    stdout_to_stderr,
    terminate_like_interrupt,
)
from weft.cli.terminal.output import output_flags, print_document
from weft.errors import BadInput, WeftError
from weft.pipelines.pool import shared_config
from weft.pipelines.pool.api import Stream, WorkerPool
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.events import PoolCounts
from weft.pipelines.pool.items import Feeder, check_items, count_lines, read_items
from weft.pipelines.pool.record import Result
from weft.pipelines.pool.settings import LOCAL, PoolSettings, worker_count
from weft.pipelines.pool.target import CallableTarget
from weft.supervise import process

_FLUSH_EVERY_S = 0.5
_CLOSED = "weft.pool.closed"
"""Key in click's shared `meta`: which of the standard descriptors were closed at the start."""


class Manifest(msgspec.Struct):
    """run.json: the configuration of a run, and how it ended."""

    run_id: str
    function: str
    items: str
    out: str
    settings: dict[str, Any]
    engine: str = LOCAL
    finished: bool = False
    counts: PoolCounts | None = None
    journal_bytes: int = 0
    """The length of the journal when this was written: a shorter journal has lost something."""
    items_stamp: list[int] | None = None
    """Size and time of the items file: a changed file may have other items under the same ids."""


_PRIVATE_FIELDS = ("journal_bytes", "items_stamp")


@click.group()
@click.pass_context
def pool(ctx: click.Context) -> None:
    """Run a Python function over many items, in worker processes that may crash."""
    ctx.meta[_CLOSED] = process.open_standard_descriptors()
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


@pool.command("run", short_help="Run a function over the items of a file.")
@click.argument("function")
@click.option(
    "--items", metavar="FILE", required=True, help="JSON lines, each an object with an id; - reads standard input."
)
@click.option(
    "--workers", metavar="N", type=int, help="Worker processes. [default: PIPELINE_WORKER_COUNT, else processors - 1]"
)
@click.option(
    "--batch-size", metavar="N", type=int, default=50, show_default=True, help="Items given to a worker at a time."
)
@click.option(
    "--item-timeout",
    metavar="N",
    type=float,
    default=60,
    show_default=True,
    help="Seconds for one item; 0 is no limit.",
)
@click.option(
    "--batch-timeout",
    metavar="N",
    type=float,
    default=1800,
    show_default=True,
    help="Seconds for a batch; 0: no limit.",
)
@click.option("--memory-limit", metavar="MB", type=float, help="MB for one worker; an item that takes more is ended.")
@click.option("--recycle-after", metavar="N", type=int, help="Replace a worker after this many items.")
@click.option(
    "--out",
    metavar="FILE",
    help="Where the results go, as JSON lines; - is stdout. [default: LOGS/RUN_ID/results.jsonl]",
)
@click.option("--config", metavar="FILE", help="YAML or JSON that every item gets as context.config.")
@click.option("--ordered", is_flag=True, help="Results in the order of the items.")
@engine_flags
@click.option("--logs", metavar="DIR", default="logs", show_default=True, help="Where runs are kept.")
@item_log_flags
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[RUN_ID]",
    help="Continue a run; finished items are skipped. Without an id: the latest run of this function and file.",
)
@output_flags
def run(function: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Run FUNCTION (module:function or script.py:function) over the items of a file.

    FUNCTION is called as function(item, context) in a worker process. Exits with 0 when every item succeeded, 1 when
    some did not, 130 when interrupted; then --resume continues.
    """
    beside = engine_options(options)
    directory, manifest = _prepare_run(_full_function_name(function), options)
    began_s = time.monotonic()
    try:
        _run_pool(directory, manifest, options, beside, quiet=quiet)
    except BadInput:
        if options["resume"] is None:
            shutil.rmtree(directory.path, ignore_errors=True)  # nothing was started
        raise
    return _report_end(directory, manifest, time.monotonic() - began_s, quiet=quiet, as_json=as_json)


@pool.command("runs", short_help="List the runs, newest first.")
@click.option("--logs", metavar="DIR", default="logs", show_default=True, help="Where runs are kept.")
@output_flags
def runs(logs: str, as_json: bool, quiet: bool) -> int:
    """List the runs, newest first, with their items files and results."""
    listed = [_list_entry(path.parent) for path in sorted(Path(logs).glob("*/run.json"), reverse=True)]
    if as_json:
        print_document({"runs": listed})
        return 0
    for run in listed:
        counts = run["counts"]
        done = (
            "nothing yet" if counts is None else f"{counts['done']:,} items, {counts['ok'] + counts['skipped']:,} well"
        )
        click.echo(f"{run['run_id']}  {run['state']:11}  {done}  {run['function']}  {run['items']}")
    if not listed and not quiet:
        click.echo(
            f"there are no runs of the pool alone in {logs}; weft pipeline runs lists those of pipelines", err=True
        )
    return 0


def _list_entry(folder: Path) -> dict[str, Any]:
    """The entry of a run in a list; a run with a damaged manifest is listed, too."""
    directory = RunDirectory(folder)
    try:
        manifest = _load_manifest(directory)
    except BadInput:
        return {"run_id": directory.run_id, "state": "damaged", "function": "", "items": "", "counts": None}
    state = "finished" if manifest.finished else "running" if directory.is_running() else "interrupted"
    return {
        "run_id": directory.run_id,
        "state": state,
        "function": manifest.function,
        "items": manifest.items,
        "out": manifest.out,
        "counts": msgspec.to_builtins(manifest.counts),
    }


@pool.command("replay", short_help="Run one item of a run again, by itself.")
@click.argument("run_id", metavar="RUN")
@click.argument("item")
@click.option("--logs", metavar="DIR", default="logs", show_default=True, help="Where runs are kept.")
@output_flags
def replay(run_id: str, item: str, logs: str, as_json: bool, quiet: bool) -> int:
    """Run one ITEM of a run again, by itself, once, with its output on the terminal.

    For items in quarantine, and for any other item of the run as long as its items file is there.
    """
    directory = RunDirectory.find(Path(logs), run_id)
    function, item_facts, settings = _find_item(directory, item)
    function = _full_function_name(function)
    kept = {key: settings[key] for key in ("item_timeout", "memory_limit_mb") if key in settings}
    with stdout_to_stderr():
        config = shared_config.of_run(directory.path)
        (result,) = WorkerPool(function, workers=1, crash_tries=1, config=config, **kept).run([item_facts])
    if as_json:
        print_document(msgspec.to_builtins(result))
    else:
        click.echo(f"{result.item_id} {result.status}" if result.good else failure_line(result))
        if result.traceback and not quiet:
            click.echo(result.traceback, err=True)
    return 0 if result.good else 1


def _load_config(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    from weft.config.yaml_file import LONGEST_FILE, parsed

    try:
        with Path(name).open("rb") as file:
            text = file.read(LONGEST_FILE + 1).decode()
        if len(text) > LONGEST_FILE:
            raise ValueError(f"it is longer than {LONGEST_FILE >> 20} MiB")
        config = parsed(text)
    except (OSError, ValueError) as error:
        raise BadInput(f"--config {name}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(config, dict):
        raise BadInput(f"--config {name}: it must be a mapping, not {type(config).__name__}")
    return config


def _full_function_name(function: str) -> str:
    """The function's full name, which must work from any directory; workers import from here, and from its script's
    folder."""
    target = CallableTarget.of(function)
    sys.path.insert(0, str(Path.cwd()))
    if target.script is not None:
        sys.path.insert(0, str(Path(target.script).parent))
    return str(target)


def _prepare_run(function: str, options: dict[str, Any]) -> tuple[RunDirectory, Manifest]:
    """The run's directory and manifest, new or of the run that is resumed."""
    root, items = Path(options["logs"]), options["items"]
    for option, fd in (("items", 0), ("out", 1)):
        if options[option] == "-" and fd in click.get_current_context().meta.get(_CLOSED, ()):
            raise BadInput(f"--{option} is -, and {'standard input' if fd == 0 else 'stdout'} is closed")
    if items != "-":
        check_items(Path(items))
        items = str(Path(items).absolute())
        if options["out"] and Path(options["out"]).exists() and Path(options["out"]).samefile(items):
            raise BadInput(f"--out and --items are the same file, {items}: the results would overwrite the items")
    if options["resume"] is not None:
        directory, manifest = _find_run_to_resume(root, options["resume"], function, items)
        manifest.out = _out_path(options, directory) if options["out"] or not manifest.out else manifest.out
        manifest.engine = options["engine"] or manifest.engine
        _warn_of_changes(directory, manifest)
        return directory, manifest
    PoolSettings(
        **_settings_from_options(options) | {"workers": worker_count(options["workers"], options["engine"] or LOCAL)}
    )
    directory = RunDirectory.create(root)
    manifest = Manifest(
        directory.run_id, function, items, _out_path(options, directory), _settings_from_options(options)
    )
    manifest.items_stamp, manifest.engine = _stamp_of_items(items), options["engine"] or LOCAL
    _save_manifest(directory, manifest)
    return directory, manifest


def _warn_of_changes(directory: RunDirectory, manifest: Manifest) -> None:
    """Warns of files that have changed since the run; it continues nevertheless."""
    stamp, before = _stamp_of_items(manifest.items), manifest.items_stamp
    if before is not None and stamp is not None and stamp != before:
        _print_warning(f"{manifest.items} has changed since the run began; finished items are skipped")
    manifest.items_stamp = stamp
    size = directory.journal.stat().st_size if directory.journal.is_file() else 0
    if 0 < size < manifest.journal_bytes:
        lost = manifest.journal_bytes - size
        _print_warning(
            f"{directory.journal} is {lost} bytes shorter than the run left it; the missing items are run again"
        )


def _stamp_of_items(items: str) -> list[int] | None:
    if items == "-" or not Path(items).is_file():
        return None
    stat = Path(items).stat()
    return [stat.st_size, stat.st_mtime_ns]


def _print_warning(text: str) -> None:
    click.echo(f"weft: {text}", err=True)


def _find_run_to_resume(root: Path, run_id: str, function: str, items: str) -> tuple[RunDirectory, Manifest]:
    if run_id != LATEST:
        directory = RunDirectory.find(root, run_id)
        try:
            manifest = _load_manifest(directory)
        except BadInput as problem:  # the journal has the results, and the command line the rest
            _print_warning(f"{problem}; it is rebuilt from this command")
            return directory, Manifest(directory.run_id, function, items, "", {})
        if (manifest.function, manifest.items) != (function, items):
            raise BadInput(f"run {run_id} was {manifest.function} over {manifest.items}; resume it with the same")
        return directory, manifest
    for path in sorted(root.glob("*/run.json"), reverse=True):
        directory = RunDirectory(path.parent)
        try:
            manifest = _load_manifest(directory)
        except BadInput as problem:
            raise BadInput(f"{problem}; if that is the run, name it: --resume {directory.run_id}") from None
        if (manifest.function, manifest.items) == (function, items):
            return directory, manifest
    raise BadInput(f"there is no run of {function} over {items} in {root} to resume; leave out --resume to start one")


def _out_path(options: dict[str, Any], directory: RunDirectory) -> str:
    out = options["out"] or str(directory.path / "results.jsonl")
    return out if out == "-" else str(Path(out).absolute())


def _settings_from_options(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "workers": options["workers"],
        "batch_size": options["batch_size"],
        "item_timeout": options["item_timeout"] or None,
        "batch_timeout": options["batch_timeout"] or None,
        "memory_limit_mb": options["memory_limit"],
        "recycle_after": options["recycle_after"],
    }


def _run_pool(
    directory: RunDirectory, manifest: Manifest, options: dict[str, Any], beside: dict[str, str], *, quiet: bool
) -> None:
    """Runs to the end or to an interruption; the manifest records which."""
    pool = WorkerPool(
        manifest.function,
        engine=manifest.engine,
        engine_options=beside,
        run_dir=directory.path,
        logs=options["item_logs"] or "auto",
        resume=bool(options["resume"]),
        config=_load_config(options["config"]),
        **_settings_from_options(options),
    )
    with (
        _open_items(options["items"]) as (items, total),
        stdout_to_stderr() as stdout,
        pool.stream(items, ordered=options["ordered"], total=total) as stream,  # holds the run's lock
        _open_results(manifest.out, stdout) as out,
        terminate_like_interrupt(),
    ):
        view = RunView(f"weft pool {manifest.function}  run {directory.run_id}", quiet=quiet)
        manifest.finished = False
        try:
            _write_all(stream, out, view)
            manifest.finished = True
        except KeyboardInterrupt:
            stream.close()
        finally:
            view.show_end(stream)
            manifest.counts = stream.counts()
            manifest.journal_bytes = directory.journal.stat().st_size if directory.journal.is_file() else 0
            with suppress(WeftError):  # the journal has the results, and another error may be propagating
                _save_manifest(directory, manifest)


def _write_all(stream: Stream, out: IO[bytes], view: RunView) -> None:
    """Writes every result to the file, and updates the display."""
    flushed_s = time.monotonic()
    while not stream.finished:
        result = stream.poll(0.1)
        if result is not None:
            out.write(_result_line(result))
            if not result.good:
                view.failed(result)
        if result is None or time.monotonic() - flushed_s > _FLUSH_EVERY_S:
            out.flush()
            flushed_s = time.monotonic()
            view.update(stream)


def _result_line(result: Result) -> bytes:
    try:
        return msgspec.json.encode(result) + b"\n"
    except Exception:
        # values that JSON cannot express, like a mapping with keys that are not text
        return msgspec.json.encode(msgspec.structs.replace(result, value=repr(result.value))) + b"\n"


def _report_end(directory: RunDirectory, manifest: Manifest, seconds: float, *, quiet: bool, as_json: bool) -> int:
    counts = manifest.counts
    assert counts is not None
    bad = counts.failed + counts.timeout + counts.crashed
    if as_json:
        print_document(
            {name: value for name, value in msgspec.structs.asdict(manifest).items() if name not in _PRIVATE_FIELDS}
        )
    if not quiet:
        click.echo(f"weft pool: {sentence(counts, over=True)} in {seconds:.1f} s", err=True)
        click.echo(f"Results: {manifest.out}  Logs: {directory.path}", err=True)
        if counts.crashed:
            click.echo(
                f"Quarantined items: {directory.quarantine}; again: weft pool replay {directory.run_id} ITEM", err=True
            )
    if not manifest.finished:
        click.echo(f"Interrupted; the same command with --resume {directory.run_id} continues.", err=True)
        return 130
    return 1 if bad else 0


@contextmanager
def _open_items(name: str) -> Iterator[tuple[Iterator[Any], int | None]]:
    if name == "-":
        yield Feeder(sys.stdin.buffer), None
        return
    path = Path(name)
    with path.open("rb") as file:
        if path.is_file():
            yield read_items(file), count_lines(path)
        else:
            yield Feeder(file), None


@contextmanager
def _open_results(name: str, stdout: int) -> Iterator[IO[bytes]]:
    try:
        file = os.fdopen(stdout, "wb", closefd=False) if name == "-" else Path(name).open("wb")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"the results cannot be written to {name}: {error.strerror}") from None
    try:
        with file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WeftError(
            f"the results cannot be written to {name}: {error.strerror}; finished items are safe, --resume continues"
        ) from None


def _find_item(directory: RunDirectory, item_id: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The function, item and settings for a replay."""
    manifest = _load_manifest(directory) if directory.manifest.is_file() else None
    settings = manifest.settings if manifest else {}
    if (kept := directory.quarantined(item_id)) is not None:
        return str(kept.target), kept.decoded(), settings
    if manifest is not None and Path(manifest.items).is_file():
        with Path(manifest.items).open("rb") as file:
            for item in read_items(file):
                if isinstance(item, dict) and str(item["id"]) == item_id:
                    return manifest.function, item, settings
    raise BadInput(f"run {directory.run_id} has no item {item_id!r}, neither in quarantine nor in its items file")


def _load_manifest(directory: RunDirectory) -> Manifest:
    try:
        return msgspec.json.decode(directory.manifest.read_bytes(), type=Manifest)
    except (OSError, ValueError) as error:
        raise BadInput(f"{directory.manifest} cannot be read: {error}") from None


def _save_manifest(directory: RunDirectory, manifest: Manifest) -> None:
    path = directory.manifest.with_suffix(".new")
    try:
        with path.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
            file.flush()
            os.fsync(file.fileno())  # otherwise a power cut may leave the new name with an empty file
        path.replace(directory.manifest)
    except OSError as error:
        raise WeftError(f"{directory.manifest} cannot be written: {error.strerror}") from None
