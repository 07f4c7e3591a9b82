"""The code of a run on a hand: what is installed there if it is the same, else what the brain ships.

Nothing of the author's is imported to find out: this runs in the hand's own process. Shipped code is used only if the
hand was started with `--accept-code`; it is unpacked once, under its hash.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from weft.cluster.batches.batch_messages import BodyRef, CodeFile, SharedFacts, digest
from weft.cluster.batches.hand_side import HandBoard
from weft.cluster.batches.shipped_code import MOST_BYTES
from weft.cluster.tasks import HandSide
from weft.errors import BadInput
from weft.pipelines.pool.target import CallableTarget

MOST_UNPACKED_BYTES = 200 << 20
_MOST_FILES = 10_000


class PreparedCode(NamedTuple):
    """How the workers of a run import its function."""

    target: CallableTarget
    sys_path: list[str]
    cwd: Path | None


def prepare_code(facts: SharedFacts, side: HandSide, board: HandBoard) -> PreparedCode:
    """The function as this hand has it; BadInput, with the hand and the module, if it has not."""
    target = CallableTarget(facts.module, facts.name, facts.script)
    here = [str(Path.cwd()), *(one for one in sys.path if one)]
    trouble = first_trouble(facts.code, here)
    if trouble is None:
        script = str(Path(facts.script).absolute()) if facts.script is not None else None
        return PreparedCode(CallableTarget(facts.module, facts.name, script), here, None)
    why = f"hand {side.hand}: {trouble}"
    if facts.shipped is None:
        large = f"; its code has {facts.too_large:,} bytes and cannot be shipped, at most {MOST_BYTES:,} are" * bool(
            facts.too_large
        )
        raise BadInput(f"{why}{large}. Install the same there, or start the worker where it is")
    if not side.accept_code:
        raise BadInput(f"{why}. Install the same there, or start that worker with --accept-code")
    root = _unpacked(facts, side, board)
    script = str(root / facts.shipped.script) if facts.shipped.script is not None else target.script
    prepared = PreparedCode(CallableTarget(facts.module, facts.name, script), [str(root), *here], root)
    # what is not in the zip is of installed packages, and must be here
    if trouble := first_trouble([one for one in facts.code if one.module], prepared.sys_path):
        raise BadInput(f"hand {side.hand}: {trouble}. Install the same there")
    return prepared


def first_trouble(code: Sequence[CodeFile], path: Sequence[str]) -> str | None:
    """What is missing here, or another version; None if all is the same."""
    for one in code:
        found = _module_file(one, path) if one.module else Path(one.path)
        what = f"module {one.module!r}" if one.module else f"the file {one.path}"
        if found is None or not found.is_file():
            return f"{what} cannot be imported: it is not there" if one.module else f"{what} is not there"
        if digest(found.read_bytes()) != one.digest:
            return f"{what} is another version there ({found})"
    return None


def _module_file(one: CodeFile, path: Sequence[str]) -> Path | None:
    """Where the module is imported from; its parents are not imported for that."""
    top = one.module.partition(".")[0]
    try:
        spec = importlib.machinery.PathFinder.find_spec(top, list(path)) or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if "." not in one.module and not spec.submodule_search_locations:
        return Path(spec.origin) if spec.origin else None
    below = Path(*Path(one.path).parts[1:])
    places = [Path(place) / below for place in spec.submodule_search_locations or ()]
    return next((place for place in places if place.is_file()), None)


def _unpacked(facts: SharedFacts, side: HandSide, board: HandBoard) -> Path:
    """The folder with the shipped code, made if it is not there."""
    shipped = facts.shipped
    assert shipped is not None
    parent = side.folder.parent / "code"
    root = parent / shipped.digest
    if root.is_dir():
        return root
    data = board.get(BodyRef(None, f"code-{shipped.digest}", shipped.digest, shipped.size))
    parent.mkdir(mode=0o700, exist_ok=True)
    part = parent / f".{shipped.digest}.{os.getpid()}"
    try:
        unpack(data, part)
        part.rename(root)
    except OSError:
        if not root.is_dir():  # another process of this hand was first
            raise BadInput(f"hand {side.hand}: the run's code cannot be unpacked in {parent}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return root


def unpack(data: bytes, folder: Path) -> None:
    """Plain files below the folder, and nothing else."""
    folder.mkdir(mode=0o700)
    if len(data) > MOST_BYTES:
        raise BadInput(f"shipped code has {len(data):,} bytes, at most {MOST_BYTES:,} are taken")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if len(entries) > _MOST_FILES or sum(one.file_size for one in entries) > MOST_UNPACKED_BYTES:
            raise BadInput(f"shipped code unpacks to more than {MOST_UNPACKED_BYTES:,} bytes, or {_MOST_FILES:,} files")
        for one in entries:
            parts = Path(one.filename).parts
            if one.is_dir() or not parts or one.filename.startswith("/") or ".." in parts:
                raise BadInput(f"shipped code has an entry that is no file below it: {one.filename!r}")
            place = folder.joinpath(*parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(archive.read(one))
