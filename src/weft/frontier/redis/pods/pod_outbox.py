"""One process's messages to other pods: a file of numbered messages, and how far each pod has received them.

A message is in the file before the page that it comes from is finished, and stays there until the pod cannot lose it:

    put        in the file, which survives a kill; synced before the page's batch is acknowledged (`sync`)
    delivered  the pod's server has it, and may lose it: Redis replies before it writes its append-only file
    safe       the server's append-only file has it: it survives a kill of the server
    forgotten  safe for KEEP_S: the server has synced that file since, so it survives a power cut too

The server keeps the last number of each sender next to what that message changed, and loses both or none. A message
names the one that must have arrived before it, so a server that lost some accepts none out of order: everything from
there on is delivered again. It drops a repeated message by its number.

    waiting   pod, number -> message        numbers   pod -> the last one used        meta   boot, least (number)
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from weft.errors import Damaged, is_damage, writing
from weft.frontier.durability.journal import sync_log
from weft.frontier.requests import boot_id

_TABLES = """
CREATE TABLE IF NOT EXISTS waiting (pod INTEGER, number INTEGER, message BLOB, PRIMARY KEY (pod, number));
CREATE TABLE IF NOT EXISTS numbers (pod INTEGER PRIMARY KEY, last INTEGER);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT);
"""
_REMEDY = "it holds URLs on their way to other pods: restore it from a backup, or start over with `fresh=True`"
KEEP_S = 5.0  # a server syncs every second, two at most


class Behind(Exception):
    """The pod has lost a delivered message: all messages since must be delivered again."""


class Arrived(NamedTuple):
    """The state of one sender's messages in a pod's server."""

    last: int  # the number of the last one that it has
    run: str  # the server's run id, which changes at each start
    written: int  # bytes in its append-only file
    unwritten: int  # bytes in its buffer for that file


class Sent:
    """The state of the messages to one pod: which are delivered, and which are safe."""

    def __init__(self, kept: list[int]) -> None:
        self._kept = deque(kept)
        self._unsafe = deque(kept)
        self._delivered = 0
        self._ages: deque[tuple[float, int]] = deque()  # when the messages up to a number became safe
        self._safe = 0
        # Run id, message number, file size: once that run's append-only file has that size, it holds that message.
        self._mark: tuple[str, int, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether a message must still be delivered."""
        return bool(self._kept) and self._kept[-1] > self._delivered

    @property
    def waiting(self) -> int:
        """How many messages must still be delivered."""
        return sum(number > self._delivered for number in self._kept) if self.waits else 0

    @property
    def unsafe(self) -> int:
        """How many messages the pod does not have yet, or may lose."""
        return len(self._unsafe)

    @property
    def after(self) -> int:
        """The number of the message that must have arrived before the next; 0: none."""
        return self._delivered if self._kept and self._kept[0] <= self._delivered else 0

    def is_due(self, now: float) -> bool:
        """Whether `update` could make a message safe or forgotten."""
        is_old = bool(self._ages) and self._ages[0][0] <= now - KEEP_S
        return is_old or (bool(self._unsafe) and self.after > 0)

    def put(self, number: int) -> None:
        """A message was put into the file."""
        self._kept.append(number)
        self._unsafe.append(number)

    def delivered(self, number: int) -> None:
        """The pod's server has accepted a message."""
        self._delivered = number

    def rewind(self) -> None:
        """Makes all messages undelivered: the pod's server has lost some."""
        self._delivered = 0
        self._unsafe = deque(self._kept)
        self._ages.clear()
        self._safe, self._mark = 0, None

    def update(self, arrived: Arrived, now: float) -> int:
        """Applies the server's state; returns the number up to which messages can be forgotten, or 0.

        Behind: the server has lost messages, `rewind`.
        """
        if arrived.last < self.after:
            raise Behind
        mark = (arrived.run, arrived.last, arrived.written + arrived.unwritten)
        if self._mark is None or self._mark[0] != arrived.run or not arrived.unwritten:
            self._mark = mark
        _, number, end = self._mark
        if arrived.written >= end:
            self._mark = mark
            self._is_safe(number, now)
        return self._forget(now)

    def _is_safe(self, number: int, now: float) -> None:
        while self._unsafe and self._unsafe[0] <= number:
            self._unsafe.popleft()
        if number > self._safe:
            self._safe = number
            self._ages.append((now, number))

    def _forget(self, now: float) -> int:
        number = 0
        while self._ages and self._ages[0][0] <= now - KEEP_S:
            number = self._ages.popleft()[1]
        while self._kept and self._kept[0] <= number:
            self._kept.popleft()
        return number


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise Damaged(path, f"is damaged ({error})", _REMEDY) from error
        raise


class FileOutbox:
    """The file of messages. A kill loses no saved message; `sync` makes them safe against a power cut, too."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        with _undamaged(path):
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
            self._last: dict[int, int] = dict(self._db.execute("SELECT pod, last FROM numbers"))
            for pod, last in self._db.execute("SELECT pod, max(number) FROM waiting GROUP BY pod").fetchall():
                self._last[pod] = max(last, self._last.get(pod, 0))
            self._least = self._least_number(wall())

    def _least_number(self, wall: float) -> int:
        """After a reboot, numbers continue from the time of day: a power cut may have lost the last used ones."""
        meta = dict(self._db.execute("SELECT name, value FROM meta"))
        if meta.get("boot") != boot_id():
            meta = {"boot": boot_id(), "least": str(int(wall * 1000) * 1000)}
            with writing(self._path), self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
        return int(meta["least"])

    def put(self, messages: Mapping[int, bytes]) -> dict[int, int]:
        """Saves a message for each of these pods in one transaction; returns their numbers."""
        numbers = {pod: max(self._last.get(pod, 0), self._least) + 1 for pod in messages}
        rows = [(pod, numbers[pod], message) for pod, message in messages.items()]
        with writing(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?)", rows)
        self._last |= numbers
        return numbers

    def numbers(self, pod: int) -> list[int]:
        """The numbers of all messages to a pod, in order."""
        rows = self._db.execute("SELECT number FROM waiting WHERE pod = ? ORDER BY number", (pod,))
        return [int(number) for (number,) in rows]

    def all(self, pod: int) -> Iterator[tuple[int, bytes]]:
        """All messages to a pod, in order."""
        yield from self._db.execute("SELECT number, message FROM waiting WHERE pod = ? ORDER BY number", (pod,))

    def next(self, pod: int, after: int) -> tuple[int, bytes] | None:
        """The first message to a pod after a number."""
        row = self._db.execute(
            "SELECT number, message FROM waiting WHERE pod = ? AND number > ? ORDER BY number LIMIT 1", (pod, after)
        ).fetchone()
        return (int(row[0]), bytes(row[1])) if row else None

    def forget(self, numbers: Mapping[int, int]) -> None:
        """Deletes the messages up to a number for each pod."""
        with writing(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for pod, number in numbers.items():
                self._db.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (pod, self._last[pod]))
                self._db.execute("DELETE FROM waiting WHERE pod = ? AND number <= ?", (pod, number))

    def sync(self) -> None:
        """Makes saved messages safe against a power cut; may be called from any thread."""
        sync_log(self._path)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
