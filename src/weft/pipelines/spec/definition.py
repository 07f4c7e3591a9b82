"""A pipeline's file, read strictly: what it may hold, and every problem in it at once, each with its line.

YAML or JSON. A file is one pipeline, called as the file is, or has several under `pipelines`. What the stages do is in
stage.py; the graph's own rules (cycles, unknown stages) are in graph.py, conditions in conditions.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from weft.errors import BadConfig, BadInput
from weft.names import nearest
from weft.pipelines.pool.durability.runs import ITEMS
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.spec.conditions import compile_condition
from weft.pipelines.spec.graph import order_of

Callable = Annotated[str, msgspec.Meta(description="package.module:function, or script.py:function")]
Count = Annotated[int, msgspec.Meta(ge=1)]
Format = Literal["jsonl", "parquet"]
_VALID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_CALLABLE_NAME = re.compile(r"[^\s:]+:[A-Za-z_][\w.]*")
_RESERVED_NAMES = ("items", "collect", "config", "input", "output", "pool")
"""Names that `--set` and phases use for something else."""
_KIND_WORDS = {
    "array": "a list", "object": "names with values", "str": "text", "int": "a whole number", "float": "a number",
    "bool": "true or false",
}  # fmt: skip
"""msgspec's words for kinds of values, and those of somebody who writes YAML."""


class PipelineSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A section of the file."""


class ItemsSpec(PipelineSection, frozen=True):
    """Where the items come from: a callable, or a file of them."""

    source: Callable | None = None
    file: Annotated[str, msgspec.Meta(description="items.jsonl, items.json (a list) or items.csv")] | None = None
    settings: dict[str, Any] = {}
    keep: list[str] = []
    """Fields of the item that go along with its result."""


class StageSpec(PipelineSection, frozen=True):
    """A stage in the file."""

    run: Callable
    needs: list[str] = []
    after: list[str] = []
    when: str | None = None
    inputs: list[str] | None = None
    settings: dict[str, Any] = {}
    config: list[str] | None = None
    version: str | int | float | None = None
    code: list[str] = []
    fingerprint: Callable | None = None
    cache: bool = True

    @property
    def before(self) -> list[str]:
        """The stages that must have ended before it begins."""
        return [*self.needs, *self.after]


class CollectSpec(PipelineSection, frozen=True):
    """The collector, which makes the rows of the output from all results."""

    run: Callable
    settings: dict[str, Any] = {}


class OutputSpec(PipelineSection, frozen=True):
    """The output: its directory, formats and columns."""

    directory: str | None = None
    format: Format | list[Format] = "jsonl"
    shard_items: Count = 10_000
    stages: list[str] | None = None
    """Whose values are an item's row; those that no other stage needs, if not given."""
    columns: dict[str, str] | None = None
    """Types of Parquet columns, as pyarrow calls them; those of the first rows, if not given."""

    @property
    def formats(self) -> list[str]:
        """The formats, each once."""
        return list(dict.fromkeys([self.format] if isinstance(self.format, str) else self.format))


class CacheSpec(PipelineSection, frozen=True):
    """The cache of earlier runs' values."""

    directory: str | None = None
    max_mb: Count | None = None


class PipelineSpec(PipelineSection, frozen=True):
    """One pipeline as its file has it."""

    items: ItemsSpec
    stages: dict[str, StageSpec]
    description: str = ""
    item_name: str = ITEMS
    item_logs: bool | Literal["auto", "each", "worker", "off"] = "auto"
    """A file for each item, or one for each worker with an index (`pool/itemlog.py`). YAML reads `off` as false."""
    config: dict[str, Any] = {}
    pool: dict[str, Any] = {}
    collect: CollectSpec | None = None
    check: Callable | None = None
    output: OutputSpec = OutputSpec()
    cache: CacheSpec = CacheSpec()


class Pipeline(msgspec.Struct, frozen=True):
    """A pipeline with its name and the file it is from."""

    name: str
    spec: PipelineSpec
    path: Path
    order: list[str]
    """The stages, each after those it depends on."""

    @property
    def output_stages(self) -> list[str]:
        """The stages whose values make an item's row."""
        if self.spec.output.stages is not None:
            return self.spec.output.stages
        needed = {name for stage in self.spec.stages.values() for name in stage.before}
        return [name for name in self.order if name not in needed]


def is_callable(text: str) -> bool:
    """Whether a text names a function, and is not a condition."""
    return _CALLABLE_NAME.fullmatch(text) is not None


