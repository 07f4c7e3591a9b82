"""One run of a pipeline, in its parent process: source → pool → cache and ordered output → collector → publication.

Invariants: whatever is killed, a resume ends with the output that an undisturbed run would have made, and does nothing
again that had ended; the output changes only when everything is done; a run holds its cache and its output alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.engine.loop.steps import crash_point
from weft.errors import BadInput, WeftError, writing
from weft.pipelines import run_facts
from weft.pipelines.cache.cache import Cache
from weft.pipelines.cache.cached_values import CachedValues
from weft.pipelines.feed import EarlierItems, ItemFeed
from weft.pipelines.output.outcome import item_record
from weft.pipelines.output.report import write_report
from weft.pipelines.output.results import ids_of, read_results
from weft.pipelines.output.sink import OutputShard, OutputSink
from weft.pipelines.output.stats import RunStats
from weft.pipelines.output.writer import OrderedWriter, plain_row
from weft.pipelines.pool import shared_config
from weft.pipelines.pool.api import Stream, WorkerPool
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.failure import describe
from weft.pipelines.pool.record import Result, Status
from weft.pipelines.pool.settings import LOCAL
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.pool.view import NoView, RunDisplay
from weft.pipelines.run_facts import RunFacts
from weft.pipelines.sources import open_source
from weft.pipelines.spec.definition import Pipeline, is_callable
from weft.pipelines.spec.plan import (
    PLAN_FOLDERS,
    Plan,
    import_from,
    make_plan,
    module_file,
    outside_reads,
    stage_callables,
    stage_files,
)
from weft.pipelines.stage import CollectContext
from weft.telemetry import Log

RUNNER = "weft.pipelines.runner:run_item"
CACHE = Path(".weft/cache")
_log = Log("weft.pipelines")
OUTPUT = Path("output")
_UPDATE_EVERY_S = 0.1


class RunOptions(msgspec.Struct, frozen=True):
    """The options of a run; None: as in the pipeline's file."""

    logs: Path = Path("logs")
    workers: int | None = None
    batch_size: int | None = None
    engine: str | None = None
    engine_options: dict[str, str] = {}
    """What the engine is told beyond the pool's settings, a broker's address say."""
    cache: Path | None = None
    item_logs: bool | str | None = None
    """One of the pool's ITEM_LOGS; None: what the pipeline says."""
    only: list[str] = []
    fresh: bool = False
    from_stage: str | None = None
    settings: list[str] = []
    items: str | None = None
    directory: str | None = None


class RunSummary(msgspec.Struct, frozen=True):
    """The outcome and counts of a run."""

    run_id: str
    pipeline: str
    path: str
    output: str
    finished: bool
    seconds: float
    rows: int | None
    stats: RunStats


def prepare(pipeline: Pipeline) -> None:
    """Checks a pipeline before any work: its callables must exist, and its own check must accept the settings."""
    import_from([Path.cwd(), pipeline.path.parent])
    spec = pipeline.spec
    for where, name in (("items", spec.items.source), ("collect", spec.collect.run if spec.collect else None)):
        if name is not None:
            module_file(name, where)
    # or a name that its module does not have would be noticed when all items are done
    if spec.collect is not None and (problem := _load_problem(spec.collect.run)) is not None:
        raise BadInput(f"collect.run: {problem}")
    if "parquet" in spec.output.formats:
        from weft.pipelines.output.parquet import check_columns

        check_columns(spec.output.columns)
    if spec.check is not None:
        settings = {name: stage.settings for name, stage in spec.stages.items()}
        settings |= {"items": spec.items.settings, "collect": spec.collect.settings if spec.collect else {}}
        _call_named(spec.check, "check", settings)


