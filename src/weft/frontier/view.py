"""Read-only access to a crawl's frontiers, also while the crawl runs, for `weft explain` and `weft audit`.

Changes that the running process has not committed yet (about a tenth of a second) are not visible.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from weft.errors import BadInput, Damaged
from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import (
    REMEDY,
    SEEDS_OF_CLOSED,
    fingerprint_seeds,
    report_damage,
    row_without_checksums,
)
from weft.frontier.durability.journal_lines import JournalLine, parse_line
from weft.frontier.requests import LogEvent, UnreadableLines, read_events, read_site, robots_digest, robots_evidence
from weft.frontier.seen.url_lookup import UrlLookup
from weft.records import Purpose


class JournalEntry(Struct, frozen=True):
    """An item as the journal has it."""

    item: int
    url: str
    depth: int
    parent: int
    hops: int
    ended: bool
    attempt: int  # how often it failed and was queued again
    sitemap: bool
    crawl: int = 0
    line: int = 0  # of the journal


class SiteDelays(Struct, frozen=True):
    """The saved state of a site's politeness clock: seconds, and times of the wall clock."""

    crawl_delay: float = 0.0
    extra: float = 0.0  # after 429 or 503
    lag: float = 0.0  # while its answers are later than usual
    recent: float = 0.0
    usual: float = 0.0
    # Failed probes, whether it is open, and until when, by trust and origin.
    breakers: dict[str, tuple[int, bool, float]] = {}


class RobotsEvidence(Struct, frozen=True):
    """A robots.txt that was in force: its start by the wall clock, and its name in the request log."""

    wall: float
    digests: tuple[str, ...]
    record: RobotsRecord


def _robots_evidence(wall: float, data: bytes) -> RobotsEvidence:
    """A record of an earlier Weft version contains its expiry, and may have been logged with it."""
    record = msgspec.msgpack.decode(data, type=RobotsRecord)
    return RobotsEvidence(wall, (robots_digest(data), robots_digest(robots_evidence(record))), record)


class FrontierView:
    """Reads the files of a crawl's frontiers, one for each pod."""

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

    def entries_of_url(self, url: str, crawl: int = 0) -> list[JournalEntry]:
        """The items of a URL, the last one at the end, of one crawl or of all (0)."""
        return [entry for pod in self._pods for entry in pod.entries(url, crawl)]

    def ahead_of(self, entry: JournalEntry, key: str, key_of: Callable[[str], str]) -> tuple[int, bool]:
        """How many queued items of the same site come before this one; False if there may be more: only items admitted
        at about the same time are counted.
        """
        counts = [pod.ahead_of(entry, key, key_of) for pod in self._pods]
        return sum(count for count, _ in counts), all(is_all for _, is_all in counts)

    def refusal(self, url: str, crawl: int = 0) -> str | None:
        """The recorded reason why a URL was refused, by one crawl of several or by any (0)."""
        return next((reason for pod in self._pods if (reason := pod.refusal(url, crawl)) is not None), None)

    def scope_extensions(self, crawl: int = 0) -> list[str]:
        """The URLs by which redirects of seeds extended the scope of one crawl, or of any (0)."""
        return list(dict.fromkeys(url for pod in self._pods for url in pod.scope_extensions(crawl)))

    def site_delays(self, key: str) -> SiteDelays:
        """What delays requests to a site; an unknown site has no delays."""
        return next((pace for pod in self._pods if (pace := pod.site_delays(key)) is not None), SiteDelays())

    def robots_tries(self, origin: str) -> tuple[int, float] | None:
        """How many requests for an origin's robots.txt have failed so far, and when the next is due (wall clock)."""
        return next((tries for pod in self._pods if (tries := pod.robots_tries(origin)) is not None), None)

    def robots(self, origin: str) -> RobotsRecord | None:
        """The robots.txt that is in force."""
        return next((record for pod in self._pods if (record := pod.robots(origin)) is not None), None)

    def robots_history(self, origin: str) -> list[RobotsEvidence]:
        """Every robots.txt of an origin, in the order of the wall clock, which may have been wrong."""
        return [entry for pod in self._pods for entry in pod.robots_history(origin)]

    def requests(self, gaps: UnreadableLines) -> Iterator[tuple[int, LogEvent]]:
        """The request logs, pod after pod, each in order of time; `gaps` counts the unreadable lines."""
        for pod, folder in enumerate(self._folders):
            if (folder / "requests").is_dir():
                yield from ((pod, event) for event in read_events(folder / "requests", gaps))

    def requests_of(self, key: str | None) -> Iterator[LogEvent]:
        """The requests to a site, by its politeness key, as far as they can be read; None: to all sites."""
        for folder in self.log_folders():
            if folder is not None:
                yield from read_site(folder, key)

    def log_folders(self) -> list[Path | None]:
        """The folder of each pod's request logs; None if there is none."""
        folders = [folder / "requests" for folder in self._folders]
        return [folder if folder.is_dir() else None for folder in folders]

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