def load(path: Path, environment: Mapping[str, str]) -> dict[str, Pipeline]:
    """Loads the pipelines of a file, by name; raises BadConfig, which lists every problem."""
    from weft.config.yaml_file import entries

    problems: list[str] = []
    pipelines: dict[str, Any] = {}
    lines: dict[str, str] = {}
    for name, value, place, _ in entries(path, lambda _: None, environment, problems):
        pipelines[name] = value
        lines[name] = place
    if "pipelines" in pipelines:
        problems += [f"{lines[name]}: {name!r} is beside `pipelines`" for name in pipelines if name != "pipelines"]
        several = pipelines["pipelines"]
        if not isinstance(several, dict) or not several:
            raise BadConfig([*problems, f"{lines['pipelines']}: pipelines must be names, each with a pipeline"])
    else:
        several = {path.stem: pipelines}
    read = {}
    for name, one in several.items():
        told: list[str] = []
        read[str(name)] = _read_pipeline(str(name), one, path, told)
        problems += [located(path, str(name), problem) for problem in told]
    if problems:
        raise BadConfig(problems)
    return {name: one for name, one in read.items() if one is not None}


def changed(pipeline: Pipeline, settings: list[str], items: str | None, directory: str | None) -> Pipeline:
    """Applies the options of a command line to a pipeline: `stage.key=value`, another items file, another output
    directory.
    """
    from weft.config.yaml_file import parsed

    document = msgspec.to_builtins(pipeline.spec)
    for text in settings:
        where, equals, value = text.partition("=")
        part, dot, key = where.partition(".")
        if not equals or not dot or not key:
            raise BadInput(f"--set {text}: write STAGE.KEY=VALUE, or items., collect. or config. before the key")
        known = _settings_of_part(document, part, text)
        if key not in known and (near := nearest(key, known)):
            raise BadInput(f"--set {text}: {part} has no {key!r} in the file; did you mean {near!r}?")
        try:
            known[key] = parsed(value)
        except ValueError as error:
            raise BadInput(f"--set {text}: {error}") from None
    if items is not None:
        document["items"] = document["items"] | {"source": None, "file": items}
    if directory is not None:
        document.setdefault("output", {})["directory"] = directory
    problems: list[str] = []
    read = _read_pipeline(pipeline.name, document, pipeline.path, problems)
    if problems or read is None:
        raise BadConfig(problems)
    return read


def _settings_of_part(document: dict[str, Any], part: str, text: str) -> dict[str, Any]:
    if part == "config":
        holder, name = document, "config"
    elif part in ("items", "collect") and part in document:
        holder, name = document[part], "settings"
    elif part in document["stages"]:
        holder, name = document["stages"][part], "settings"
    else:
        known = ["config", "items", *(["collect"] if "collect" in document else []), *document["stages"]]
        raise BadInput(f"--set {text}: there is no stage {part!r}; there are: {', '.join(known)}")
    settings: dict[str, Any] = holder.setdefault(name, {})
    return settings


def _read_pipeline(name: str, value: Any, path: Path, problems: list[str]) -> Pipeline | None:
    """Reads one pipeline; None if there are problems, each of which begins with its location: `stages.words.needs:
    …`.
    """
    before = len(problems)
    if not _VALID_NAME.fullmatch(name):
        problems.append(f"{name!r} cannot be a pipeline's name: letters, digits, _ and - after a letter")
    if not isinstance(value, dict):
        problems.append(f"{name}: a pipeline must have items and stages, this is {type(value).__name__}")
        return None
    value = dict(value)
    stages, value["stages"] = value.get("stages"), {}
    spec = _read_section(PipelineSpec, value, "", problems)
    if not isinstance(stages, dict) or not stages:
        problems.append("stages: a pipeline must have stages by name, like `words: {run: mypackage.work:words}`")
        return None
    read = {str(key): _read_section(StageSpec, one, f"stages.{key}", problems) for key, one in stages.items()}
    whole = {key: stage for key, stage in read.items() if stage is not None}
    problems += _stage_problems(whole)
    if spec is None or len(problems) > before:
        return None
    spec = msgspec.structs.replace(spec, stages=whole)
    problems += _pipeline_problems(spec)
    return Pipeline(name, spec, path, order_of(whole)[0]) if len(problems) == before else None


