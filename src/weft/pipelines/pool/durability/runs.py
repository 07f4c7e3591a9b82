"""A run's directory: what a run leaves behind so that it can be resumed, checked and replayed.

logs/2026-02-04T10-30-45/
  run.json                    what was asked for (written by the command line)
  config                      what all items share (shared_config.py)
  journal                     every result (journal.py)
  items/NAME.worker-PID.log   a log for each item (item_log.py); a pipeline may call its items otherwise
  items/worker-PID.log        with many items, one for all of a worker's, and worker-PID.index
  worker-PID.log              what a worker printed while it imported the function
  quarantine/NAME.json        items that killed their workers, with all that is known, ready for a replay
  slots/                      the workers' shared memory during the run (slot.py); empty afterwards
  lock                        held by the parent, the fork server and the workers: a running run cannot be resumed
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import BadInput, Busy
from weft.files import is_locked, try_lock
from weft.pipelines.pool.record import Death, Result
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.pool.worker.item_log import safe_name
from weft.supervise.pool.owner import Owner, owner_of, sweep
from weft.telemetry import Log

ITEMS = "items"
_LOCK_PATIENCE_S = 2.0
_SWEEP_PATIENCE_S = 10.0
_log = Log("weft.pipelines")
_held_locks: set[int] = set()
"""The locks of this process."""


def _forget_locks() -> None:
    """Closes the locks in a process that the user's code has forked: it is not part of the run, and may outlive it."""
    while _held_locks:
        os.close(_held_locks.pop())


os.register_at_fork(after_in_child=_forget_locks)


class Quarantined(msgspec.Struct, frozen=True):
    """An item that was given up because workers died of it."""

    item_id: str | int
    target: CallableTarget
    error: str | None
    attempts: int
    death: Death | None
    log: str | None
    item: bytes
    """msgpack; in JSON it is base64."""

    def decoded(self) -> dict[str, Any]:
        """The decoded item."""
        return msgspec.msgpack.decode(self.item, type=dict[str, Any])


class RunDirectory:
    """The paths of one run, and the lock on it."""

    def __init__(self, path: Path, items: str = ITEMS) -> None:
        self.path = path.absolute()
        self.journal = self.path / "journal"
        self.items = self.path / items
        self.slots = self.path / "slots"
        self.quarantine = self.path / "quarantine"
        self.manifest = self.path / "run.json"
        self._lock_fd = -1
        self.used = False
        """Whether it was locked by an earlier run."""

    @classmethod
    def create(cls, root: Path, now: Callable[[], float] = time.time) -> RunDirectory:
        """A new run under the root, named by the time."""
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now()))
        for number in range(1, 1000):
            path = root / (stamp if number == 1 else f"{stamp}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise BadInput(f"{root} cannot hold runs: {error.strerror}") from None
            return cls(path)
        raise BadInput(f"{root} has a thousand runs of the same second")

    @classmethod
    def find(cls, root: Path, name: str) -> RunDirectory:
        """A run by its id under the root, or by its path."""
        for path in (root / name, Path(name)):
            if (path / "journal").is_file() or (path / "run.json").is_file():
                return cls(path)
        known = ", ".join(sorted(entry.parent.name for entry in root.glob("*/journal"))[-5:]) if root.is_dir() else ""
        raise BadInput(f"no run {name!r} in {root}" + (f"; the last ones: {known}" if known else ""))

    @property
    def run_id(self) -> str:
        """The run's id: the name of its directory."""
        return self.path.name

    def hold(self, owner: Owner | None = None) -> int:
        """Locks the run and creates its folders. The lock is held until the last process that inherited it has ended;
        processes that a dead owner left with it are ended first."""
        try:
            for place in (self.items, self.slots, self.quarantine):
                place.mkdir(parents=True, exist_ok=True)
            self.used = (self.path / "lock").exists()
            self._lock_fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"{self.path} cannot hold a run: {error.strerror}") from None
        if not self._try_lock(_LOCK_PATIENCE_S) and not self._lock_after_sweep():
            last = owner_of(self._lock_fd)
            self.release()
            raise Busy(self._busy_text(last))
        _held_locks.add(self._lock_fd)
        (owner or Owner.this_process()).sign(self._lock_fd)
        return self._lock_fd

    def _try_lock(self, patience_s: float) -> bool:
        """Locks the run; waits a moment, since the workers of a killed run need time to end."""
        return try_lock(self._lock_fd, patience_s)

    def _lock_after_sweep(self) -> bool:
        """Ends the processes that a dead owner has left, then locks the run."""
        last = owner_of(self._lock_fd)
        if last is None or last.alive or not (ended := sweep(last.mark)):
            return False
        _log.warning(f"run {self.run_id}: its process {last.pid} had gone; {ended} processes that it left were ended")
        return self._try_lock(_SWEEP_PATIENCE_S)

    def _busy_text(self, last: Owner | None) -> str:
        if last is None or last.alive:
            by = f", in process {last.pid}" if last is not None else ""
            return f"run {self.run_id} is still running{by}; its directory is {self.path}"
        return (
            f"run {self.run_id} is over, its process {last.pid} has gone, but something still has"
            f" {self.path / 'lock'} open (fuser lists it): end that and try again"
        )

    def is_running(self) -> bool:
        """Whether a process holds the lock now."""
        return is_locked(self.path / "lock")

    def release(self) -> None:
        """Releases the lock."""
        if self._lock_fd >= 0:
            _held_locks.discard(self._lock_fd)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def quarantine_item(self, target: CallableTarget, result: Result, payload: bytes) -> None:
        """Keeps a quarantined item."""
        kept = Quarantined(result.item_id, target, result.error, result.attempts, result.death, result.log, payload)
        path = self.quarantine / f"{safe_name(result.item_id)}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")

    def quarantined(self, item_id: str) -> Quarantined | None:
        """A quarantined item by its id."""
        try:
            kept = msgspec.json.decode((self.quarantine / f"{safe_name(item_id)}.json").read_bytes(), type=Quarantined)
            kept.decoded()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadInput(f"the quarantined item {item_id!r} of run {self.run_id} cannot be read: {error}") from None
        return kept
