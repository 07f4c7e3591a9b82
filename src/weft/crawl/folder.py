"""A `weft crawl` folder: an engine's folder (engine/folder.py) with one crawl in it, which has a folder of its own.

    DATA/crawls/crawl/config.json      the settings in force, and every change of them (settings_record.py)
    DATA/crawls/crawl/seeds.txt        its seeds, canonical, one a line; large seed files by name
    DATA/crawls/crawl/seeds-N.pack     large seed files (see seed_streams.py); their origins: seeds-N.origins
    DATA/crawls/crawl/origins.txt      the origins that its credentials are sent to, one a line, if it has credentials
    DATA/crawls/crawl/yielded.json     which pages `weft.crawl` has yielded (see yielded.py)
    DATA/crawls/crawl/spider.json      the description of its user code when it was last started or resumed
    DATA/crawls/crawl/closing.json     what its user code raised when the crawl ended last (see items/failures.py)
    DATA/crawls/crawl/recrawl-N.json   where the last recrawl of pod N began

Invariant: settings and seeds are on the disk before engine.json is. Data dirs that Weft creates are accessible only to
their owner (0700), and so is every file in the home (0600): settings may hold logins, URLs and logs may hold keys.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__
from weft.config import Config, FetchSection, numbers
from weft.crawl.seeds.seed_file import SeedFile, all_seeds
from weft.crawl.seeds.seed_origins import record_origins, recorded_origins_of
from weft.crawl.seeds.seed_streams import Piece, SeedStream, check_stream, read_pieces, streams_in, write_stream
from weft.crawl.siblings import record_siblings
from weft.credentials import harmless, seed_origins
from weft.engine.crawls.settings_record import SettingsRecord
from weft.engine.folder import CRAWL_SUFFIX, EngineFolder, Identity
from weft.engine.user_code.calls import Description
from weft.errors import BadInput, Busy, Damaged, unreadable
from weft.files import is_locked, replace_file, sync_folder, try_lock
from weft.sealed import open_json, open_lines, sealed_json, sealed_lines
from weft.store.pages import PageStore

_LOCK_TEST_S = 0.2  # longer than another process needs to test the lock
_SETTINGS_REMEDY = (
    "without it the crawl's delay, scope and limits are unknown: restore it from a backup, or start over with "
    "`fresh=True`"
)
_SEEDS_REMEDY = (
    "without its seeds the crawl would end too early: restore it from a backup, or start over with `fresh=True`"
)
_ORIGINS_REMEDY = (
    "it says which sites may be sent the crawl's logins: restore it from a backup, or delete it, and they go to the "
    "origins of all its seeds"
)
_SPIDER_REMEDY = "it says what the crawl's code is: delete it, and resume with `spider=FILE`"
# Everything that a crawl writes in its data dirs.
_OWN_FILES = (
    "engine.json", "dirs.json", "dirs.tmp", "crawls", "status.json", "status", "frontier", "spool", "warc", "content",
    "trash", "metrics", "logs",
)  # fmt: skip


_FileVersion = tuple[int, int, int]  # of a file: inode, size, modification time


class RecrawlStart(msgspec.Struct, frozen=True):
    """Where a pod's recrawl began: URLs that it queued have later numbers, and URLs queued before it are fetched
    later."""

    last_item: int
    at: float  # wall clock


class CrawlFolder(EngineFolder):
    """The data dirs of one crawl."""

    def __init__(self, data_dirs: Sequence[str | Path]) -> None:
        super().__init__(data_dirs)
        self.own_folder = self.crawls / CRAWL_SUFFIX
        self._seeds = self.own_folder / "seeds.txt"
        self._origins = self.own_folder / "origins.txt"
        self._lock: int | None = None
        self._seeds_read: tuple[_FileVersion | None, list[str]] = (None, [])

    @property
    def pods_here(self) -> tuple[int, ...]:
        """The pods that this node runs; its data dirs hold their pages alone."""
        only = self.settings().get("only_pods")
        return numbers(only) if only else tuple(range(self.pods))

    def lock_folder(self) -> None:
        """Locks the folder for this process until it ends; creates it if necessary."""
        for folder in self.data_dirs:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                probe = folder / f".write-{os.getpid()}"
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise BadInput(f"data dir {folder}: {error.strerror}; choose another `data_dir`") from None
        self._lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not try_lock(self._lock, _LOCK_TEST_S):
            os.close(self._lock)
            watch = shlex.join(["weft", "watch", str(self.home)])
            raise Busy(f"data dir {self.home}: a crawl is running in it; `{watch}` shows it")

    def is_held(self) -> bool:
        """Whether a process runs the crawl, or works on its folder."""
        return is_locked(self.home / "lock")

    def release(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def start(
        self,
        seeds: Iterable[str],
        pods: int = 1,
        *,
        settings: Mapping[str, Any] | None = None,
        defaults: Collection[str] = (),
        on_redis: bool = False,
        crawl_id: str | None = None,
        large: SeedFile | None = None,
        report_progress: Callable[[str], None] = lambda _: None,
        spider: Description | None = None,
    ) -> Identity:
        """Creates a new crawl, or this node's part of the crawl with that id: completely, or not at all.

        `defaults`: the keys of `settings` that were not given. `large`: a seed file that is read while the crawl runs;
        `report_progress` is called with the progress of its copy. `spider` describes the user code, if there is any.
        """
        identity = Identity.new(crawl_id, len(self.data_dirs), pods, on_redis=on_redis)
        for path in (self.crawls, self.own_folder):
            path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.crawls)
        self._write_settings(SettingsRecord(dict(settings or {}), sorted(defaults)))
        if spider is not None:
            self.keep_spider(spider)
        self._write_seeds(seeds, [self._copy_stream(large, report_progress, [])] if large is not None else [])
        record_siblings(self.data_dirs, identity.id)
        return self.write_identity(identity)

    def open_existing(self) -> Identity:
        """Opens the existing crawl to continue it."""
        identity = self.check_data_dirs()
        if not self.is_of_one_crawl():
            raise BadInput(
                f"{self.home} holds an engine, which `weft.Engine` or `weft serve` continues, not a crawl of "
                "`weft crawl`: choose another data dir"
            )
        return identity

    def clear(self) -> None:
        """Deletes the crawl, and no other files in its folders."""
        for folder in self.data_dirs:
            for name in _OWN_FILES:
                path = folder / name
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            for path in folder.glob("index-*"):
                path.unlink()

    def settings(self) -> dict[str, Any]:
        """The crawl's settings; raises Damaged if the file is not intact."""
        return self.settings_record().values

    def settings_record(self) -> SettingsRecord:
        """The crawl's settings and their changes; raises Damaged if the file is not intact."""
        self.identity()
        path = self.own_folder / "config.json"
        content = open_json(path, _SETTINGS_REMEDY)
        try:
            return msgspec.convert(content, SettingsRecord)
        except msgspec.ValidationError as error:
            raise Damaged(path, f"cannot be read: {error}", _SETTINGS_REMEDY) from None

    def config(self) -> Config:
        """The crawl's settings, for reports."""
        return self.settings_record().config()

    def keep_settings(self, settings: Mapping[str, Any], defaults: Collection[str] = ()) -> SettingsRecord:
        """Records the settings of a resume, and which of them are changes."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(settings)))  # as it will be read back
        before = self.settings_record()
        record = before.changed(plain, defaults, time.time(), __version__)
        if record != before:
            self._write_settings(record)
        return record

    def keep_state(self, *, is_paused: bool = False, is_cancelled: bool = False, pause_reason: str = "") -> None:
        """Records whether the crawl is paused or cancelled."""
        before = self.settings_record()
        record = msgspec.structs.replace(
            before, is_paused=is_paused, is_cancelled=is_cancelled, pause_reason=pause_reason
        )
        if record != before:
            self._write_settings(record)

    def _write_settings(self, record: SettingsRecord) -> None:
        replace_file(self.own_folder / "config.json", sealed_json(msgspec.to_builtins(record)))

    def spider(self) -> Description | None:
        """The description of the crawl's user code; None if it has none."""
        path = self.own_folder / "spider.json"
        if not path.exists():
            return None
        try:
            return msgspec.convert(open_json(path, _SPIDER_REMEDY), Description)
        except msgspec.ValidationError as error:
            raise Damaged(path, f"cannot be read: {error}", _SPIDER_REMEDY) from None

    def keep_spider(self, description: Description) -> None:
        """Records the description of the crawl's user code."""
        replace_file(self.own_folder / "spider.json", sealed_json(msgspec.to_builtins(description)))

    def recrawl(self) -> dict[int, RecrawlStart]:
        """Where the last recrawl of each pod began; empty if there was none."""
        began = {}
        for pod in range(self.pods):
            path = self._recrawl_path(pod)
            try:
                began[pod] = msgspec.json.decode(path.read_bytes(), type=RecrawlStart)
            except FileNotFoundError:
                continue
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                remedy = "it says where the last recrawl began: restore it from a backup, or recrawl once more"
                raise unreadable(path, error, remedy) from None
        return began

    def begin_recrawl(self, pod: int, started_at: float, last_item: int) -> None:
        """Records where a pod's recrawl begins."""
        replace_file(self._recrawl_path(pod), msgspec.json.encode(RecrawlStart(last_item, started_at)))

    def _recrawl_path(self, pod: int) -> Path:
        return self.own_folder / f"recrawl-{pod}.json"

    def pages_by_pod(self) -> dict[int, int]:
        """The number of pages that each pod has stored."""
        try:
            store = PageStore.open(self.data_dirs, read_only=True)
        except BadInput:
            return {}
        try:
            return {pod: store.stats(0, f"pod{pod}-").pages for pod in range(self.pods)}
        finally:
            store.abandon()

    def seeds(self) -> list[str]:
        """The crawl's seeds, canonical; raises Damaged if the file is not intact."""
        return [line for line in self._seed_lines() if not line.startswith("#")]

    def seed_streams(self) -> list[SeedStream]:
        """The large seed files, which are read while the crawl runs."""
        return streams_in(self._seed_lines())

    def check_streams(self) -> None:
        """Reads the large seed files completely; raises Damaged if one is not intact."""
        for stream in self.seed_streams():
            check_stream(self.own_folder, stream, _SEEDS_REMEDY)

    def read_stream(self, stream: SeedStream, at: int = 0) -> Iterator[Piece]:
        """The pieces of a large seed file, from an offset on."""
        return read_pieces(self.own_folder, stream, _SEEDS_REMEDY, at)

    def record_scope_origins(self, report_progress: Callable[[str], None]) -> None:
        """Reads the origins of large seed files, which decide their scope; recorded ones are not read again."""
        for stream in self.seed_streams():
            record_origins(self.own_folder, stream, partial(self.read_stream, stream), report_progress)

    def scope_seeds(self) -> Iterator[str]:
        """One or several URLs for every origin of a large seed file: scope and credentials are derived from them."""
        for stream in self.seed_streams():
            origins, at = recorded_origins_of(self.own_folder, stream)
            yield from (f"{origin}/" for origin in origins)
            if at < stream.bytes:
                for piece in self.read_stream(stream, at):
                    yield from all_seeds(piece.lines)

    def add_seeds(
        self,
        seeds: Iterable[str],
        large: SeedFile | None = None,
        report_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Adds seeds to the existing ones, and a large file unless it was added before."""
        known, streams = self.seeds(), self.seed_streams()
        together = list(dict.fromkeys([*known, *seeds]))
        added = self._copy_stream(large, report_progress, streams) if large is not None else None
        if added is not None and added.text in {stream.text for stream in streams}:
            (self.own_folder / added.name).unlink()
            added = None
        if together != known or added is not None:
            self._write_seeds(together, [*streams, *([added] if added is not None else [])])

    def origins(self) -> list[str]:
        """The recorded origins that the crawl's credentials are sent to; empty if none are recorded."""
        return open_lines(self._origins, _ORIGINS_REMEDY) if self._origins.exists() else []

    def record_credential_origins(self, fetch: FetchSection) -> None:
        """Records the origins of the current seeds, which these settings' credentials are sent to; raises BadInput if
        there are too many. Call it when credentials are given, and not again: later seeds do not count."""
        origins = seed_origins(chain(self.seeds(), self.scope_seeds()), fetch.headers, fetch.auth)
        if fetch.auth or len(harmless(fetch.headers)) < len(fetch.headers) or self._origins.exists():
            replace_file(self._origins, sealed_lines(origins))

    def restore_credential_origins(self, fetch: FetchSection) -> None:
        """Records the origins again if that was interrupted, or the file was deleted; call it before a resume adds
        seeds."""
        if not self._origins.exists():
            self.record_credential_origins(fetch)

    def _seed_lines(self) -> list[str]:
        """The lines of the seed file, cached: a change of seeds replaces the file."""
        if not self.exists() and not self._seeds.exists():
            return []
        version = _version_of_file(self._seeds)
        if version is None or version != self._seeds_read[0]:
            self._seeds_read = version, open_lines(self._seeds, _SEEDS_REMEDY)
        return self._seeds_read[1]

    def _copy_stream(
        self, large: SeedFile, report_progress: Callable[[str], None], others: Sequence[SeedStream]
    ) -> SeedStream:
        """Copies a large file under a name that no stream has."""
        number = 1 + max((int(stream.name.split("-")[1].split(".")[0]) for stream in others), default=0)
        return write_stream(self.own_folder / f"seeds-{number}.pack", large.pieces(report_progress))

    def _write_seeds(self, seeds: Iterable[str], seed_streams: Iterable[SeedStream] = ()) -> None:
        lines = [*dict.fromkeys(seeds), *(stream.line() for stream in seed_streams)]
        replace_file(self._seeds, sealed_lines(lines))


def _version_of_file(path: Path) -> _FileVersion | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
