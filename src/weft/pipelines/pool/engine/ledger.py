"""Source, journal and order of one run: what every engine of a pool keeps, wherever the items run.

Invariants: every item of the source is in `intake` once; a result reaches `ready` only after it is in the journal; a
resume gives what is in the journal before anything else; after `close` the run's lock is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from weft.pipelines.pool import events, shared_config
from weft.pipelines.pool.durability.history import EarlierResults, LeftElsewhere
from weft.pipelines.pool.durability.journal import ResultJournal
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.run_request import RunRequest
from weft.pipelines.pool.engine.task import Intake
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.record import Result
from weft.pipelines.pool.settings import AUTO_EACH
from weft.supervise.pool.owner import Owner
from weft.telemetry import Log

_REPLAY_AT_ONCE = 500
_log = Log("weft.pipelines")


class RunLedger:
    """The source, journal and results of one run, for any engine."""

    def __init__(
        self,
        request: RunRequest,
        items: Iterator[Any],
        listeners: list[events.Listener],
        elsewhere: LeftElsewhere | None = None,
    ) -> None:
        """`elsewhere`: results of an earlier attempt that are neither in the journal nor in slots."""
        self.request = request
        self._left_elsewhere = elsewhere
        self.progress = PoolProgress(listeners, request.total)
        self.owner = Owner.this_process()
        self.inherited: list[int] = []
        """Descriptors that processes of the run keep open: its lock."""
        self.config = request.config
        self._replay: Iterator[Result] | None = None
        self._to_close = ExitStack()
        try:
            self._open(items)
        except BaseException:
            self.close()
            raise

    def _open(self, items: Iterator[Any]) -> None:
        request = self.request
        journal = history = None
        if request.directory is not None:
            self.inherited.append(request.directory.hold(self.owner))
            self._to_close.callback(request.directory.release)
            values = request.values
            journal = ResultJournal(request.directory.journal, before_sync=values.sync if values is not None else None)
            self._to_close.callback(journal.close)
            history = EarlierResults(request.directory, journal, values, self._left_elsewhere)
            self._check_history(history, journal)
        self.delivery = ResultDelivery(self.progress, journal, history, request.max_ahead, request.values)
        self.delivery.ordered = request.ordered
        self.intake = Intake(items, history.done if history is not None and request.resume else None)
        if history is not None and request.resume:
            self._replay = self._replay_results(history)

    def _check_history(self, history: EarlierResults, journal: ResultJournal) -> None:
        request, directory = self.request, self.request.directory
        assert directory is not None
        if not request.resume:
            history.refuse_if_any()
        self.config = shared_config.kept_in(directory.path, request.config, resume=request.resume)
        if request.resume and journal.new and directory.used:
            _log.warning(f"{directory.journal} was missing or empty: every item of the run is done again")

    def _replay_results(self, history: EarlierResults) -> Iterator[Result]:
        if not self.request.ordered:
            return history.replay()
        history.index()
        return iter(())

    @property
    def ready(self) -> deque[Result]:
        """The results that the user may get."""
        return self.delivery.ready

    @property
    def waiting(self) -> bool:
        """Whether results wait to be journalled, or to be given to the user."""
        return bool(self.delivery.staged or self.ready)

    @property
    def replaying(self) -> bool:
        """Whether results of an earlier run are still to be given."""
        return self._replay is not None

    def replay_some(self) -> None:
        """Delivers some more results of an earlier run."""
        assert self._replay is not None
        for _ in range(_REPLAY_AT_ONCE):
            result = next(self._replay, None)
            if result is None:
                self._replay = None
                return
            self.delivery.resumed(result)

    def stop_replay(self) -> None:
        """Delivers no more results of an earlier run, because the run stops."""
        self._replay = None

    @property
    def shares_logs(self) -> bool:
        """Whether each worker has one log for all of its items: by the settings, or because there are many items."""
        if self.request.logs != "auto":
            return self.request.logs == "worker"
        return (self.request.total or 0) > AUTO_EACH or self.intake.position > AUTO_EACH

    def sum_up(self) -> None:
        """Sets the total number of items once the source is exhausted."""
        if self.intake.exhausted:
            # a source may leave out items that are done: their results are counted all the same
            left_out = self.progress.resumed - self.intake.known
            self.progress.total = self.intake.position + max(0, left_out)

    def close(self) -> None:
        """Closes the journal, and releases the lock."""
        self._to_close.close()
