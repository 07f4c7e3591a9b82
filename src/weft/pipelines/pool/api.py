"""The public interface: WorkerPool, and the Stream of its results, for `for` and for `async for`.

Invariant: however a stream ends (exhausted, closed, broken out of, interrupted, garbage) its workers end with it. A
Ctrl-C that arrives while the engine works is kept until the engine's state is sound again, then raised.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from weft.errors import BadInput
from weft.names import nearest
from weft.pipelines.pool import shared_config
from weft.pipelines.pool.contract import RunEngine, engine_named
from weft.pipelines.pool.durability.runs import ITEMS, RunDirectory
from weft.pipelines.pool.engine.run_request import RunRequest, WorkerView
from weft.pipelines.pool.events import Listener, PoolCounts
from weft.pipelines.pool.record import Result
from weft.pipelines.pool.settings import LOCAL, PoolSettings, item_logs, worker_count
from weft.pipelines.pool.target import CallableTarget, refuse_while_loading
from weft.pipelines.pool.values import ValueStore

_YIELD_EVERY = 100


class WorkerPool:
    """Runs a function over items in worker processes, and survives any failure of the function."""

    def __init__(
        self,
        function: Callable[..., Any] | str,
        *,
        workers: int | None = None,
        run_dir: str | Path | None = None,
        logs: bool | str | None = None,
        resume: bool = False,
        config: Mapping[str, Any] | None = None,
        engine: str = LOCAL,
        items_folder: str = ITEMS,
        values: ValueStore | None = None,
        callables: Sequence[str] = (),
        code_files: Sequence[str] = (),
        folders: Mapping[str, str] | None = None,
        engine_options: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`function(item, context)`, or its name as `module:function`. With a `run_dir` results are journalled, can be
        resumed, and items have logs: `logs` is "auto" (a file for each of up to 2,000 items, above that one for each
        worker), "each", "worker" or "off". `config` is a plain mapping that every worker gets
        once, as `context.config`; it is kept with the run. `engine` says what runs the items (contract.py), with its
        own `engine_options`; one that runs them on other machines needs the code of `callables`, which the function
        imports by name, and `code_files`, and must know which `folders` `config` names. The logs are in the folder
        `items_folder` of the run's. `values` keeps the values of results in place of the journal. The other settings
        are those of `PoolSettings`."""
        self._make_engine = engine_named(engine)
        self._target = CallableTarget.of(function)
        self._settings = _settings(worker_count(workers, engine), settings)
        self._directory = RunDirectory(Path(run_dir), items_folder) if run_dir is not None else None
        self._logs = item_logs(self._directory is not None if logs is None else logs)
        self._resume = resume
        self._values = values
        self._config = shared_config.encoded(config)
        self._code = (list(callables), list(code_files), dict(folders or {}), dict(engine_options or {}))
        self._listeners: list[Listener] = []
        if engine == LOCAL and engine_options:
            raise BadInput(
                f"{', '.join(engine_options)}: is for an engine on other machines, and this is {LOCAL!r}; name that "
                "engine, or leave it out"
            )
        if self._logs != "off" and self._directory is None:
            raise BadInput("logs need a run_dir to be kept in")

    def on_progress(self, listener: Listener) -> Listener:
        """Calls the listener with every Event of the runs to come."""
        self._listeners.append(listener)
        return listener

    def run(self, items: Iterable[Any]) -> list[Result]:
        """Runs all items, and returns their results in order."""
        with self._stream(items, ordered=True, max_ahead=None, total=None) as stream:
            return list(stream)

    async def run_async(self, items: Iterable[Any]) -> list[Result]:
        """The same without blocking the event loop."""
        stream = self._stream(items, ordered=True, max_ahead=None, total=None)
        return [result async for result in stream]

    def stream(self, items: Iterable[Any], *, ordered: bool = False, total: int | None = None) -> Stream:
        """Results as they come, or in the order of the items; the parent's memory stays the same however many."""
        return self._stream(items, ordered=ordered, max_ahead=self._settings.max_ahead, total=total)

    def _stream(self, items: Iterable[Any], *, ordered: bool, max_ahead: int | None, total: int | None) -> Stream:
        refuse_while_loading()
        if total is None and hasattr(items, "__len__"):
            total = len(items)  # type: ignore[arg-type]
        request = RunRequest(
            self._target, self._settings, self._directory, self._logs, self._resume, ordered, max_ahead, total,
            self._config, self._values, *self._code,
        )  # fmt: skip
        return Stream(self._make_engine(request, iter(items), list(self._listeners)))