def _read_section(kind: type[Any], value: Any, where: str, problems: list[str]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `$")
        key = where + re.sub(r"\[(\.\.\.|\d+)\]", "", at.rstrip("`"))
        hint = ""
        if unknown := re.search(r"unknown field `(.*)`", said):
            known = kind.__struct_fields__ if not at else _fields_at(kind, at)
            near = nearest(unknown[1], known)
            said, key = f"there is no key {unknown[1]!r} here", f"{key}.{unknown[1]}"
            hint = f"; did you mean {near!r}?" if near else f"; there are: {', '.join(known)}"
        elif missing := re.search(r"missing required field `(.*)`", said):
            said = f"{missing[1]!r} is missing"
        elif said.startswith("Invalid enum value"):
            hint = f"; there are: {', '.join(get_args(Format))}"
        said = re.sub(r"`([a-z |]+)`", lambda kinds: _kinds_text(kinds[1]), said)
        problems.append(f"{key.strip('.') or 'the pipeline'}: {said}{hint}")
        return None


def _kinds_text(kinds: str) -> str:
    return " or ".join(_KIND_WORDS.get(kind, kind) for kind in kinds.split(" | "))


def _fields_at(kind: type[Any], at: str) -> tuple[str, ...]:
    """The keys of the section that a path leads to."""
    sections = {"items": ItemsSpec, "collect": CollectSpec, "output": OutputSpec, "cache": CacheSpec}
    section: Any = sections.get(at.strip(".`"), kind)
    fields: tuple[str, ...] = section.__struct_fields__
    return fields


def _stage_problems(stages: dict[str, StageSpec]) -> Iterator[str]:
    for name, stage in stages.items():
        if not _VALID_NAME.fullmatch(name) or name in _RESERVED_NAMES:
            allowed = f"letters, digits, _ and -, and none of {', '.join(_RESERVED_NAMES)}"
            yield f"stages.{name}: {name!r} cannot be a stage's name: {allowed}"
        for key in ("run", "fingerprint"):
            if (text := getattr(stage, key)) is not None and not is_callable(text):
                yield f"stages.{name}.{key}: {text!r} does not name a function; write package.module:function"
        if stage.when is not None and not is_callable(stage.when):
            try:
                compile_condition(stage.when, stage.before)
            except BadInput as error:
                yield f"stages.{name}.when: {error}"
    yield from order_of(stages)[1]


def _pipeline_problems(spec: PipelineSpec) -> Iterator[str]:
    if (spec.items.source is None) == (spec.items.file is None):
        yield "items: give either source: package.module:function or file: items.jsonl"
    named = {"items.source": spec.items.source, "check": spec.check}
    named["collect.run"] = spec.collect.run if spec.collect is not None else None
    for where, text in named.items():
        if text is not None and not is_callable(text):
            yield f"{where}: {text!r} does not name a function; write package.module:function"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", spec.item_name) or spec.item_name in ("slots", "quarantine"):
        yield f"item_name: {spec.item_name!r} cannot be the name of a folder of logs"
    for name in spec.output.stages or []:
        if name not in spec.stages:
            yield f"output.stages: there is no stage {name!r}"
    for name, stage in spec.stages.items():
        for key in stage.config or []:
            if key not in spec.config:
                yield f"stages.{name}.config: the pipeline's config has no {key!r}"
    yield from _pool_problems(spec.pool)


def _pool_problems(pool: dict[str, Any]) -> Iterator[str]:
    known = [*PoolSettings.__dataclass_fields__, "engine"]
    for key in pool.keys() - set(known):
        near = nearest(key, known)
        yield f"pool.{key}: a pool has no such setting" + (f"; did you mean {near!r}?" if near else "")
    given = {key: value for key, value in pool.items() if key in known and key != "engine"}
    try:
        PoolSettings(**{"workers": 1} | given)
    except BadInput as error:
        yield from (f"pool.{problem}" for problem in str(error).splitlines())


def located(path: Path, name: str, problem: str) -> str:
    """A problem of a pipeline with the file's name, the line of its key where it is found, and the pipeline's name if
    the file has several."""
    import yaml

    root = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    keys = problem.partition(":")[0].split(".")
    several = isinstance(root, yaml.MappingNode) and any(key.value == "pipelines" for key, _ in root.value)
    line = _line_of(root, ["pipelines", name, *keys] if several else keys)
    place = f"{path}:{line}" if line else str(path)
    return f"{place}: {name}: {problem}" if several else f"{place}: {problem}"


def _line_of(node: Any, keys: list[str]) -> int | None:
    """The line of a nested key: of the last of `keys` that exists, each within the one before it."""
    import yaml

    line = None
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            break
        inside = {str(name.value): (name, value) for name, value in node.value}
        if key not in inside:
            break
        line, node = inside[key][0].start_mark.line + 1, inside[key][1]
    return line


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a pipeline's file, for editors."""
    (one,), definitions = msgspec.json.schema_components([PipelineSpec], ref_template="#/$defs/{name}")
    several = {
        "type": "object",
        "properties": {"pipelines": {"type": "object", "additionalProperties": one}},
        "required": ["pipelines"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Weft pipeline",
        "anyOf": [one, several],
        "$defs": definitions,
    }
