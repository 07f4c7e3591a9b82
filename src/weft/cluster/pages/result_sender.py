"""Sends a task's results by a thread, each as it comes, so that a broker that is silent holds up nothing else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from weft.cluster.tasks import hand_clock
from weft.telemetry import Log

AGAIN_S = 0.25
Result = TypeVar("Result")
log = Log("weft.cluster.pages.result_sender")


class ResultSender(Generic[Result]):
    """`send` gives False for what cannot be sent now: it is tried again, until the deadline (`hand_clock`)."""

    def __init__(self, send: Callable[[Result], bool], deadline: float) -> None:
        self._send = send
        self._deadline = deadline
        self._come: queue.SimpleQueue[tuple[Result] | None] = queue.SimpleQueue()
        self._error: Exception | None = None  # that has ended the thread
        self._thread = threading.Thread(target=self._run, name="weft-results", daemon=True)
        self._thread.start()

    def put(self, result: Result) -> None:
        """Hands it over."""
        self._come.put((result,))

    def finish(self) -> None:
        """Waits until all is sent, or the deadline is over; raises what has ended the thread."""
        self._come.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        unsent, is_over = list[Result](), False
        try:
            while not is_over or unsent:
                with suppress(queue.Empty):
                    come = self._come.get(timeout=AGAIN_S if unsent else None)
                    is_over = is_over or come is None
                    unsent += come or ()
                unsent = [one for one in unsent if not self._send(one)]
                if hand_clock() >= self._deadline:
                    break
        except Exception as error:
            self._error = error
        if unsent:
            log.warning("results could not be sent until the deadline", results=len(unsent))
