"""Links the data dirs of one crawl: each of several has a file with the paths of all of them, in their order.

    DATA/dirs.json    the crawl's id, the index of this data dir, and the paths of all

A command that gets one of them, or several in any order, finds all. Each path is stored relative to the data dir, so
that data dirs that were moved together are found, and as an absolute path.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.files import replace_file

NAME = "dirs.json"


class _DataDirs(msgspec.Struct, frozen=True):
    """The contents of the file."""

    crawl_id: str
    index: int  # of this data dir
    near: list[str]  # paths of all of them, relative to this one
    far: list[str]


def record_siblings(data_dirs: Sequence[Path], crawl_id: str) -> None:
    """Writes the files, if there are several data dirs and the files are not current."""
    if len(data_dirs) == 1:
        return
    far = [str(path.resolve()) for path in data_dirs]
    for index, path in enumerate(data_dirs):
        known = _DataDirs(crawl_id, index, [os.path.relpath(one, far[index]) for one in far], far)
        if _read_file(path) != known:
            replace_file(path / NAME, msgspec.json.encode(known))


def all_data_dirs(given: Sequence[str | Path]) -> list[Path]:
    """Every data dir of the crawl that the given ones belong to, in order; raises BadInput if one is not found."""
    dirs = [Path(path) for path in given]
    known = _read_file(dirs[0])
    if known is None:
        return dirs
    own, unnamed = dict[int, Path](), list[Path]()
    for path in dirs:
        other = _read_file(path)
        if other is None and any(path.glob("index-*.db")):
            unnamed.append(path)
        elif other is None or other.crawl_id != known.crawl_id:
            raise BadInput(
                f"{path}: is not a data dir of the crawl in {dirs[0]}, which has {len(known.far)}: leave it out"
            )
        else:
            own[other.index] = path
    free = [index for index in range(len(known.far)) if index not in own]
    if len(unnamed) == len(free):  # their files are lost or damaged: they are the missing ones, in the order given
        own.update(zip(free, unnamed, strict=True))
    return [own.get(index) or _locate_data_dir(dirs[0], known, index) for index in range(len(known.far))]


def _locate_data_dir(start: Path, known: _DataDirs, index: int) -> Path:
    for path in (Path(os.path.normpath(start / known.near[index])), Path(known.far[index])):
        other = _read_file(path)
        if other is not None and (other.crawl_id, other.index) == (known.crawl_id, index):
            _check_is_no_copy(start, known.index, path, other)
            return path
    raise BadInput(
        f"{start}: data dir {index + 1} of {len(known.far)} of its crawl was {known.far[index]}, and is not there now; "
        "if it was moved, give all data dirs"
    )


def _check_is_no_copy(start: Path, index: int, path: Path, other: _DataDirs) -> None:
    """Raises BadInput if the located data dir belongs to another folder than `start`, which is a copy of that
    folder."""
    for back in (Path(os.path.normpath(path / other.near[index])), Path(other.far[index])):
        mine = _read_file(back)
        if mine is not None and (mine.crawl_id, mine.index) == (other.crawl_id, index):
            if back.samefile(start):
                return
            raise BadInput(f"{start}: is a copy of {back}, and {path} belongs to that: give all data dirs of the copy")


def _read_file(path: Path) -> _DataDirs | None:
    try:
        return msgspec.json.decode((path / NAME).read_bytes(), type=_DataDirs)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
