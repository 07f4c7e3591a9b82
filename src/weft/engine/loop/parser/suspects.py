"""Pages that kill the process that parses them.

Before a page is parsed, its item is written into a small shared file, and cleared afterwards: a killed process loses
its memory, but not its shared pages. The next process that opens the file sees which page it was. After two deaths the
page is stored unparsed. If the process that started it died too (a kill of everything, a power cut), the page is
probably not the cause: such a death counts as half. The same file (`Heartbeat`) carries the heartbeat by which a
supervisor detects a process stuck in native code.
"""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path

from weft.files import replace_file

MAX_DEATHS = 2
_HEARTBEAT_LAYOUT = struct.Struct(
    "<QQQ"
)  # heartbeats, the item being parsed (0: none), steps of long work since the start
_COUNT, _ITEM, _STEPS = 0, 8, 16  # offsets
_put, _get = struct.Struct("<Q").pack_into, struct.Struct("<Q").unpack_from


class Heartbeat:
    """The file, opened by the process whose heartbeat it carries; leaves the suspect page as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "pulse"
        size = path.stat().st_size if path.exists() else 0
        if size < _HEARTBEAT_LAYOUT.size:  # a new file, or its maker died while creating it
            with path.open("ab") as file:
                file.write(bytes(_HEARTBEAT_LAYOUT.size - size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _HEARTBEAT_LAYOUT.size)

    @property
    def item(self) -> int:
        """The item being parsed; 0: none."""
        return int(_get(self._map, _ITEM)[0])

    @property
    def steps(self) -> int:
        """How many steps of long work were done since the process started its loop."""
        return 0 if self._map.closed else int(_get(self._map, _STEPS)[0])

    def send_heartbeat(self) -> None:
        """Records that the process is alive."""
        if not self._map.closed:
            _put(self._map, _COUNT, _get(self._map, _COUNT)[0] + 1)

    def step(self) -> None:
        """Records progress of long work after the start; counts as a heartbeat."""
        if not self._map.closed:
            _put(self._map, _STEPS, _get(self._map, _STEPS)[0] + 1)
            self.send_heartbeat()

    def mark(self, item: int) -> None:
        """Records the item being parsed; 0: none."""
        _put(self._map, _ITEM, item)

    def close(self) -> None:
        """Unmaps the file; later heartbeats have no effect."""
        self._map.close()


class Suspects:
    """The pages that have killed parsers, for the one process that parses."""

    def __init__(self, heartbeat: Heartbeat, *, died_with_its_starter: bool = False) -> None:
        """`died_with_its_starter`: the previous process of this file, if it has died, died together with the one that
        started it.
        """
        self._heartbeat = heartbeat
        self._deaths_path = heartbeat.folder / "deaths.json"
        self._deaths: dict[str, float] = _read_deaths(self._deaths_path)
        self.died_on = heartbeat.item
        if self.died_on:
            weight = 0.5 if died_with_its_starter else 1.0
            self._deaths[str(self.died_on)] = self._deaths.get(str(self.died_on), 0.0) + weight
            replace_file(self._deaths_path, json.dumps(self._deaths).encode(), durable=False)
        heartbeat.mark(0)

    def is_poison(self, item: int) -> bool:
        """Whether this page has killed its parser too often."""
        return bool(self._deaths) and self._deaths.get(str(item), 0) >= MAX_DEATHS

    def set_deaths(self, item: int, deaths: int) -> None:
        """Sets the count that came with a page from the frontier: it includes deaths of other parsers."""
        if deaths:
            self._deaths[str(item)] = deaths

    def forget_page(self, item: int) -> None:
        """Forgets a page that has ended."""
        if self._deaths:
            self._deaths.pop(str(item), None)

    def mark_parsing(self, item: int) -> None:
        """Marks a page as being parsed."""
        self._heartbeat.mark(item)

    def clear_mark(self) -> None:
        """Clears the mark: the parser has survived the page."""
        self._heartbeat.mark(0)

    def send_heartbeat(self) -> None:
        """Records that the loop is alive."""
        self._heartbeat.send_heartbeat()

    def close(self) -> None:
        """Closes the file."""
        self._heartbeat.close()


def read_heartbeat(folder: Path) -> tuple[int, int]:
    """The heartbeat count and the suspect page in the file, for the supervising process."""
    heartbeats, item, _ = _read_heartbeat_file(folder)
    return heartbeats, item


def steps_of(folder: Path) -> int:
    """A counter that changes while a process that was asked to stop makes progress."""
    return _read_heartbeat_file(folder)[2]


def _read_heartbeat_file(folder: Path) -> tuple[int, int, int]:
    try:
        data = (folder / "pulse").read_bytes()
        heartbeats, item, steps = _HEARTBEAT_LAYOUT.unpack_from(
            data.ljust(_HEARTBEAT_LAYOUT.size, b"\0") if len(data) >= _STEPS else data
        )
    except (OSError, struct.error):
        return 0, 0, 0
    return heartbeats, item, steps


def pop_suspect(folder: Path) -> int:
    """The page that a dead process was parsing, or 0; cleared by the first call that reads it."""
    try:
        with (folder / "pulse").open("r+b") as file:
            file.seek(_ITEM)
            (item,) = struct.unpack("<Q", file.read(8))
            file.seek(_ITEM)
            file.write(bytes(8))
    except (OSError, struct.error):
        return 0
    return int(item)


def _read_deaths(path: Path) -> dict[str, float]:
    try:
        return {str(item): float(count) for item, count in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
