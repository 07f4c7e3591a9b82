"""The items of `pages`: the place of each stored page, of a Weft crawl, of WARC files, or of folders of them.

An item is small: the worker reads the page itself; `rendered` is where a browser's form of it is. `mark` is what the
record is known by (its id or digest), so that a cached result is not used for another record at the same place. A
stretch of a file that cannot be read is an item, too, and fails with what is wrong there: so it is counted and named
like every other failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from weft.errors import BadInput
from weft.records import Row
from weft.store.errors import StoreError
from weft.store.export.source import ExportSource
from weft.store.warc.foreign_warc import FoundRecord, UnreadableStretch, find_records
from weft.store.warc.warc_content import content_of
from weft.store.warc.warc_records import RENDERED

Item: TypeAlias = dict[str, Any]
Stretch: TypeAlias = FoundRecord | UnreadableStretch

WARC_SUFFIXES = (".warc", ".warc.gz")
_ROWS_TOGETHER = 1000
_PAGE_RECORD_TYPES = ("response", "resource", "conversion")
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})")


class _EngineIdentity(msgspec.Struct):
    """The field that is read from an engine.json."""

    data_dirs: int = 1


def items(settings: Mapping[str, Any]) -> Iterator[Item]:
    """Yields the stored pages of the paths under `from`, in the order of the paths and of their records."""
    paths = paths_of(settings)
    check_paths(paths)
    return _items_of_paths(paths)


def paths_of(settings: Mapping[str, Any]) -> list[Path]:
    """The paths in the setting `from`: one, or a list."""
    given = settings.get("from")
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list) or not several or not all(isinstance(path, str) and path for path in several):
        raise BadInput(
            "pages has nothing to read: name a crawl's data dir, a WARC file or a folder of them, with "
            "`--set items.from=PATH`"
        )
    return [Path(path) for path in several]


def check_paths(paths: Iterable[Path]) -> None:
    """Raises BadInput for a missing path, a file that cannot hold pages, or a folder that holds none."""
    for path in paths:
        if not path.exists():
            raise BadInput(f"{path} is not there: name a crawl's data dir, a WARC file or a folder of them")
        if path.is_dir() and not is_data_dir(path) and not _files_below(path):
            raise BadInput(f"{path} holds no pages: no crawl, and no file that ends in {' or '.join(WARC_SUFFIXES)}")
        if not path.is_dir():
            _check_file(path)


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            content_of(path, file)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def is_data_dir(path: Path) -> bool:
    """Whether a folder is a data dir of a Weft crawl, with its index."""
    return path.is_dir() and ((path / "engine.json").exists() or any(path.glob("index-*.db")))


def _items_of_paths(paths: list[Path]) -> Iterator[Item]:
    prefixed = len(paths) > 1
    left = list(enumerate(paths))
    while left:
        number, path = left.pop(0)
        prefix = f"{number}/" if prefixed else ""
        if is_data_dir(path):
            others = _other_data_dirs(path, [other for _, other in left])
            del left[: len(others)]
            yield from _items_of_crawl([path, *others], prefix)
        elif path.is_dir():
            for file in _files_below(path):
                yield from _items_of_file(file, f"{prefix}{file.relative_to(path)}")
        else:
            yield from _items_of_file(path, f"{prefix}{path.name}")


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name.endswith(WARC_SUFFIXES) and path.is_file())


def _other_data_dirs(home: Path, after: list[Path]) -> list[Path]:
    """The other data dirs of a crawl, which must follow its first one."""
    try:
        count = msgspec.json.decode((home / "engine.json").read_bytes(), type=_EngineIdentity).data_dirs
    except FileNotFoundError:
        count = 1
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{home / 'engine.json'} cannot be read: {error}") from None
    if len(after) < count - 1 or not all(map(is_data_dir, after[: count - 1])):
        raise BadInput(
            f"the crawl in {home} has {count} data dirs: name all of them, in the order in which it was started"
        )
    return after[: count - 1]


def _items_of_crawl(data_dirs: list[Path], prefix: str) -> Iterator[Item]:
    """The pages that represent their URLs, in the order in which they were found."""
    source = ExportSource(data_dirs)
    try:
        rows = source.rows()
        while some := list(islice(rows, _ROWS_TOGETHER)):
            pages = [row for _, row in some if row.warc_file and 200 <= row.status < 300]
            current = source.current(pages)
            for row in pages:
                if row.item in current:
                    path = source.warc_path(row)
                    yield {
                        "id": f"{prefix}{row.warc_file}:{row.warc_offset}",
                        "path": str(path), "offset": row.warc_offset, "inside": 0, "mark": row.digest,
                        **_rendering_position(row),
                    }  # fmt: skip
    finally:
        source.close()


def _rendering_position(row: Row) -> Item:
    """The position of a page's rendering, behind its response; the mark has its time, too: the response's digest says
    nothing about what scripts have drawn.
    """
    if not row.rendered:
        return {}
    return {"rendered": [row.warc_offset + row.warc_length, 0], "mark": f"{row.digest} {row.fetched_at}"}


def _items_of_file(path: Path, name: str) -> Iterator[Item]:
    """The pages of a WARC file. A file that cannot be read is an item, too: it must not end a run over many others."""
    try:
        yield from _items_of_records(path, name)
    except (BadInput, StoreError) as error:
        detail = str(error).removeprefix(str(path)).lstrip(": ")
        yield {"id": f"{name}:unreadable", "path": str(path), "damage": detail}


def _items_of_records(path: Path, name: str) -> Iterator[Item]:
    for record, following in _pairs_with_next(find_records(path)):
        if isinstance(record, UnreadableStretch):
            yield {"id": f"{name}:{record.offset}:damage", "path": str(path), "damage": record.detail}
        elif _is_page(record):
            place = record.place
            yield {
                "id": f"{name}:{place.offset}" + (f"+{place.inside}" if place.inside else ""),
                "path": str(path), "offset": place.offset, "inside": place.inside, "mark": _rendering_mark(record),
                **_rendering_in(following, record),
            }  # fmt: skip


def _pairs_with_next(records: Iterable[Stretch]) -> Iterator[tuple[Stretch, Stretch | None]]:
    """Each record with the one after it. An error comes after all records that were found before it."""
    held: Stretch | None = None
    try:
        for record in records:
            if held is not None:
                yield held, record
            held = record
    except StoreError:
        if held is not None:
            yield held, None
        raise
    if held is not None:
        yield held, None


def _rendering_in(following: Stretch | None, response: FoundRecord) -> Item:
    """The position of the response's rendering, if the record behind it is one."""
    if not isinstance(following, FoundRecord) or not following.headers.get("warc-target-uri", "").startswith(RENDERED):
        return {}
    if following.headers.get("warc-concurrent-to") != response.headers.get("warc-record-id"):
        return {}
    return {"rendered": [following.place.offset, following.place.inside]}


def _is_page(record: FoundRecord) -> bool:
    """Whether a record holds the content of a URL: a good response, a resource, or text that was made of one."""
    kind, url = record.headers.get("warc-type", ""), record.headers.get("warc-target-uri", "").lstrip("<")
    if kind not in _PAGE_RECORD_TYPES or not url.startswith(("http://", "https://")):
        return False
    status = _STATUS_LINE.match(record.start)
    return kind != "response" or (status is not None and 200 <= int(status[1]) < 300)


def _rendering_mark(record: FoundRecord) -> str:
    headers = record.headers
    return headers.get("warc-record-id") or headers.get("warc-payload-digest") or headers["content-length"]
