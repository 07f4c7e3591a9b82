"""Files that must survive a kill, and locks between processes: one way to replace a file, one way to lock one.

A file that another process may delete is locked by `open_locked`: between opening and locking it, it may be deleted.
Each process locks such a file before it deletes it, so a lock on a file that its path still names is a lock on a file
that stays.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from weft.errors import writing

_PAUSE_S = 0.02
_LOG_WAIT_S = 30.0


def replace_file(
    path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600, owned_as_folder: bool = False
) -> None:
    """Replaces a file atomically, or leaves the old one; with `durable` a power cut cannot undo it. With
    `owned_as_folder` the owner of its folder can read it, also if root writes it.
    """
    beside = path.with_name(f"{path.stem}.tmp")
    with writing(path):
        # An existing file of this name may be a link to another location: it is deleted, and never written through.
        beside.unlink(missing_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "wb") as file:
                if owned_as_folder:
                    _own_as_folder(fd, path)
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(fd)
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def make_lock_file(path: Path) -> None:
    """Creates the file for `locked`, with the owner of its folder."""
    with suppress(FileExistsError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _own_as_folder(fd, path)
        finally:
            os.close(fd)


def _own_as_folder(fd: int, path: Path) -> None:
    """What root has just created in another user's folder becomes that user's. Only for a file that this process has
    created: the folder's owner may have put a link to any file at an existing name.
    """
    folder = path.parent.stat()
    if os.geteuid() == 0 and folder.st_uid != 0:
        os.fchown(fd, folder.st_uid, folder.st_gid)


def have_temporary_folder(own: Path) -> None:
    """If no temporary folder is writable, as with a read-only root, this process and its children use `own`."""
    import tempfile

    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        folder = own.resolve() / "tmp"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ["TMPDIR"] = str(folder)


def sync_folder(folder: Path) -> None:
    """Puts the names in a folder on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def try_lock(fd: int, wait_s: float = 0.0) -> bool:
    """Locks an open file exclusively, trying for `wait_s` seconds; False if another process has the lock."""
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(min(_PAUSE_S, wait_s))
        else:
            return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file that is made for it and never deleted; waits for it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_locked(path: Path) -> bool:
    """Whether a process has the lock of a file; False if the file does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released at once: who wants the lock then tries for longer
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def open_locked(path: Path, flags: int, mode: int = 0o600, *, wait: bool = True) -> int:
    """Opens a file with an exclusive lock on it; opens it again if it was deleted or replaced before the lock was held.

    BlockingIOError if another process has the lock and `wait` is False.
    """
    while True:
        fd = os.open(path, flags | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def is_at(fd: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def altered_layout(db: sqlite3.Connection, create: str) -> str:
    """The name of a table or index of an SQLite file that these statements do not create as it is; empty if there is
    none. SQLite keeps no checksums: a flipped bit in a name would be a table that is missing, and is made again, empty.
    """
    select = "SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_master WHERE sql IS NOT NULL"
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(create)
        altered = {*db.execute(select)} - {*new.execute(select)}
    return min((name.decode(errors="replace") for name, _ in altered), default="")


def use_write_ahead_log(db: sqlite3.Connection, wait_s: float = _LOG_WAIT_S) -> None:
    """Switches an SQLite file to a write-ahead log, which it keeps from then on.

    Of several processes that do this to a new file at the same time SQLite refuses some at once, whatever the
    connection's time limit is, because they would wait for each other: this function tries again.
    """
    until = time.monotonic() + wait_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