def check_callables(pipeline: Pipeline) -> list[str]:
    """The problems of a pipeline's callables, which are imported here; if they can be, also those of its settings and
    `code`.
    """
    import_from([Path.cwd(), pipeline.path.parent])
    checked = [(where, _load_problem(name)) for where, name in _callables_of(pipeline)]
    problems = [f"{where}: {problem}" for where, problem in checked if problem is not None]
    if not problems:
        try:
            prepare(pipeline)
            make_plan(pipeline, run_id="", cache=Path(), files=Path())
        except WeftError as error:
            problems += str(error).splitlines()
    return problems


def _load_problem(name: str) -> str | None:
    try:
        CallableTarget.of(name).load()
    except BadInput as error:
        return str(error)
    except (Exception, SystemExit) as error:  # a script may end itself when it is imported
        return f"{name} cannot be imported: {describe(error)}"
    return None


def _callables_of(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    spec = pipeline.spec
    if spec.items.source is not None:
        yield "items.source", spec.items.source
    if spec.collect is not None:
        yield "collect.run", spec.collect.run
    if spec.check is not None:
        yield "check", spec.check
    for name, stage in spec.stages.items():
        yield f"stages.{name}.run", stage.run
        if stage.fingerprint is not None:
            yield f"stages.{name}.fingerprint", stage.fingerprint
        if stage.when is not None and is_callable(stage.when):
            yield f"stages.{name}.when", stage.when


def _call_named(name: str, where: str, *arguments: Any) -> Any:
    try:
        return CallableTarget.of(name).load()(*arguments)
    except WeftError:
        raise
    except Exception as error:
        raise BadInput(f"{where}: {name} cannot be used: {describe(error)}") from error


class PipelineRun:
    """A new or resumed run of a pipeline."""

    def __init__(self, pipeline: Pipeline, options: RunOptions, resume: RunDirectory | None = None) -> None:
        self._pipeline = pipeline
        self._options = options
        self._resumed = resume is not None
        self._step = crash_point()
        self._began_s = time.monotonic()
        prepare(pipeline)
        spec, name = pipeline.spec, pipeline.name
        self._home = Path(spec.output.directory or OUTPUT / name).absolute()
        cache = options.cache or self._cache_before(resume) or Path(spec.cache.directory or CACHE / name)
        plan = make_plan(
            pipeline, run_id="", cache=cache.absolute(), files=self._home, fresh=options.fresh,
            from_stage=options.from_stage,
        )  # fmt: skip
        for warning in outside_reads(pipeline):
            _log.warning(warning)
        self._cache = Cache(cache)
        try:
            self.directory = RunDirectory((resume or RunDirectory.create(options.logs)).path, spec.item_name)
            self._open(plan)
        except BaseException:
            self._cache.close()
            if not self._resumed and hasattr(self, "directory"):
                shutil.rmtree(self.directory.path, ignore_errors=True)  # nothing was begun
            raise

    def _cache_before(self, resume: RunDirectory | None) -> Path | None:
        """The cache of a resumed run, which may have been named by --cache; None for a new run."""
        kept = shared_config.of_run(resume.path) if resume is not None else {}
        return Path(Plan.of(kept).cache) if kept else None

    def _open(self, plan: Plan) -> None:
        pipeline, spec = self._pipeline, self._pipeline.spec
        self.facts = self._new_facts()
        self._plan = self._plan_of_run(plan)
        self._pool = self._make_pool()
        output = self.directory.path / "output" if self.facts.only else self._home
        self._sink = OutputSink(output, pipeline.name, spec.output.formats, spec.output.columns, self._step)
        self._writer = OrderedWriter(
            self.directory.path, pipeline.order, pipeline.output_stages, self._cache, self._sink,
            spec.output.shard_items, makes_rows=spec.collect is None, step=self._step,
        )  # fmt: skip

    def _new_facts(self) -> RunFacts:
        options, pipeline = self._options, self._pipeline
        if self._resumed:
            return run_facts.load(self.directory.path)
        output = self.directory.path / "output" if options.only else self._home
        return RunFacts(
            self.directory.run_id, pipeline.name, str(pipeline.path.absolute()), run_facts.now_text(), str(output),
            options.settings, options.items, options.directory, options.only, options.fresh, options.from_stage,
            pipeline.spec.item_name, options.engine,
        )  # fmt: skip

    def _plan_of_run(self, plan: Plan) -> Plan:
        """The plan of this run. A resumed one continues with its own, if code and settings are as they were."""
        plan = msgspec.structs.replace(plan, run_id=self.directory.run_id)
        if self._resumed and (kept := shared_config.of_run(self.directory.path)):
            before = Plan.of(kept)
            if before.cache != plan.cache:
                raise BadInput(
                    f"run {self.directory.run_id} continues with its own cache, {before.cache}: leave out --cache"
                )
            if msgspec.structs.replace(before, run_id="") != msgspec.structs.replace(plan, run_id=""):
                changed = [new.name for old, new in zip(before.stages, plan.stages, strict=False) if old != new]
                what = f"stage {changed[0]!r}" if changed else "the pipeline"
                raise BadInput(
                    f"run {self.directory.run_id} cannot be resumed: {what} has changed since it began (code or "
                    "settings); start a new run, what has not changed is cached"
                )
        return plan

    def _make_pool(self) -> WorkerPool:
        settings = dict(self._pipeline.spec.pool)
        options = self._options
        engine = options.engine or settings.pop("engine", LOCAL)
        workers = options.workers if options.workers is not None else settings.pop("workers", None)
        settings.pop("workers", None)
        settings.pop("engine", None)
        if options.batch_size is not None:
            settings["batch_size"] = options.batch_size
        return WorkerPool(
            RUNNER, workers=workers, run_dir=self.directory.path, resume=self._resumed,
            logs=self._pipeline.spec.item_logs if options.item_logs is None else options.item_logs,
            config=self._plan.plain(), engine=engine, items_folder=self._pipeline.spec.item_name,
            values=CachedValues(self._cache, self._step), callables=stage_callables(self._pipeline),
            code_files=stage_files(self._pipeline), folders={name: getattr(self._plan, name) for name in PLAN_FOLDERS},
            engine_options=options.engine_options, **settings,
        )  # fmt: skip

    def run(self, make_display: Callable[[], RunDisplay] = NoView) -> RunSummary:
        """Runs to the end; after KeyboardInterrupt a resume can continue. The display is created when items begin, and
        always closed.
        """
        try:
            run_facts.save(self.directory.path, self.facts)
            self._sink.begin(resumed=self._resumed)
            self._writer.open()
            with writing(self.directory.path):
                if not self._writer.complete:
                    self._run_items(make_display)
                self._step("items-done")
                rows = self._finish_run()
            return self._make_summary(rows)
        except KeyboardInterrupt:
            write_report(self.directory.path, self.facts, self._pipeline, self._writer.stats, None)
            raise
        except BadInput as error:
            if not self._resumed and not self._writer.stats.items:
                shutil.rmtree(self.directory.path, ignore_errors=True)  # nothing was begun
            raise BadInput(str(error).removeprefix(f"{RUNNER} cannot be used in a worker: ")) from None
        finally:
            self.close()

    def close(self) -> None:
        """Releases everything; the counts are kept."""
        try:
            self._writer.close()
            self._cache.close()
        finally:
            self._sink.close()

    def _run_items(self, make_display: Callable[[], RunDisplay]) -> None:
        spec, known = self._pipeline.spec, EarlierItems(self._writer.next, ids_of(self.directory.path))
        source = open_source(spec.items)
        only = set(self.facts.only) if self.facts.only else None
        feed = ItemFeed(source.items, spec.items.keep, known, self._writer, only=only, resumed=self._resumed)
        total = len(only) if only is not None else source.total
        with self._pool.stream(feed, total=total) as stream:
            display = make_display()
            try:
                self._process_results(stream, feed, known, display)
            finally:
                display.show_end(stream)
                self._save_counts()
        if only:
            raise BadInput(f"the source has no item {', '.join(map(repr, sorted(only)))}")
        if feed.position < self._writer.next:
            raise BadInput(
                f"the source has changed since the run began: it had {self._writer.next:,} items or more, and has "
                f"{feed.position:,} now; start a new run, what has not changed is cached"
            )
        self._writer.finish(feed.position)

    def _process_results(self, stream: Stream, feed: ItemFeed, known: EarlierItems, display: RunDisplay) -> None:
        """Passes every result to the writer, and updates the display."""
        updated_s = 0.0
        while not stream.finished:
            result = stream.poll(_UPDATE_EVERY_S)
            if result is not None:
                self._handle_result(result, feed, known, display)
                for more in stream.waiting():
                    self._handle_result(more, feed, known, display)
            if result is None or time.monotonic() - updated_s > _UPDATE_EVERY_S:
                updated_s = time.monotonic()
                display.update(stream)

    def _handle_result(self, result: Result, feed: ItemFeed, known: EarlierItems, display: RunDisplay) -> None:
        pending = feed.pending.pop(str(result.item_id), None)
        if pending is None:
            return self._handle_earlier(result, known)
        if result.failure_phase == "input":  # it went to the pool under another name
            result = msgspec.structs.replace(result, item_id=pending.item_id)
        if result.status is not Status.OK and not result.good:
            display.failed(result)
        return self._writer.add(pending, result)

    def _handle_earlier(self, result: Result, known: EarlierItems) -> None:
        """Handles a result of an earlier attempt of this run."""
        record = item_record(result.value)
        if record is None:
            known.by_id[str(result.item_id)] = result
        elif record.position >= known.positions:
            known.by_position[record.position] = result

    def _finish_run(self) -> int:
        """Runs the collector, publishes the output, writes the report; returns the number of rows."""
        writer, spec = self._writer, self._pipeline.spec
        shards, files = writer.shards, writer.files
        if spec.collect is not None:
            self._sink.begin(resumed=False)
            shards = self._collect_rows(spec.collect.run, spec.collect.settings)
            files = [*files, *self._sink.files.written.values()]
        self._step("collected")
        manifest = self._sink.publish(writer.next, shards, files)
        self._step("published")
        max_mb = spec.cache.max_mb
        self._cache.tidy(None if max_mb is None else max_mb << 20, step=self._step)
        self.facts.finished = True
        self._save_counts()
        write_report(self.directory.path, self.facts, self._pipeline, writer.stats, manifest.rows)
        self._step("reported")
        return manifest.rows

    def _collect_rows(self, name: str, settings: Mapping[str, Any]) -> list[OutputShard]:
        """Writes the rows of the collector to shards, from the beginning, whatever earlier attempts have written."""
        context = CollectContext(settings, self._plan.config, self._sink.files, self._writer.next)
        results = read_results(self.directory.path, self._cache.find)
        size, count = self._pipeline.spec.output.shard_items, 0
        shards: list[OutputShard] = []
        try:
            rows = CallableTarget.of(name).load()(results, context)
            for row in rows if rows is not None else ():
                self._sink.add(count // size, plain_row(row, f"collect: {name}"))
                count += 1
                if count % size == 0:
                    shards += self._sink.commit(count // size - 1)
        except WeftError:
            raise
        except Exception as error:
            raise WeftError(f"the collector {name} failed: {describe(error)}; --resume runs it again") from error
        if count % size or not count:
            shards += self._sink.commit(count // size)
        return shards

    def _save_counts(self) -> None:
        self.facts.by_status, self.facts.unchanged = self._writer.stats.by_status, self._writer.stats.unchanged
        self.facts.seconds += time.monotonic() - self._began_s
        self._began_s = time.monotonic()
        run_facts.save(self.directory.path, self.facts)

    def _make_summary(self, rows: int | None) -> RunSummary:
        facts = self.facts
        return RunSummary(
            facts.run_id, facts.pipeline, str(self.directory.path), facts.output, facts.finished, facts.seconds, rows,
            self._writer.stats,
        )  # fmt: skip
