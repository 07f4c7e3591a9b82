"""The failures of a crawl by cause, for `weft errors`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from weft.engine.loop.fetcher.verdict import refusal_of
from weft.engine.loop.stop import CALLBACK_ERROR
from weft.engine.user_code.calls import decode_output
from weft.records import Reason
from weft.store.index.query import Where
from weft.store.pages import PageStore

EXAMPLES = 3


class FailureCause(Struct, frozen=True):
    """Pages that have failed alike: a few of their URLs, and one's traceback."""

    cause: str
    count: int
    urls: list[str]
    traceback: str = ""


def failures(data_dirs: Sequence[Path], top: int) -> list[FailureCause]:
    """The most frequent causes. What was refused on purpose (robots.txt, scope, a limit) is none."""
    store = PageStore.open(data_dirs, read_only=True)
    try:
        counts = [(error, count) for error, count in store.stats(0).errors.items() if _is_failure(error)]
        counts.sort(key=lambda one: (not one[0].startswith(CALLBACK_ERROR), -one[1], one[0]))
        found = [_cause(store, error, count) for error, count in counts[:top]]
        by_status = {status: count for status, count in store.stats(0).statuses.items() if status >= 400}
        found += [_by_status(store, status, count) for status, count in sorted(by_status.items())][: top - len(found)]
        return found
    finally:
        store.abandon()


def _is_failure(error: str) -> bool:
    return not refusal_of(0, error) or error.startswith(Reason.UNKNOWN_OUTCOME)


def _cause(store: PageStore, error: str, count: int) -> FailureCause:
    rows = list(islice(store.rows(Where(error=error)), EXAMPLES))
    outputs = store.outputs_of([row.item for row in rows]) if error.startswith(CALLBACK_ERROR) else {}
    traces = (decode_output(output.data).traceback for output in outputs.values())
    return FailureCause(error, count, [row.url for row in rows], next(filter(None, traces), ""))


def _by_status(store: PageStore, status: int, count: int) -> FailureCause:
    rows = islice(store.rows(Where(status=status)), EXAMPLES)
    return FailureCause(f"HTTP {status}", count, [row.url for row in rows])
