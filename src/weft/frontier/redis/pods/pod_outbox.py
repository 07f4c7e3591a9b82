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

_CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS waiting (pod INTEGER, number INTEGER, message BLOB, PRIMARY KEY (pod, number));
CREATE TABLE IF NOT EXISTS numbers (pod INTEGER PRIMARY KEY, last INTEGER);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT);
"""
_REMEDY = "it holds URLs on their way to other pods: restore it from a backup, or start over with `fresh=True`"
UNSAFE_S = 5.0  # a server syncs every second, two at most


class MessageLost(Exception):
    """The pod has lost a delivered message: all messages since must be delivered again."""


class ArrivalState(NamedTuple):
    """The state of one sender's messages in a pod's server."""

    last: int  # the number of the last one that it has
    run: str  # the server's run id, which changes at each start
    written: int  # bytes in its append-only file
    unwritten: int  # bytes in its buffer for that file


class DeliveryState:
    """The state of the messages to one pod: which are delivered, and which are safe."""

    def __init__(self, kept: list[int]) -> None:
        self._stored_numbers = deque(kept)
        self._unsafe_numbers = deque(kept)
        self._last_delivered = 0
        self._safe_since: deque[tuple[float, int]] = deque()  # when the messages up to a number became safe
        self._last_safe = 0
        # Run id, message number, file size: once that run's append-only file has that size, it holds that message.
        self._write_mark: tuple[str, int, int] | None = None

    @property
    def has_undelivered(self) -> bool:
        """Whether a message must still be delivered."""
        return bool(self._stored_numbers) and self._stored_numbers[-1] > self._last_delivered

    @property
    def undelivered_messages(self) -> int:
        """How many messages must still be delivered."""
        return sum(number > self._last_delivered for number in self._stored_numbers) if self.has_undelivered else 0

    @property
    def unsafe_messages(self) -> int:
        """How many messages the pod does not have yet, or may lose."""
        return len(self._unsafe_numbers)

    @property
    def required_predecessor(self) -> int:
        """The number of the message that must have arrived before the next; 0: none."""
        return self._last_delivered if self._stored_numbers and self._stored_numbers[0] <= self._last_delivered else 0

    def is_due(self, now: float) -> bool:
        """Whether `update` could make a message safe or forgotten."""
        is_old = bool(self._safe_since) and self._safe_since[0][0] <= now - UNSAFE_S
        return is_old or (bool(self._unsafe_numbers) and self.required_predecessor > 0)

    def add_message(self, number: int) -> None:
        """A message was put into the file."""
        self._stored_numbers.append(number)
        self._unsafe_numbers.append(number)

    def mark_delivered(self, number: int) -> None:
        """The pod's server has accepted a message."""
        self._last_delivered = number

    def mark_all_undelivered(self) -> None:
        """Makes all messages undelivered: the pod's server has lost some."""
        self._last_delivered = 0
        self._unsafe_numbers = deque(self._stored_numbers)
        self._safe_since.clear()
        self._last_safe, self._write_mark = 0, None

    def apply_arrival(self, arrived: ArrivalState, now: float) -> int:
        """Applies the server's state; returns the number up to which messages can be forgotten, or 0.

        MessageLost: the server has lost messages, `mark_all_undelivered`.
        """
        if arrived.last < self.required_predecessor:
            raise MessageLost
        mark = (arrived.run, arrived.last, arrived.written + arrived.unwritten)
        if self._write_mark is None or self._write_mark[0] != arrived.run or not arrived.unwritten:
            self._write_mark = mark
        _, number, end = self._write_mark
        if arrived.written >= end:
            self._write_mark = mark
            self._mark_safe(number, now)
        return self._drop_old_messages(now)

    def _mark_safe(self, number: int, now: float) -> None:
        while self._unsafe_numbers and self._unsafe_numbers[0] <= number:
            self._unsafe_numbers.popleft()
        if number > self._last_safe:
            self._last_safe = number
            self._safe_since.append((now, number))

    def _drop_old_messages(self, now: float) -> int:
        number = 0
        while self._safe_since and self._safe_since[0][0] <= now - UNSAFE_S:
            number = self._safe_since.popleft()[1]
        while self._stored_numbers and self._stored_numbers[0] <= number:
            self._stored_numbers.popleft()
        return number


@contextmanager
def _report_damage(path: Path) -> Iterator[None]:
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
        with _report_damage(path):
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_CREATE_TABLES)
            self._last_numbers: dict[int, int] = dict(self._db.execute("SELECT pod, last FROM numbers"))
            for pod, last in self._db.execute("SELECT pod, max(number) FROM waiting GROUP BY pod").fetchall():
                self._last_numbers[pod] = max(last, self._last_numbers.get(pod, 0))
            self._least_next_number = self._least_number(wall())

    def _least_number(self, wall: float) -> int:
        """After a reboot, numbers continue from the time of day: a power cut may have lost the last used ones."""
        meta = dict(self._db.execute("SELECT name, value FROM meta"))
        if meta.get("boot") != boot_id():
            meta = {"boot": boot_id(), "least": str(int(wall * 1000) * 1000)}
            with writing(self._path), self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
        return int(meta["least"])

    def save_messages(self, messages: Mapping[int, bytes]) -> dict[int, int]:
        """Saves a message for each of these pods in one transaction; returns their numbers."""
        numbers = {pod: max(self._last_numbers.get(pod, 0), self._least_next_number) + 1 for pod in messages}
        rows = [(pod, numbers[pod], message) for pod, message in messages.items()]
        with writing(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?)", rows)
        self._last_numbers |= numbers
        return numbers

    def message_numbers(self, pod: int) -> list[int]:
        """The numbers of all messages to a pod, in order."""
        rows = self._db.execute("SELECT number FROM waiting WHERE pod = ? ORDER BY number", (pod,))
        return [int(number) for (number,) in rows]

    def all_messages(self, pod: int) -> Iterator[tuple[int, bytes]]:
        """All messages to a pod, in order."""
        yield from self._db.execute("SELECT number, message FROM waiting WHERE pod = ? ORDER BY number", (pod,))

    def next_message(self, pod: int, after: int) -> tuple[int, bytes] | None:
        """The first message to a pod after a number."""
        row = self._db.execute(
            "SELECT number, message FROM waiting WHERE pod = ? AND number > ? ORDER BY number LIMIT 1", (pod, after)
        ).fetchone()
        return (int(row[0]), bytes(row[1])) if row else None

    def delete_messages(self, numbers: Mapping[int, int]) -> None:
        """Deletes the messages up to a number for each pod."""
        with writing(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for pod, number in numbers.items():
                self._db.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (pod, self._last_numbers[pod]))
                self._db.execute("DELETE FROM waiting WHERE pod = ? AND number <= ?", (pod, number))

    def sync(self) -> None:
        """Makes saved messages safe against a power cut; may be called from any thread."""
        sync_log(self._path)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
