"""Read-only access to a crawl's frontiers, also while the crawl runs, for `weft explain` and `weft audit`.

What the running process has not committed yet (about a tenth of a second) is not visible.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from weft.errors import BadInput, Damaged
from weft.frontier.contract import RobotsRecord
from weft.frontier.journal import REMEDY, undamaged, unpacked_items, unpacked_text, unsealed_row
from weft.frontier.requests import Event, Gaps, read_events, robots_digest
from weft.frontier.scheduling.spill import spill_name


class Entry(Struct, frozen=True):
    """An item as the journal has it."""

    item: int
    url: str
    depth: int
    parent: int
    hops: int
    ended: bool
    attempt: int  # how often it was tried and queued again
    sitemap: bool


class SitePace(Struct, frozen=True):
    """What a frontier has written down of a site's politeness clock: seconds, and times of the wall clock."""

    crawl_delay: float = 0.0
    extra: float = 0.0  # after 429 or 503
    lag: float = 0.0  # while it answers later than usual
    recent: float = 0.0
    usual: float = 0.0
    # Failed probes, whether it is open, and until when, by trust and origin. An older Weft had one for a whole site.
    breakers: dict[str, tuple[int, bool, float]] = {}


class RobotsEvidence(Struct, frozen=True):
    """A robots.txt that was in force once: since when by the wall clock, and what the request log calls it."""

    wall: float
    digest: str
    record: RobotsRecord


class FrontierView:
    """Questions to the files of a crawl's frontiers, one for each pod."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        found = [(folder, pod) for folder in folders if (pod := _PodDatabase.open(folder)) is not None]
        self._opened, self._pods = [folder for folder, _ in found], [pod for _, pod in found]
        if not self._pods:
            raise BadInput(f"{folders[0]}: there is no frontier in it")

    def close(self) -> None:
        """Closes the files."""
        for pod in self._pods:
            pod.close()

    def entries(self, url: str) -> list[Entry]:
        """Every item of a URL, oldest first. Scans the journals: seconds, for millions of URLs."""
        return [entry for pod in self._pods for entry in pod.entries(url)]

    def ahead_of(self, entry: Entry, key: str, key_of: Callable[[str], str]) -> int:
        """How many queued items of the same site come before this one."""
        return sum(pod.ahead_of(entry, key, key_of) for pod in self._pods)

    def place_of(self, entry: Entry, key: str) -> str:
        """Where an item that has not ended waits."""
        on_disk = (path for folder in self._folders if (path := _spilled(folder, entry, key)) is not None)
        return next((f"in a long queue, on disk: {path}" for path in on_disk), "in its queue, or being fetched")

    def refusal(self, url: str, crawl: int = 0) -> str | None:
        """The recorded reason for which a URL was refused, by one crawl of several or by any (0)."""
        return next((reason for pod in self._pods if (reason := pod.refusal(url, crawl)) is not None), None)

    def scope_extensions(self) -> list[str]:
        """The URLs by which redirects of seeds extended the scope."""
        return list(dict.fromkeys(url for pod in self._pods for url in pod.scope_extensions()))

    def site(self, key: str) -> SitePace:
        """What slows requests to a site down; of a site that nothing is known of, nothing does."""
        return next((pace for pod in self._pods if (pace := pod.site(key)) is not None), SitePace())

    def robots_tries(self, origin: str) -> tuple[int, float] | None:
        """How often an origin's robots.txt was asked for in vain so far, and when it will be again (wall clock)."""
        return next((tries for pod in self._pods if (tries := pod.robots_tries(origin)) is not None), None)

    def robots(self, origin: str) -> RobotsRecord | None:
        """The robots.txt that is in force."""
        return next((record for pod in self._pods if (record := pod.robots(origin)) is not None), None)

    @lru_cache(maxsize=4096)  # noqa: B019 (a view lives as long as one command)
    def robots_history(self, origin: str) -> list[RobotsEvidence]:
        """Every robots.txt of an origin, in the order of the wall clock, which may have been wrong."""
        return [entry for pod in self._pods for entry in pod.robots_history(origin)]

    def requests(self, gaps: Gaps) -> Iterator[tuple[int, Event]]:
        """The request logs, pod after pod, each in order of time; `gaps` counts the unreadable lines."""
        for pod, folder in enumerate(self._folders):
            if (folder / "requests").is_dir():
                yield from ((pod, event) for event in read_events(folder / "requests", gaps))

    def log_sizes(self) -> dict[Path, int]:
        """The least size of each request log, from the frontiers' last commits."""
        return {
            folder / "requests" / name: size
            for pod, folder in zip(self._pods, self._opened, strict=True)
            for name, size in pod.log_sizes().items()
        }

    def rebuilt_at(self) -> float:
        """When a frontier was last rebuilt, which may have lost robots.txt history from before; 0: never."""
        return max(pod.rebuilt_at() for pod in self._pods)


def _spilled(folder: Path, entry: Entry, key: str) -> Path | None:
    """The spill file that holds an item. Items that were popped stay in it until the whole file is used up."""
    line = f"{entry.item} ".encode()
    for path in (folder / "spill").glob(f"*/{spill_name(key, entry.depth)}"):
        try:
            with path.open("rb") as file:
                if any(text.startswith(line) for text in file):
                    return path
        except FileNotFoundError:
            continue
    return None


