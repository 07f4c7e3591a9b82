"""`for page in weft.crawl(seeds, max_pages=100)`: a crawl as a Python iterator.

The crawl runs as `weft crawl` does, in a process of its own; pages are read back from the store as they are committed,
so the yielded pages are exactly the stored ones. Leaving the loop stops the crawl.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Unpack

from weft.config import keys, load, own_names, was_given
from weft.crawl.keywords import Settings
from weft.crawl.start import Prepared, prepare
from weft.crawl.yielded import YieldedPages
from weft.engine.loop.progress import CrawlStatus
from weft.engine.stored.stored_page import CrawledPage, read_page
from weft.engine.user_code.page import Page
from weft.engine.user_code.sources import import_name_of, is_imported
from weft.errors import BadConfig, BadInput, NothingStored
from weft.names import answer
from weft.store.pages import PageStore

COMMITTED_WITHIN_S = 1.0  # a page is counted when it is stored, and committed shortly after


def crawl(
    seeds: str | Sequence[str] = (),
    *,
    data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    config: str | os.PathLike[str] | None = None,
    on_page: Callable[[Page], Any] | str | None = None,
    **settings: Unpack[Settings],
) -> Iterator[CrawledPage]:
    """Runs `weft.crawl`, which says what the parameters are."""
    given = given_settings(settings, data_dir)
    if on_page is not None:
        given["on_page"] = on_page if isinstance(on_page, str) else import_name_of(on_page)
    typed = [seeds] if isinstance(seeds, str) else list(seeds)
    return _crawl_pages(typed, given, None if config is None else os.fspath(config))


def given_settings(
    settings: Mapping[str, Any], data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
) -> dict[str, Any]:
    """The settings of a call; raises BadConfig for an unknown name. `data_dir` may be one or several."""
    if is_imported():
        raise BadInput(
            "a crawl is started while the file of its spider is imported: put the call under "
            "`if __name__ == '__main__':`"
        )
    own, given = own_names(keys()), dict[str, Any](settings)
    if unknown := [f"no setting {name!r}{answer(name, own, str)}" for name in given if name not in own]:
        raise BadConfig(unknown)
    if data_dir is not None:
        if "data_dirs" in given:
            raise BadConfig(["data_dir and data_dirs are the same setting: give one of them"])
        given["data_dirs"] = [data_dir] if isinstance(data_dir, str | os.PathLike) else list(data_dir)
    return given


def prepared_for(stack: ExitStack, seeds: list[str], settings: dict[str, Any], config_file: str | None) -> Prepared:
    """Prepares a crawl to run; it is closed with the stack, also when the program ends."""
    # A program may end while it still holds the iterator: the crawl must stop then, too, and the position must be
    # stored.
    atexit.register(stack.close)
    stack.callback(atexit.unregister, stack.close)
    # Defaults of a program: no metrics port, since a program may run many crawls, and a temporary folder. A resumed
    # crawl keeps the port that it was started with.
    loaded, flags = load(config_file, flags=settings, is_judged=False), dict[str, Any]()
    if not loaded.config.run.resume and not was_given(loaded.origins, "prometheus_port"):
        flags["prometheus_port"] = 0
    if not was_given(loaded.origins, "data_dirs"):
        flags["data_dirs"] = [stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-"))]
    prepared = prepare(seeds, settings | flags, config_file)
    stack.callback(prepared.close)
    return prepared


def _crawl_pages(seeds: list[str], settings: dict[str, Any], config_file: str | None) -> Iterator[CrawledPage]:
    with ExitStack() as stack:
        prepared = prepared_for(stack, seeds, settings, config_file)
        folder, resume = prepared.folder, prepared.loaded.config.run.resume
        yield from _yield_pages(prepared, stack, YieldedPages.of(folder.data_dirs, resume=resume))


def run_beside(stack: ExitStack, prepared: Prepared, news: StoredPagesSignal) -> Callable[[], None]:
    """Runs a crawl in a thread; the returned function waits for its end, and raises its error."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            prepared.orchestrator.run(news.notify, is_watched=False)
        except BaseException as error:
            failure.append(error)
        finally:
            news.end()

    thread = threading.Thread(target=run, name="crawl", daemon=True)  # a program's end does not wait for it
    thread.start()
    stack.callback(thread.join)
    stack.callback(prepared.orchestrator.stop)

    def finish() -> None:
        thread.join()
        if failure:
            raise failure[0]

    return finish


def _yield_pages(prepared: Prepared, stack: ExitStack, yielded: YieldedPages) -> Iterator[CrawledPage]:
    news = StoredPagesSignal()
    finish = run_beside(stack, prepared, news)
    store = _open_store(prepared, news)
    if store is not None:
        stack.callback(store.abandon)
        stack.callback(yielded.write)
        yield from _committed_pages(store, news, yielded)
    finish()
    if (outcome := prepared.outcome()).is_nothing:
        warnings.warn("\n".join(outcome.message_lines()), NothingStored, stacklevel=3)


class StoredPagesSignal:
    """Signals that more pages may be stored, from the crawl's status: the index is read only when there is something
    new."""

    def __init__(self) -> None:
        self._has_changed = threading.Event()
        self._pages_reported = 0
        self._unread_since = 0.0
        self.has_ended = False

    def notify(self, status: CrawlStatus) -> None:
        """Called by the orchestrator with the status, several times a second."""
        now = time.monotonic()
        if status.pages != self._pages_reported:
            self._pages_reported, self._unread_since = status.pages, now + COMMITTED_WITHIN_S
        if now < self._unread_since:
            self._has_changed.set()

    def end(self) -> None:
        """Signals the end of the crawl."""
        self.has_ended = True
        self._has_changed.set()

    def wait(self) -> None:
        """Waits until there is something new, or the crawl has ended."""
        self._has_changed.wait()
        if not self.has_ended:
            self._has_changed.clear()


def _open_store(prepared: Prepared, news: StoredPagesSignal) -> PageStore | None:
    """Opens the store as soon as the crawl has created its index; None if the crawl ended before."""
    while True:
        news.wait()
        ended = news.has_ended
        try:
            return PageStore.open(prepared.folder.data_dirs, read_only=True)
        except BadInput:
            if ended:
                return None


def _committed_pages(store: PageStore, news: StoredPagesSignal, yielded: YieldedPages) -> Iterator[CrawledPage]:
    """Yields new pages in the order of their commits, until the crawl has ended and all are yielded."""
    while True:
        ended = news.has_ended
        for row in yielded.new_rows(store):
            if 200 <= row.status < 300 and (page := read_page(store.read_page(row))) is not None:
                yield page
        if ended:
            return
        news.wait()