def _settings(workers: int, given: dict[str, Any]) -> PoolSettings:
    known = {field.name for field in fields(PoolSettings)}
    for name in given.keys() - known:
        near = nearest(name, known)
        raise BadInput(f"a pool has no setting {name!r}" + (f"; did you mean {near!r}?" if near else ""))
    return PoolSettings(workers, **given)


class Stream:
    """Results of one run. Iterate it once, either way; leave it early with `close` or a `with` block."""

    def __init__(self, engine: RunEngine) -> None:
        self._engine = engine
        self._ready = engine.ready
        self._holds_interrupts = _interrupts.begin()
        self._given = 0

    def counts(self) -> PoolCounts:
        """The counts of finished items."""
        return self._engine.progress.counts()

    def workers(self) -> list[WorkerView]:
        """The current state of each worker."""
        return self._engine.view()

    def poll(self, timeout_s: float) -> Result | None:
        """The next result; None if the timeout is over or the stream has ended (see `finished`)."""
        engine = self._engine
        if engine.closed:
            return None
        if not engine.ready and not engine.finished:
            self._run_guarded(lambda: engine.step(timeout_s))
        if engine.ready:
            return engine.ready.popleft()
        if engine.finished:
            self._run_guarded(engine.finish)
            self._end()
        return None

    def waiting(self) -> Iterator[Result]:
        """The results that have arrived and were not returned yet, without waiting for more."""
        while self._ready:
            yield self._ready.popleft()

    @property
    def finished(self) -> bool:
        """Whether all results were returned, or the stream was closed."""
        return self._engine.closed

    def _run_guarded(self, work: Callable[[], None]) -> None:
        """Calls a function of the engine; if it raises, or Ctrl-C was pressed meanwhile, ends the run cleanly."""
        try:
            if not self._holds_interrupts or threading.current_thread() is not threading.main_thread():
                return work()
            with _interrupts:
                work()
        except KeyboardInterrupt:
            self.close()
            raise
        except BaseException:
            self._end()
            raise
        return None

    def _end(self) -> None:
        self._engine.close()
        if self._holds_interrupts:
            self._holds_interrupts = False
            _interrupts.end()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        if self._ready:
            return self._ready.popleft()
        while not self._engine.closed:
            result = self.poll(1.0)
            if result is not None:
                return result
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Result]:
        return self

    async def __anext__(self) -> Result:
        import asyncio

        self._given += 1
        try:
            if self._given % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            while not self._engine.closed:
                result = self.poll(0)
                if result is not None:
                    return result
                if not self._engine.closed:
                    await self._wait_for_work()
        except asyncio.CancelledError:
            self.close(0.0)
            raise
        raise StopAsyncIteration

    async def _wait_for_work(self) -> None:
        """Waits until the engine has something to do, without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        loop.add_reader(self._engine.fileno(), woken.set)
        timer = loop.call_later(self._engine.wait_s(), woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()
            loop.remove_reader(self._engine.fileno())

    def close(self, grace_s: float | None = None) -> None:
        """Stops the run early: items that run may finish within `grace_s`, the others are not started."""
        if self._engine.closed:
            return
        try:
            self._engine.stop(self._engine.request.settings.stop_grace if grace_s is None else grace_s)
        finally:
            self._end()
            self._engine.ready.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._end()


class _InterruptGuard:
    """Holds Ctrl-C back during a with block in the main thread, and raises KeyboardInterrupt at the end of it.

    One handler serves all streams and stays while there are any, as setting one costs more than a small batch; outside
    the block it does what Python's own does. A program with a handler of its own keeps it."""

    def __init__(self) -> None:
        self._is_inside = self._has_come = False
        self._streams = 0

    def begin(self) -> bool:
        """Registers a stream; False off the main thread, where signals are not handled."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if self._streams == 0 and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, handle_interrupt)
        self._streams += 1
        return True

    def end(self) -> None:
        """Unregisters a stream; with the last one Python's own handler is restored."""
        self._streams -= 1
        ours = signal.getsignal(signal.SIGINT) is handle_interrupt
        if self._streams == 0 and ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGINT."""
        if not self._is_inside:
            signal.default_int_handler(number, frame)
        self._has_come = True

    def __enter__(self) -> None:
        self._is_inside = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_inside = False
        if self._has_come:
            self._has_come = False
            raise KeyboardInterrupt


_interrupts = _InterruptGuard()


def handle_interrupt(number: int, frame: FrameType | None) -> None:
    """A signal handler that ends streams cleanly: raises KeyboardInterrupt when the engine's state is sound."""
    _interrupts.handle(number, frame)