class _PodDatabase:
    """The database of one pod's frontier."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        names = self._all("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {name for (name,) in names}
        if not self._tables:
            raise Damaged(path, "is empty", REMEDY)

    def _all(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with undamaged(self._path):
            for row in self._db.execute(sql, values):
                yield unsealed_row(row)

    def _journal(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """What each commit admitted and ended. Its blobs have checksums of their own, and may begin with any byte."""
        with undamaged(self._path):
            yield from self._db.execute("SELECT admitted, done FROM journal ORDER BY seq")

    def _meta(self, name: str) -> Any:
        if "meta" not in self._tables:
            return None
        with undamaged(self._path):
            row = next(self._all("SELECT value FROM meta WHERE name = ?", name), None)
            return None if row is None else msgspec.msgpack.decode(row[0])

    def log_sizes(self) -> dict[str, int]:
        """The size of the newest request log at the last commit."""
        name_and_size = self._meta("request_log")
        return dict([name_and_size]) if name_and_size else {}

    def rebuilt_at(self) -> float:
        return float(self._meta("rebuilt_at") or 0.0)

    @classmethod
    def open(cls, folder: Path) -> _PodDatabase | None:
        """An embedded frontier's journal, or the robots.txt database of a pod on Redis; None where there is neither."""
        paths = [path for name in ("frontier.db", "robots.db") if (path := folder / name).exists()]
        return cls(paths[0]) if paths else None

    def close(self) -> None:
        self._db.close()

    def entries(self, url: str) -> list[Entry]:
        if "journal" not in self._tables:
            return []
        needles = (f" p {url}", f" s {url}")
        found: dict[int, list[str]] = {}
        ended: set[int] = set()
        with undamaged(self._path):
            for admitted, done in self._journal():
                text = unpacked_text(admitted) if admitted else ""
                if any(needle in text for needle in needles):
                    for line in text.split("\n"):
                        fields = line.split(" ", 7)
                        if fields[7].partition(" ")[0] == url:
                            found[int(fields[0])] = fields
                if found and done:
                    ended |= set(unpacked_items(done)) & set(found)
        return [self._entry(item, fields, item in ended) for item, fields in sorted(found.items())]

    def _entry(self, item: int, fields: list[str], ended: bool) -> Entry:
        row = next(self._all("SELECT attempt FROM retries WHERE item = ?", item), None)
        url = fields[7].partition(" ")[0]
        depth, parent, hops = int(fields[1]), int(fields[2]), int(fields[3])
        return Entry(item, url, depth, parent, hops, ended, row[0] if row else 0, fields[6] == "s")

    def ahead_of(self, entry: Entry, key: str, key_of: Callable[[str], str]) -> int:
        done: set[int] = set()
        before: set[int] = set()
        with undamaged(self._path):
            for admitted, ended in self._journal():
                done |= set(unpacked_items(ended)) if ended else set()
                for line in unpacked_text(admitted).split("\n") if admitted else ():
                    item, depth, _, _, _, _, _, rest = line.split(" ", 7)
                    if (int(depth), int(item)) < (entry.depth, entry.item) and key_of(rest.partition(" ")[0]) == key:
                        before.add(int(item))
        return len(before - done)

    def refusal(self, url: str, crawl: int) -> str | None:
        if crawl:
            found = self._all("SELECT reason FROM refusals WHERE url = ? AND crawl = ?", url, crawl)
        else:  # also files of an older Weft, which do not say whose it was
            found = self._all("SELECT reason FROM refusals WHERE url = ?", url)
        row = next(found, None)
        return str(row[0]) if row else None

    def scope_extensions(self) -> list[str]:
        if "meta" not in self._tables:
            return []
        rows = self._all("SELECT value FROM meta WHERE name LIKE 'scope:%'")
        with undamaged(self._path):
            return [str(url) for (value,) in rows for url in msgspec.msgpack.decode(value)]

    def site(self, key: str) -> SitePace | None:
        if "sites" not in self._tables:
            return None
        row = next(self._all("SELECT record FROM sites WHERE key = ?", key), None)
        with undamaged(self._path):
            return msgspec.msgpack.decode(row[0], type=SitePace) if row else None

    def robots_tries(self, origin: str) -> tuple[int, float] | None:
        if "robots_tries" not in self._tables:
            return None
        row = next(self._all("SELECT attempt, wall FROM robots_tries WHERE origin = ?", origin), None)
        return (int(row[0]), float(row[1])) if row else None

    def robots(self, origin: str) -> RobotsRecord | None:
        row = next(self._all("SELECT record FROM robots WHERE origin = ?", origin), None)
        with undamaged(self._path):
            return msgspec.msgpack.decode(row[0], type=RobotsRecord) if row else None

    def robots_history(self, origin: str) -> list[RobotsEvidence]:
        rows = self._all("SELECT wall, record FROM robots_history WHERE origin = ? ORDER BY wall", origin)
        with undamaged(self._path):
            return [
                RobotsEvidence(wall, robots_digest(data), msgspec.msgpack.decode(data, type=RobotsRecord))
                for wall, data in rows
            ]