class _PodDatabase:
    """The database of one pod's frontier."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        names = self._query("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {name for (name,) in names}
        self._lookup = UrlLookup(path.parent, self._db, self._seeds)
        if not self._tables:
            raise Damaged(path, "is empty", REMEDY)

    def _query(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with report_damage(self._path):
            for row in self._db.execute(sql, values):
                yield row_without_checksums(row)

    def _read_meta(self, name: str) -> Any:
        if "meta" not in self._tables:
            return None
        with report_damage(self._path):
            row = next(self._query("SELECT value FROM meta WHERE name = ?", name), None)
            return None if row is None else msgspec.msgpack.decode(row[0])

    def log_sizes(self) -> dict[str, int]:
        """The size of the newest request log at the last commit."""
        name_and_size = self._read_meta("request_log")
        return dict([name_and_size]) if name_and_size else {}

    def rebuilt_at(self) -> float:
        return float(self._read_meta("rebuilt_at") or 0.0)

    @classmethod
    def open(cls, folder: Path) -> _PodDatabase | None:
        """An embedded frontier's journal, or the robots.txt database of a pod on Redis; None if there is neither."""
        paths = [path for name in ("frontier.db", "robots.db") if (path := folder / name).exists()]
        return cls(paths[0]) if paths else None

    def close(self) -> None:
        self._db.close()

    def entries(self, url: str, crawl: int) -> list[JournalEntry]:
        if "journal" not in self._tables:
            return []
        with report_damage(self._path):
            return [self._make_entry(*line) for line in self._lookup.items_of_url(url, crawl)]

    def _make_entry(self, line_fields: JournalLine, line: int, ended: bool) -> JournalEntry:
        item, crawl, one = line_fields
        row = next(self._query("SELECT attempt FROM retries WHERE item = ?", item), None)
        is_sitemap = one.purpose is Purpose.SITEMAP
        attempt = row[0] if row else 0
        return JournalEntry(item, one.url, one.depth, one.parent, one.hops, ended, attempt, is_sitemap, crawl, line)

    def ahead_of(self, entry: JournalEntry, key: str, key_of: Callable[[str], str]) -> tuple[int, bool]:
        if "journal" not in self._tables:
            return 0, True

        def is_of_site(text: str) -> bool:
            return key in text and key_of(parse_line(text).found.url) == key

        with report_damage(self._path):
            return self._lookup.ahead_of(entry.line, entry.item, entry.depth, is_of_site)

    def _seeds(self) -> dict[int, int]:
        return fingerprint_seeds(self._query("SELECT number, record FROM crawls"), self._query(SEEDS_OF_CLOSED))

    def refusal(self, url: str, crawl: int) -> str | None:
        row = next(self._query("SELECT reason FROM refusals WHERE url = ? AND ? IN (0, crawl)", url, crawl), None)
        return str(row[0]) if row else None

    def scope_extensions(self, crawl: int) -> list[str]:
        if "meta" not in self._tables:
            return []
        rows = self._query("SELECT value FROM meta WHERE name LIKE ?", f"scope:{crawl or '%'}")
        with report_damage(self._path):
            return [str(url) for (value,) in rows for url in msgspec.msgpack.decode(value)]

    def site_delays(self, key: str) -> SiteDelays | None:
        if "sites" not in self._tables:
            return None
        row = next(self._query("SELECT record FROM sites WHERE key = ?", key), None)
        with report_damage(self._path):
            return msgspec.msgpack.decode(row[0], type=SiteDelays) if row else None

    def robots_tries(self, origin: str) -> tuple[int, float] | None:
        if "robots_tries" not in self._tables:
            return None
        row = next(self._query("SELECT attempt, wall FROM robots_tries WHERE origin = ?", origin), None)
        return (int(row[0]), float(row[1])) if row else None

    def robots(self, origin: str) -> RobotsRecord | None:
        row = next(self._query("SELECT record FROM robots WHERE origin = ?", origin), None)
        with report_damage(self._path):
            return msgspec.msgpack.decode(row[0], type=RobotsRecord) if row else None

    def robots_history(self, origin: str) -> list[RobotsEvidence]:
        rows = self._query("SELECT wall, record FROM robots_history WHERE origin = ? ORDER BY wall", origin)
        with report_damage(self._path):
            return [_robots_evidence(wall, data) for wall, data in rows]
