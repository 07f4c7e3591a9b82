"""`with weft.Engine("data") as engine:` many crawls in one engine, from Python.

The engine runs in a process of its own, so that a page that kills its parser costs only that page. A handle on a folder
whose engine runs already talks to that one; else it starts one, keeps it alive, and ends it. All verbs can be repeated:
where the engine dies under one, it is started again and the verb sent once more.

The handle itself reads stored pages from the index; the engine only notifies it when there is something new.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from weft.engine.crawls.settings import (
    check_deadline,
    config_of,
    crawl_settings_of,
    differing_keys,
    engine_settings_of,
    storable_settings,
)
from weft.engine.folder import EngineFolder
from weft.engine.machine import check_clock
from weft.engine.model import Blocked, BrowserStatus, CrawlEvent, CrawlSnapshot, CrawlState, Seeded, check_name
from weft.engine.parsing.extraction import extraction_of
from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.engine.process.engine_process import START_S, EngineProcess
from weft.engine.process.host import HostSpec
from weft.engine.stored.reader import EngineReader
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import BadInput, Busy, WeftError

if TYPE_CHECKING:
    from weft.store.export.job import ExportResult

SEEDS_AT_ONCE = 5_000
CALLS_AT_ONCE = 32  # of all threads that share a handle: replies wait for the disk, and one sync serves them together
WAIT_S = 5.0  # without a notice for this long a reader polls the index


class Engine:
    """Many crawls on one politeness clock. Settings are the configuration's keys, or their flags' names."""

    def __init__(self, data_dir: str | os.PathLike[str], **settings: Any) -> None:
        """Opens the engine of a folder. `settings` are the engine's own, and the defaults of its crawls.

        If an engine already runs there, its settings apply, and those given here must be the same.
        """
        self.data_dir = Path(os.fspath(data_dir))
        shared = storable_settings(engine_settings_of(settings))
        config_of(shared)  # raises for a bad setting here, not in a process that will not start
        EngineFolder([self.data_dir]).open_identity()
        self._given_settings = self._settings = shared
        self._socket = socket_path(self.data_dir)
        self._lock = threading.Lock()  # protects the process and the idle connections
        self._process: EngineProcess | None = None
        self._idle_connections: list[Connection] = []  # one thread at a time uses a connection
        self._connection_slots = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self._is_closed = False
        self._idle_connections.append(self._connect())

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the engine's process, if this handle has started it."""
        return self._process.pid if self._process is not None else None

    @property
    def failure(self) -> WeftError | None:
        """Why this handle stopped restarting the engine's process; None while it keeps it running."""
        return self._process.failure if self._process is not None else None

    def close(self) -> None:
        """Closes the handle. An engine that it started ends, and every crawl keeps its state.

        Calls of other threads that are under way are finished first.
        """
        self._is_closed = True
        for _ in range(CALLS_AT_ONCE):
            self._connection_slots.acquire()
        self._close_idle_connections()
        self._connection_slots.release(CALLS_AT_ONCE)
        self._drop_process()

    # ── verbs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(
        self,
        name: str,
        seeds: str | Sequence[str] = (),
        *,
        weight: float = 1.0,
        deadline: float | datetime | None = None,
        in_flight: int | None = None,
        keep_open: bool = False,
        **settings: Any,
    ) -> CrawlSnapshot:
        """Opens a crawl, which is durable when this returns; if it is open with the same settings, returns that one.

        `weight`: its share where several crawls compete. `deadline`: a time at which it ends, whatever it has.
        `in_flight`: the most transfers at a time. `keep_open`: it waits for more seeds until `close_seeds`.
        """
        check_name(name)
        urls_, first = _list_of_seeds(seeds), SEEDS_AT_ONCE
        own = storable_settings(crawl_settings_of(settings))
        if own.get("extract"):
            extraction_of(config_of({"extract": own["extract"]}).extract)  # raises for bad rules here, by their paths
        at = check_deadline(deadline, time.time())
        found, _ = self._call_engine(
            "open", name=name, seeds=urls_[:first], settings=own, deadline=at, weight=weight, in_flight=in_flight,
            more=len(urls_) > first, keep_open=keep_open,
        )  # fmt: skip
        standing = msgspec.convert(found, CrawlSnapshot)
        if len(urls_) > first and standing.state is not CrawlState.ENDED:
            for _ in self._seed_rest(name, urls_, first):
                pass
            return self.standing(name)
        return standing

    def seed(self, name: str, urls: str | Sequence[str]) -> Seeded:
        """Adds URLs to a crawl, each once; the result lists those that are refused, and why."""
        given = _list_of_seeds(urls)
        found = [self._seed_first_piece(name, given, 0), *self._seed_rest(name, given, SEEDS_AT_ONCE)]
        refused = {url: why for some in found for url, why in some.refused.items()}
        return Seeded(sum(some.new for some in found), sum(some.known for some in found), refused)

    def _seed_first_piece(self, name: str, given: list[str], start: int) -> Seeded:
        end = start + SEEDS_AT_ONCE
        return msgspec.convert(
            self._call_engine("seed", name=name, seeds=given[start:end], more=end < len(given)), Seeded
        )

    def _seed_rest(self, name: str, given: list[str], start: int) -> Iterator[Seeded]:
        """Sends the seeds from `start` on, in pieces; a crawl that a limit has ended meanwhile needs no more."""
        for at in range(start, len(given), SEEDS_AT_ONCE):
            try:
                yield self._seed_first_piece(name, given, at)
            except BadInput:
                if self.standing(name).state is not CrawlState.ENDED:
                    raise
                return

    def close_seeds(self, name: str) -> CrawlSnapshot:
        """Announces that no more seeds come: a crawl that was opened with `keep_open` ends when nothing is left."""
        return self._call_for_snapshot("close_seeds", name=name)

    def edit(self, name: str, *, weight: float | None = None, deadline: Any = False, **settings: Any) -> CrawlSnapshot:
        """Changes patterns, delay, limits, weight or deadline of a running crawl; a deadline of None removes it."""
        if deadline is not False:
            deadline = check_deadline(deadline, time.time())
        own = storable_settings(crawl_settings_of(settings))
        return self._call_for_snapshot("edit", name=name, settings=own, weight=weight, deadline=deadline)

    def pause(self, name: str) -> CrawlSnapshot:
        """Pauses a crawl: it requests nothing until `resume`, and nothing is lost. Its deadline still applies; its
        running time stops.
        """
        return self._call_for_snapshot("pause", name=name)

    def resume(self, name: str) -> CrawlSnapshot:
        """Continues a paused crawl."""
        return self._call_for_snapshot("resume", name=name)

    def cancel(self, name: str) -> CrawlSnapshot:
        """Ends a crawl now: transfers in flight are aborted, queued URLs are dropped."""
        return self._call_for_snapshot("cancel", name=name)

    def forget(self, name: str) -> None:
        """Deletes everything of a crawl; a running one is cancelled first. The name is free at once."""
        number = self.standing(name).id
        self._call_engine("forget", crawls=[(name, number)])

    def standing(self, name: str) -> CrawlSnapshot:
        """A snapshot of one crawl."""
        return self._call_for_snapshot("standing", name=name)

    def standings(self) -> list[CrawlSnapshot]:
        """Snapshots of all crawls, in the order in which they were opened."""
        return msgspec.convert(self._call_engine("standings"), list[CrawlSnapshot])

    def blocked(self) -> list[Blocked]:
        """The sites whose breakers are open, and until when."""
        return msgspec.convert(self._call_engine("blocked"), list[Blocked])

    def browsers(self) -> BrowserStatus:
        """The state of the browsers that render pages, and why none can now."""
        return msgspec.convert(self._call_engine("browsers"), BrowserStatus)

    def wait(self, name: str, timeout: float | None = None, *, ends: ReadingEnd | None = None) -> CrawlSnapshot:
        """Returns when a crawl has ended; TimeoutError if it has not after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        for notice in self._wait_for_news(name, until, ends):
            standing = msgspec.convert(notice, CrawlSnapshot) if notice is not None else self.standing(name)
            if standing.state is CrawlState.ENDED:
                return self.standing(name)
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"the crawl {name!r} has not ended in {timeout:g} s")
        raise WeftError("the engine was closed")

    def export(self, name: str, format: str, out: str | Path | BinaryIO, **spec: Any) -> ExportResult:  # noqa: A002
        """Writes a crawl's pages, as they are now, to a path, to `-` (standard output) or to an open file.

        `format`: jsonl, json, csv, markdown, parquet, warc or cdxj; `order`: see `ExportRequest` and docs/export.md.
        """
        from weft.engine.stored.exporting import export_pages
        from weft.store.export.request import ExportRequest

        number = self.standing(name).id
        with EngineReader(self.data_dir) as reader:
            settings = self._settings | reader.settings(number)
        for key, value in spec.items():
            if key not in ExportRequest.__dataclass_fields__:
                raise BadInput(f"export: no setting {key!r}")
            spec[key] = tuple(value) if isinstance(value, list) else value
        rules = settings.get("extract") or ()
        return export_pages([self.data_dir], name, ExportRequest(format, **spec), out, crawl=number, rules=rules)

    # ── readers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def events(
        self,
        name: str | None = None,
        after: int = 0,
        *,
        follow: bool = True,
        progress: bool = False,
        ends: ReadingEnd | None = None,
    ) -> Iterator[CrawlEvent]:
        """The events of one crawl, or of all, after a cursor: numbered, each once, in order.

        Follows a crawl to its end, and all crawls until the engine is closed; without `follow` it ends after the
        existing events. With `progress` there are snapshots in between, which have no number. `ends`: lets another
        thread end the iteration.
        """
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise BadInput(f"after: {after!r} is not accepted; use the cursor of an event, or 0")
        if name is not None:
            yield from self._read_events(self.standing(name), after, follow, progress, ends)
            return
        with EngineReader(self.data_dir) as reader:
            for notice in self._wait_for_news(None, ends=ends) if follow else (None,):
                del notice
                for event in reader.all_events(after):
                    after = event.cursor
                    yield event

    def _read_events(
        self, standing: CrawlSnapshot, after: int, follow: bool, progress: bool, ends: ReadingEnd | None
    ) -> Iterator[CrawlEvent]:
        name = standing.name
        with EngineReader(self.data_dir) as reader:
            for notice in self._wait_for_news(name, ends=ends) if follow else (None,):
                ended = False
                for event in reader.events(standing.id, name, after):
                    after = event.number
                    ended = ended or event.state is CrawlState.ENDED
                    yield event
                snapshot = msgspec.convert(notice, CrawlSnapshot) if notice is not None else None
                goes_on = snapshot is not None and snapshot.id == standing.id and snapshot.state is not CrawlState.ENDED
                if ended or (not goes_on and follow and self._has_ended(name, standing.id, after)):
                    return
                if progress and snapshot is not None:
                    yield CrawlEvent(crawl=name, kind="progress", cursor=after, at=time.time(), standing=snapshot)

    def _has_ended(self, name: str, number: int, after: int) -> bool:
        """Whether no more events can come: the crawl has ended, or is forgotten."""
        try:
            standing = self.standing(name)
        except BadInput:
            return True
        return standing.id != number or (standing.state is CrawlState.ENDED and standing.number <= after)

    def pages(
        self, name: str, after: int = 0, *, follow: bool = True, ends: ReadingEnd | None = None
    ) -> Iterator[CrawledPage]:
        """A crawl's stored pages in the order of their commits; `page.number` is the cursor to continue from."""
        number = self.standing(name).id
        with EngineReader(self.data_dir) as reader:
            for event in self.events(name, after, follow=follow, ends=ends):
                if event.kind == "page" and (page := reader.page(number, event.number)) is not None:
                    yield page

    # ── the connection to the engine ───────────────────────────────────────────────────────────────────────────────

    def _call_for_snapshot(self, verb: str, **arguments: object) -> CrawlSnapshot:
        return msgspec.convert(self._call_engine(verb, **arguments), CrawlSnapshot)

    def _call_engine(self, verb: str, **arguments: object) -> Any:
        with self._connection_slots:
            while True:
                if self._is_closed:
                    raise WeftError("the engine was closed")
                with self._lock:
                    connection = self._idle_connections.pop() if self._idle_connections else self._connect()
                is_usable = False
                try:
                    result = connection.call(verb, **arguments)
                    is_usable = True
                    return result
                except EngineGone:
                    self._close_idle_connections()  # the other idle connections led to the same dead engine
                except WeftError:
                    is_usable = True  # the engine has answered, or nothing was sent
                    raise
                finally:
                    if is_usable:
                        self._idle_connections.append(connection)
                    else:
                        connection.close()

    def _close_idle_connections(self) -> None:
        """Closes the connections that no call uses."""
        with self._lock:
            while self._idle_connections:
                self._idle_connections.pop().close()

    def _connect(self) -> Connection:
        """Connects to the running engine; if there is none, this handle starts one and keeps it running."""
        until = time.monotonic() + START_S
        while self._process is None:
            try:
                return self._join_running_engine(Connection(self._socket))
            except EngineGone:
                check_clock(config_of(self._settings).politeness, lambda what: warnings.warn(what, stacklevel=5))
                spec = HostSpec(str(self.data_dir), self._settings)
                self._process = EngineProcess(spec, self._socket)
            try:
                connection = self._process.wait_until_ready(START_S)
            except Busy:  # another handle's engine has the folder, and does not listen yet
                self._drop_process()
                if time.monotonic() >= until:
                    raise
                continue
            if not self._process.has_started(connection.pid):  # both have started one; the other came first
                self._drop_process()
                return self._join_running_engine(connection)
            return connection
        return self._process.wait_until_ready(START_S)

    def _drop_process(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _join_running_engine(self, connection: Connection) -> Connection:
        """Connects to an engine that another handle runs; refuses if the settings wanted here differ from its own."""
        settings = connection.call("settings")
        if different := differing_keys(settings, self._given_settings):
            connection.close()
            raise BadInput(
                f"the engine of {self.data_dir} runs with other settings ({', '.join(different)}): leave them out, "
                "or close the handle that runs it"
            )
        self._settings = settings
        return connection

    def _wait_for_news(
        self, name: str | None, until: float | None = None, ends: ReadingEnd | None = None
    ) -> Iterator[Any]:
        """Yields once at once, and again whenever there may be something new, until the engine is closed."""
        connection: Connection | None = None
        ends = ends or ReadingEnd()
        try:
            while not self._is_closed and not ends.is_over:
                try:
                    if connection is None:
                        with self._lock:
                            connection = self._connect()
                        ends.use_connection(connection)
                        yield connection.call("subscribe", name=name) if name is not None else None
                        if name is None:
                            connection.call("subscribe")
                            yield None
                    left = WAIT_S if until is None else max(0.0, min(WAIT_S, until - time.monotonic()))
                    yield connection.notice(left)
                except EngineGone:
                    if connection is not None:
                        connection.close()
                    connection = None
        finally:
            if connection is not None:
                connection.close()


class ReadingEnd:
    """Lets one thread end the reading of another."""

    def __init__(self) -> None:
        self.is_over = False
        self._connection: Connection | None = None

    def use_connection(self, connection: Connection) -> None:
        """Registers the connection at which the reader waits from now on."""
        self._connection = connection
        if self.is_over:
            connection.hang_up()

    def end_reading(self) -> None:
        """Ends the reader: it gets nothing more, and returns."""
        self.is_over = True
        if self._connection is not None:
            self._connection.hang_up()


def _list_of_seeds(seeds: str | Sequence[str]) -> list[str]:
    try:
        found = [seeds] if isinstance(seeds, str) else list(seeds)
    except TypeError:
        raise BadInput(f"seeds: {seeds!r} is no list of URLs") from None
    for seed in found:
        if not isinstance(seed, str):
            raise BadInput(f"seeds: {seed!r} is not a URL")
    return found
