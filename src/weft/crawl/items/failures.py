"""Groups the failures of a crawl by cause, for `weft errors`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from weft.crawl.folder import CrawlFolder
from weft.crawl.items.processed import read_state
from weft.engine.loop.fetcher.verdict import refusal_of
from weft.engine.loop.stop import CALLBACK_ERROR
from weft.engine.user_code.again import has_come_again
from weft.engine.user_code.calls import CallResult, decode_output
from weft.errors import unreadable
from weft.files import replace_file
from weft.records import Reason, Row
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore

EXAMPLES = 3
_CLOSING = "closing.json"  # beside the crawl's settings
_AT_END = "at the end of the crawl: "  # `closed` of the spider, or `close_spider` of a pipeline
_ROWS_TOGETHER = 200


class FailureCause(Struct, frozen=True):
    """Pages that failed for the same reason: their number, some URLs, and one traceback."""

    cause: str
    count: int
    urls: list[str]
    traceback: str = ""


def failure_causes(data_dirs: Sequence[Path], top: int) -> list[FailureCause]:
    """The most frequent causes, without failures that a later visit has resolved. Deliberate refusals (robots.txt,
    scope, a limit) are not failures."""
    store = PageStore.open(data_dirs, read_only=True)
    try:
        now, ever = store.current().kinds, store.stats(0).errors
        of_callbacks = {error for error in ever if error.startswith(CALLBACK_ERROR)}
        counts = Counter[str]()
        for (_, error), count in now.items():
            if error and error not in of_callbacks and _is_failure(error):
                counts[error] += count
        for error in of_callbacks:
            if count := _count_unresolved(
                store, error, ever[error], sum(n for (_, kind), n in now.items() if kind == error)
            ):
                counts[error] = count
        ordered = sorted(counts.items(), key=lambda one: (one[0] not in of_callbacks, -one[1], one[0]))
        causes = [_cause_of_error(store, error, count) for error, count in ordered[:top]]
        by_status = Counter[int]()
        for (status, _), count in now.items():
            by_status[status] += count if status >= 400 else 0
        causes += [_cause_of_status(store, status, count) for status, count in sorted(by_status.items()) if count]
        return [*_closing_failures(data_dirs), *_pipeline_failures(data_dirs), *causes][:top]
    finally:
        store.abandon()


def keep_closing(data_dirs: Sequence[Path], result: CallResult) -> None:
    """Records what the user's code raised when its crawl ended, until it has ended without that."""
    path = CrawlFolder(data_dirs).own_folder / _CLOSING
    if result.error:
        replace_file(path, msgspec.json.encode(FailureCause(_AT_END + result.error, 1, [], result.traceback)))
    else:
        path.unlink(missing_ok=True)


def has_failed_at_end(data_dirs: Sequence[Path]) -> bool:
    """Whether the user's code raised something when its crawl ended last."""
    return bool(_closing_failures(data_dirs))


def _closing_failures(data_dirs: Sequence[Path]) -> list[FailureCause]:
    path = CrawlFolder(data_dirs).own_folder / _CLOSING
    try:
        return [msgspec.json.decode(path.read_bytes(), type=FailureCause)]
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error, "delete it: the log has the error, too") from None


def _pipeline_failures(data_dirs: Sequence[Path]) -> list[FailureCause]:
    lost = read_state(data_dirs).lost.items()
    return [FailureCause(f"item pipeline: {cause}", loss.count, [], loss.traceback) for cause, loss in lost]


def _count_unresolved(store: PageStore, error: str, ever: int, now: int) -> int:
    """How many pages with a failed callback were not processed again since. Several callbacks may have requested a URL,
    and only one of its rows is the current one: if the two counts differ, each row is checked."""
    return now if ever == now else sum(1 for _ in _unresolved_rows(store, error))


def _unresolved_rows(store: PageStore, error: str) -> Iterator[Row]:
    rows = store.rows(RowFilter(error=error))
    while some := list(islice(rows, _ROWS_TOGETHER)):
        outputs = store.outputs_of([row.item for row in some])
        yield from (row for row in some if not has_come_again(store, row, outputs.get(row.item)))


def _is_failure(error: str) -> bool:
    return not refusal_of(0, error) or error.startswith(Reason.UNKNOWN_OUTCOME)


def _cause_of_error(store: PageStore, error: str, count: int) -> FailureCause:
    is_callback = error.startswith(CALLBACK_ERROR)
    rows = list(islice(_unresolved_rows(store, error) if is_callback else store.rows(RowFilter(error=error)), EXAMPLES))
    outputs = store.outputs_of([row.item for row in rows]) if is_callback else {}
    traces = (decode_output(output.data).traceback for output in outputs.values())
    return FailureCause(error, count, [row.url for row in rows], next(filter(None, traces), ""))


def _cause_of_status(store: PageStore, status: int, count: int) -> FailureCause:
    rows = islice(store.rows(RowFilter(status=status)), EXAMPLES)
    return FailureCause(f"HTTP {status}", count, [row.url for row in rows])
