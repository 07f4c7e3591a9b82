"""What a run does, in the form that its workers get and that is kept with it: the stages with their code versions.

`make_plan` is the parent's: it finds the code of every stage and works out the part of its cache key that is the same
for all items. Invariant: two plans whose stage has the same `key` run the same code with the same settings and config.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.spec import imports
from weft.pipelines.spec.definition import Pipeline, StageSpec, is_callable
from weft.pipelines.spec.graph import dependents
from weft.pipelines.spec.imports import own_files

KEY_FORMAT = 1
"""Part of every key: another number makes everything stale."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_LARGEST_CODE_FILES = 10_000
_ADVICE_BY_READ = {
    "environment": (
        "reads the environment, and a change there does not make cached values stale: give it as a setting "
        "(`settings: {name: ${NAME}}`), or a `fingerprint`"
    ),
    "file": (
        "reads a file, and a change there does not make cached values stale: name the file under `code`, or give a "
        "`fingerprint`"
    ),
}


def digest(data: bytes) -> bytes:
    """The hash that cache keys consist of."""
    return hashlib.blake2b(data, digest_size=16).digest()


class StagePlan(msgspec.Struct, frozen=True):
    """The plan of one stage, for the workers."""

    name: str
    run: str
    needs: list[str]
    after: list[str]
    when: str | None
    inputs: list[str] | None
    settings: dict[str, Any]
    config: list[str] | None
    fingerprint: str | None
    cache: bool
    forced: bool
    """To be run whatever the cache has."""
    key: bytes
    version: str | None
    """As the file gives it; else the code below counts."""
    code: dict[str, str]
    """The files that are its code version, with the hash of each."""


class Plan(msgspec.Struct, frozen=True):
    """The plan of one run, for the workers."""

    pipeline: str
    run_id: str
    cache: str
    files: str
    """Where stages write files: the output directory."""
    keep: list[str]
    config: dict[str, Any]
    stages: list[StagePlan]

    def plain(self) -> dict[str, Any]:
        """The plan as plain values, which the pool sends to its workers."""
        plain: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return plain

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Plan:
        """The plan from the config of a worker, or of a run's directory."""
        return msgspec.convert(dict(config), cls)


PLAN_FOLDERS = ("cache", "files")
"""What of a plan is a folder of the machine that made it."""


def make_plan(
    pipeline: Pipeline, *, run_id: str, cache: Path, files: Path, fresh: bool = False, from_stage: str | None = None
) -> Plan:
    """Makes the plan of a run; raises BadInput if a stage's code cannot be found."""
    forced = set(pipeline.order) if fresh else set()
    if from_stage is not None:
        if from_stage not in pipeline.spec.stages:
            raise BadInput(f"there is no stage {from_stage!r}; there are: {', '.join(pipeline.order)}")
        forced |= {from_stage} | dependents(pipeline.spec.stages, from_stage)
    stages = [_stage_plan(pipeline, name, forced=name in forced) for name in pipeline.order]
    spec = pipeline.spec
    return Plan(pipeline.name, run_id, str(cache), str(files), spec.items.keep, spec.config, stages)


def _stage_plan(pipeline: Pipeline, name: str, *, forced: bool) -> StagePlan:
    spec = pipeline.spec.stages[name]
    version = None if spec.version is None else str(spec.version)
    code = {} if version is not None else _code_digests(pipeline, name, spec)
    config = {key: value for key, value in pipeline.spec.config.items() if spec.config is None or key in spec.config}
    before = [spec.needs, spec.after]
    try:
        key = digest(_encode([KEY_FORMAT, spec.run, version or sorted(code.values()), spec.settings, config, before]))
    except Exception as error:
        raise BadInput(f"stage {name!r}: its settings cannot be sent to workers: {error}") from None
    return StagePlan(
        name, spec.run, spec.needs, spec.after, spec.when, spec.inputs, spec.settings, spec.config, spec.fingerprint,
        spec.cache, forced, key, version, code,
    )  # fmt: skip


