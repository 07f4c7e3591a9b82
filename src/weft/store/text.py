"""The text store: `content/NUMBER/ab/<sha256 of url>.txt` in the page's data dir, one file for each URL of a crawl.

Must stay true: a file under its final name is complete (it is written to a temporary file and renamed); writing one
twice gives the same file; it exists before its page's row is committed. A URL visited again has its latest text.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from weft.store.errors import UnreadableData, convert_write_errors

TEXT_FOLDER = "content"


def text_path(url: str, crawl: int) -> str:
    """The path of a URL's text in its data dir; each crawl has a folder of its number."""
    name = sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{TEXT_FOLDER}/{crawl}/{name[:2]}/{name}.txt"


def read_text(data_dir: Path, url: str, crawl: int) -> str | None:
    """The text of a URL, or None if none is stored; Unreadable if it is damaged."""
    path = data_dir / text_path(url, crawl)
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableData(path, f"is damaged: {error}") from error


class TextFiles:
    """The writer's side in one data dir."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._unsynced = False

    def write(self, url: str, text: str, crawl: int) -> None:
        """Stores a text; readers see the whole text or none."""
        path = self._data_dir / text_path(url, crawl)
        # One process owns a URL at a time, so a file left under this name by a kill is overwritten by the next owner.
        temporary = path.with_suffix(".part")
        data = text.encode("utf-8", "replace")
        with convert_write_errors(path):
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                temporary.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                temporary.parent.mkdir(mode=0o700, exist_ok=True)
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(fd, data)
            finally:
                os.close(fd)
            temporary.rename(path)
        self._unsynced = True

    def sync(self, *, always: bool = False) -> None:
        """Makes the texts durable with one call: an fsync for each would cost more than the crawl."""
        if not (self._unsynced or always):
            return
        self._unsynced = False
        try:
            sync_file_system(self._data_dir)
        except BaseException:
            self._unsynced = True
            raise


def _write_all(fd: int, data: bytes) -> None:
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, data[done:])


def sync_file_system(folder: Path) -> None:
    """Syncs the whole file system of a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with convert_write_errors(folder):
            if _c_library().syncfs(fd) != 0:
                raise OSError(ctypes.get_errno(), "syncfs failed")
    finally:
        os.close(fd)


@lru_cache(maxsize=1)
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
