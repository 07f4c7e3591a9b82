"""A run's directory: what a run leaves behind so that it can be resumed, looked at and replayed.

logs/2026-02-04T10-30-45/
  run.json                    what was asked for (written by the command line)
  journal                     every result (journal.py)
  items/NAME.worker-PID.log   a log for each item (itemlog.py)
  worker-PID.log              what a worker printed while it imported the function
  quarantine/NAME.json        items that brought their workers down, with all that is known, ready for a replay
  slots/                      the workers' shared memory while the run goes on (slot.py); empty afterwards
  lock                        held by the parent, the keeper and the workers: nobody resumes a run that is alive
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import BadInput, Busy
from weft.pipelines.itemlog import safe_name
from weft.pipelines.record import Death, Result
from weft.pipelines.target import Target

_LOCK_PATIENCE_S = 2.0


class Quarantined(msgspec.Struct, frozen=True):
    """An item that was given up because workers died of it."""

    item_id: str | int
    target: Target
    error: str | None
    attempts: int
    death: Death | None
    log: str | None
    item: bytes
    """msgpack; in JSON it is base64."""

    def decoded(self) -> dict[str, Any]:
        """The item as it came in."""
        return msgspec.msgpack.decode(self.item, type=dict[str, Any])


class RunDirectory:
    """The paths of one run, and the lock on it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.journal = self.path / "journal"
        self.items = self.path / "items"
        self.slots = self.path / "slots"
        self.quarantine = self.path / "quarantine"
        self.manifest = self.path / "run.json"
        self._lock_fd = -1

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
            if (path / "journal").is_file():
                return cls(path)
        known = ", ".join(sorted(entry.parent.name for entry in root.glob("*/journal"))[-5:]) if root.is_dir() else ""
        raise BadInput(f"no run {name!r} in {root}" + (f"; the last ones: {known}" if known else ""))

    @property
    def run_id(self) -> str:
        """Its name."""
        return self.path.name

    def hold(self) -> int:
        """Locks the run and makes its places. The lock lasts until the last process that inherited it has gone."""
        try:
            for place in (self.items, self.slots, self.quarantine):
                place.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"{self.path} cannot hold a run: {error.strerror}") from None
        self._wait_for_lock()
        return self._lock_fd

    def _wait_for_lock(self) -> None:
        """A killed run's workers need a moment to go."""
        until_s = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                return fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until_s:
                    self.release()
                    raise Busy(f"run {self.run_id} is still going on; its directory is {self.path}") from None
                time.sleep(0.02)

    def release(self) -> None:
        """Gives the lock back."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def put_away(self, target: Target, result: Result, payload: bytes) -> None:
        """Keeps a quarantined item."""
        kept = Quarantined(result.item_id, target, result.error, result.attempts, result.death, result.log, payload)
        path = self.quarantine / f"{safe_name(result.item_id)}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")

    def quarantined(self, item_id: str) -> Quarantined | None:
        """A quarantined item by its id."""
        try:
            return msgspec.json.decode((self.quarantine / f"{safe_name(item_id)}.json").read_bytes(), type=Quarantined)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput(f"the quarantined item {item_id!r} of run {self.run_id} cannot be read: {error}") from None
