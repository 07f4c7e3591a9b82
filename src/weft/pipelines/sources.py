"""Where a pipeline's items come from: a callable, or a file of them (.jsonl, .json, .csv).

What is wrong with one item becomes a BadItem in its place; what is wrong with the source itself is one error before any
work, or, if it shows later, ends the run with its own message.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from weft.errors import BadInput, WeftError
from weft.pipelines.pool.engine.task import BadItem
from weft.pipelines.pool.failure import describe
from weft.pipelines.pool.items import check_items, count_lines, read_items, with_id
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.spec.definition import ItemsSpec

_MAX_JSON_BYTES = 1 << 30


class ItemSource(NamedTuple):
    """The items, and their number if it is known."""

    items: Iterator[Any]
    total: int | None


def open_source(spec: ItemsSpec) -> ItemSource:
    """Opens the items of a pipeline; raises BadInput if that fails."""
    if spec.source is not None:
        return _items_of_callable(spec.source, spec.settings)
    assert spec.file is not None
    path = Path(spec.file)
    check_items(path)
    opened = {
        ".jsonl": _items_of_jsonl,
        ".ndjson": _items_of_jsonl,
        ".json": _items_of_json,
        ".csv": _items_of_csv,
    }.get(path.suffix)
    if opened is None:
        raise BadInput(f"the items file {path} must be .jsonl, .json or .csv")
    return opened(path)


def _items_of_callable(name: str, settings: dict[str, Any]) -> ItemSource:
    try:
        items = CallableTarget.of(name).load()(settings)
        return ItemSource(_iterate_guarded(iter(items), name), len(items) if hasattr(items, "__len__") else None)
    except WeftError:
        raise
    except Exception as error:
        raise BadInput(f"the source {name} gives no items: {describe(error)}") from None


def _iterate_guarded(items: Iterator[Any], name: str) -> Iterator[Any]:
    try:
        yield from items
    except WeftError:
        raise
    except Exception as error:
        raise WeftError(f"the source {name} failed: {describe(error)}; what is done is kept") from error


def _items_of_jsonl(path: Path) -> ItemSource:
    def items() -> Iterator[Any]:
        with path.open("rb") as file:
            yield from read_items(file)

    return ItemSource(items(), count_lines(path) if path.is_file() else None)


def _items_of_json(path: Path) -> ItemSource:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise BadInput(f"the items file {path} is larger than 1 GiB: write it as .jsonl, one item on a line")
        items = msgspec.json.decode(path.read_bytes(), type=list[Any])
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"the items file {path} must be a JSON list of objects: {error}") from None
    return ItemSource(map(with_id, items), len(items))


def _items_of_csv(path: Path) -> ItemSource:
    def items() -> Iterator[Any]:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            try:
                for row in rows:
                    extra = row.pop(None, None)
                    yield (
                        BadItem(f"line {rows.line_num}", "the row has more cells than the header")
                        if extra
                        else with_id(row)
                    )
            except (csv.Error, UnicodeDecodeError) as error:
                raise WeftError(f"the items file {path} cannot be read after line {rows.line_num}: {error}") from None

    with path.open("rb") as file:
        head = file.readline(1 << 20).decode(errors="replace")
    if not {"id", "url"} & {*next(csv.reader([head.lstrip("\ufeff")]), [])}:
        raise BadInput(f"the items file {path} has no column `id`, and no `url` to take its place")
    return ItemSource(items(), None)
