"""Finds pipelines by name: in `pipelines/` and `stage-graph.json` of the current directory, then those that ship.

A name is that of a pipeline, or FILE for a file with one, or FILE:NAME for a file with several.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from weft.errors import BadConfig, BadInput
from weft.names import nearest
from weft.pipelines.spec.definition import Pipeline, load

BUILTIN = Path(__file__).with_name("builtin")
FOLDER = Path("pipelines")
SEVERAL = Path("stage-graph.json")
_SUFFIXES = (".yaml", ".yml", ".json")


class ListedPipeline(NamedTuple):
    """A pipeline in a list; if its file is invalid, it has a `problem` and no `pipeline`."""

    name: str
    path: Path
    pipeline: Pipeline | None
    problem: str | None
    ships: bool


def files() -> Iterator[Path]:
    """The files that may define pipelines, those of the user first."""
    if SEVERAL.is_file():
        yield SEVERAL
    for folder in (FOLDER, BUILTIN):
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def listed() -> Iterator[ListedPipeline]:
    """Lists every pipeline; of two with the same name only the first is used and listed."""
    met: set[str] = set()
    for path in files():
        ships = path.parent == BUILTIN
        try:
            pipelines = load(path, os.environ)
        except BadConfig as error:
            yield ListedPipeline(path.stem, path, None, error.problems[0], ships)
            continue
        for name, pipeline in pipelines.items():
            if name not in met:
                met.add(name)
                yield ListedPipeline(name, path, pipeline, None, ships)


def find(name: str) -> Pipeline:
    """Loads a pipeline by its name; raises BadInput if there is none, or its file is invalid."""
    file, colon, inner = name.rpartition(":") if ":" in name else (name, "", "")
    if Path(file).suffix in _SUFFIXES:
        return _pipeline_in_file(Path(file), inner if colon else None)
    # the files that may hold it by their names first: one that is broken should not hide another
    for path in sorted(files(), key=lambda path: path.stem != name):
        if path.stem == name or _may_hold(path, name):
            pipelines = load(path, os.environ)
            if name in pipelines:
                return pipelines[name]
    known = [one.name for one in listed()]
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise BadInput(f"there is no pipeline {name!r} in {FOLDER}/, {SEVERAL}, or among those that ship; {hint}")


def file_of(name: str) -> Path:
    """The file of a pipeline, valid or not, by the name of either; raises BadInput if there is none."""
    file = Path(name.rpartition(":")[0] or name)
    if file.suffix in _SUFFIXES or file.exists():
        return file
    return next((path for path in files() if path.stem == name), None) or find(name).path


def _pipeline_in_file(path: Path, name: str | None) -> Pipeline:
    pipelines = load(path, os.environ)
    if name is None and len(pipelines) == 1:
        return next(iter(pipelines.values()))
    if name is None:
        raise BadInput(f"{path} holds several pipelines: write {path}:NAME with one of {', '.join(pipelines)}")
    if name not in pipelines:
        raise BadInput(f"{path} has no pipeline {name!r}; it has: {', '.join(pipelines)}")
    return pipelines[name]


def _may_hold(path: Path, name: str) -> bool:
    """Whether a file may define a pipeline of this name."""
    try:
        return name in path.read_text(errors="replace")
    except OSError:
        return False