def _code_digests(pipeline: Pipeline, name: str, spec: StageSpec) -> dict[str, str]:
    """The digests of the files that make up a stage's code version, by name."""
    files = code_files(pipeline, name)
    for entry in spec.code:
        files += _files_of(entry, pipeline.path.parent, name)
    if len(files) > _LARGEST_CODE_FILES:
        raise BadInput(f"stage {name!r}: code names {len(files):,} files; name fewer, or give a version")
    return {_display_path(path): _file_digest(path) for path in files}


def code_files(pipeline: Pipeline, name: str) -> list[Path]:
    """The file of a stage's callable, and of the author's own modules that it imports."""
    run = pipeline.spec.stages[name].run
    target = CallableTarget.of(run)
    module = "" if target.script is not None else target.module
    return own_files(module_file(run, f"stage {name!r}"), module, [Path.cwd(), pipeline.path.parent.absolute()])


def stage_callables(pipeline: Pipeline) -> list[str]:
    """The names of the callables of a pipeline's stages."""
    stages = pipeline.spec.stages.values()
    named = [name for stage in stages for name in (stage.run, stage.fingerprint, stage.when) if name is not None]
    return list(dict.fromkeys(name for name in named if is_callable(name)))


def stage_files(pipeline: Pipeline) -> list[str]:
    """The files that stages name as their code."""
    beside = pipeline.path.parent
    named = ((name, entry) for name, stage in pipeline.spec.stages.items() for entry in stage.code)
    return [str(path) for name, entry in named for path in _files_of(entry, beside, name)]


def outside_reads(pipeline: Pipeline) -> list[str]:
    """Warnings about code of cached stages that reads what is not in the cache key, one line for each file, with
    advice.
    """
    told: dict[tuple[Path, str], str] = {}
    for name, spec in pipeline.spec.stages.items():
        is_declared = spec.fingerprint is not None or spec.version is not None
        if is_declared or not spec.cache or spec.run.startswith("weft."):
            continue
        for read in (one for path in code_files(pipeline, name) for one in imports.outside_reads(path)):
            if read.what == "file" and spec.code:
                continue  # which of them it reads is not known: `code` may name it
            told.setdefault(
                (read.path, read.what),
                f"stage {name!r}: {_display_path(read.path)}, line {read.line} {_ADVICE_BY_READ[read.what]}",
            )
    return list(told.values())


def _file_digest(path: Path) -> str:
    try:
        return digest(path.read_bytes()).hex()
    except OSError as error:
        raise BadInput(f"{path} is code of a stage and cannot be read: {error.strerror}") from None


def _display_path(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _files_of(entry: str, beside: Path, name: str) -> list[Path]:
    """The files of one entry of `code`: a path relative to the pipeline's file or the current
    directory, or a module.
    """
    for path in (beside / entry, Path(entry).absolute()):
        if path.is_dir():
            files = sorted(one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
            return [one for one in files if one.suffix != ".pyc"]
        if path.is_file():
            return [path]
    if all(part.isidentifier() for part in entry.split(".")):
        return [module_file(f"{entry}:_", f"stage {name!r}, code {entry!r}")]
    raise BadInput(f"stage {name!r}: code {entry!r} is neither a file, a folder nor a module")


def module_file(callable_: str, where: str) -> Path:
    """The file of a callable's module, found without importing the module; raises BadInput if there is none."""
    target = CallableTarget.of(callable_)
    if target.script is not None:
        return Path(target.script)
    try:
        spec = importlib.util.find_spec(target.module)
    except Exception as error:
        raise BadInput(f"{where}: {callable_} cannot be imported: {type(error).__name__}: {error}") from None
    if spec is None:
        raise BadInput(f"{where}: {callable_} cannot be imported: there is no module {target.module!r}")
    if spec.origin is None or not Path(spec.origin).is_file():
        raise BadInput(f"{where}: {target.module} has no file to take a code version from; give the stage a version")
    return Path(spec.origin)


def import_from(folders: Iterable[Path]) -> None:
    """Makes these folders the first in the search for modules, here and in the workers, which get the same
    `sys.path`.
    """
    for folder in reversed([str(one.absolute()) for one in folders]):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
