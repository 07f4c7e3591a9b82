"""Pages that kill the process that parses them.

Before a page is parsed its item is written into a small shared file, and taken out after: a killed process's memory is
gone, its shared pages are not. The next process that opens the file sees which page it was. Two deaths on one page,
and it is stored unparsed. A death together with whoever started the process (a kill of everything, a power cut) says
little about the page, which was merely under way: it counts as half of one. The same file carries the heartbeat by
which a supervisor detects a process stuck in native code.
"""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path

MAX_DEATHS = 2
_LAYOUT = struct.Struct("<QQ")  # beats, the item that is being parsed (0: none)
_put = struct.Struct("<Q").pack_into


class Suspects:
    """The file, opened by the one process that parses."""

    def __init__(self, folder: Path, *, died_with_its_starter: bool = False) -> None:
        """`died_with_its_starter`: the process that had the file before, if it has died."""
        folder.mkdir(parents=True, exist_ok=True)
        self._deaths_path = folder / "deaths.json"
        self._deaths: dict[str, float] = _read_json(self._deaths_path)
        path = folder / "pulse"
        if not path.exists() or path.stat().st_size < _LAYOUT.size:
            path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._beats, self.died_on = _LAYOUT.unpack_from(self._map)
        if self.died_on:
            weight = 0.5 if died_with_its_starter else 1.0
            self._deaths[str(self.died_on)] = self._deaths.get(str(self.died_on), 0.0) + weight
            beside = self._deaths_path.with_suffix(".tmp")
            beside.write_text(json.dumps(self._deaths))
            beside.replace(self._deaths_path)
        self._mark(0)

    def is_poison(self, item: int) -> bool:
        """Whether this page has killed its parser too often."""
        return bool(self._deaths) and self._deaths.get(str(item), 0) >= MAX_DEATHS

    def set_deaths(self, item: int, deaths: int) -> None:
        """Sets the count that came with a page from the frontier: deaths of other parsers are in it."""
        if deaths:
            self._deaths[str(item)] = deaths

    def forget(self, item: int) -> None:
        """The page has ended."""
        if self._deaths:
            self._deaths.pop(str(item), None)

    def parsing(self, item: int) -> None:
        """This page is being parsed from now on."""
        self._mark(item)

    def parsed(self) -> None:
        """The parser has survived the page."""
        self._mark(0)

    def beat(self) -> None:
        """The loop is alive."""
        self._beats += 1
        _put(self._map, 0, self._beats)

    def close(self) -> None:
        """Lets the file go."""
        self._map.close()

    def _mark(self, item: int) -> None:
        _put(self._map, 8, item)


def pulse(folder: Path) -> tuple[int, int]:
    """Heartbeats and suspect page from the file, for the supervising process."""
    try:
        beats, item = _LAYOUT.unpack_from((folder / "pulse").read_bytes())
    except (OSError, struct.error):
        return 0, 0
    return beats, item


def beat(folder: Path) -> None:
    """A heartbeat of a process that is still starting; leaves the suspect page as it is."""
    beats, item = pulse(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pulse").write_bytes(_LAYOUT.pack(beats + 1, item))


def take_suspect(folder: Path) -> int:
    """The page that a dead process was parsing, or 0; cleared by the first call that reads it."""
    try:
        with (folder / "pulse").open("r+b") as file:
            _, item = _LAYOUT.unpack(file.read(_LAYOUT.size))
            file.seek(8)
            file.write(bytes(8))
    except (OSError, struct.error):
        return 0
    return int(item)


def _read_json(path: Path) -> dict[str, float]:
    try:
        return {str(item): float(count) for item, count in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
