"""A `weft crawl` folder: an engine's folder (engine/folder.py) with one crawl in it, which has a folder of its own.

    DATA/crawls/crawl/config.json      the settings in force, and every change of them (settings_record.py)
    DATA/crawls/crawl/seeds.txt        its seeds, canonical, one a line; large seed files by name
    DATA/crawls/crawl/seeds-N.pack     large seed files (see seed_streams.py); their origins: seeds-N.origins
    DATA/crawls/crawl/origins.txt      the origins that its credentials go to, one a line; where it has credentials
    DATA/crawls/crawl/yielded.json     which pages `weft.crawl` has yielded (see yielded.py)
    DATA/crawls/crawl/spider.json      what its user's code is, as it was when the crawl was started or resumed last
    DATA/crawls/crawl/recrawl-N.json   where the last recrawl of pod N began

Must stay true: settings and seeds are on the disk before engine.json is. Data dirs that Weft makes are its owner's
alone (0700), and so is every file in the home (0600): settings may hold logins, URLs and logs may hold keys.
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
from weft.crawl.seeds.seed_origins import origins_of, record_origins
from weft.crawl.seeds.seed_streams import Piece, SeedStream, check_stream, read_pieces, streams_in, write_stream
from weft.crawl.siblings import record_siblings
from weft.credentials import harmless, seed_origins
from weft.engine.crawls.settings_record import SettingsRecord
from weft.engine.folder import CRAWL, EngineFolder, Identity
from weft.engine.user_code.calls import Description
from weft.errors import BadInput, Busy, Damaged, unreadable
from weft.files import is_locked, replace_file, sync_folder, try_lock
from weft.sealed import open_json, open_lines, sealed_json, sealed_lines
from weft.store.pages import PageStore

_LOOKED_AT_S = 0.2  # longer than another process's look at the lock takes
_SETTINGS_REMEDY = (
    "without it nobody knows the crawl's delay, scope and limits: restore it from a backup, or start over with "
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
# All that a crawl leaves in its data dirs.
_OWN = (
    "engine.json", "dirs.json", "dirs.tmp", "crawls", "status.json", "status", "frontier", "spool", "warc", "content",
    "trash", "metrics", "logs",
)  # fmt: skip


_Version = tuple[int, int, int]  # of a file: inode, size, time of its last change


class RecrawlStart(msgspec.Struct, frozen=True):
    """Where a pod's recrawl began: what it queues has later numbers, and what was queued before is fetched later."""

    last_item: int
    at: float  # by the wall clock


class CrawlFolder(EngineFolder):
    """The data dirs of one crawl."""

    def __init__(self, data_dirs: Sequence[str | Path]) -> None:
        super().__init__(data_dirs)
        self.own = self.crawls / CRAWL
        self._seeds = self.own / "seeds.txt"
        self._origins = self.own / "origins.txt"
        self._lock: int | None = None
        self._seeds_read: tuple[_Version | None, list[str]] = (None, [])

    @property
    def here(self) -> tuple[int, ...]:
        """The pods that this node runs; its data dirs hold the pages of those alone."""
        only = self.settings().get("only_pods")
        return numbers(only) if only else tuple(range(self.pods))

    def hold(self) -> None:
        """Takes the folder for this process, until it ends; makes it first if need be."""
        for folder in self.data_dirs:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                probe = folder / f".write-{os.getpid()}"
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise BadInput(f"data dir {folder}: {error.strerror}; choose another `data_dir`") from None
        self._lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not try_lock(self._lock, _LOOKED_AT_S):
            os.close(self._lock)
            watch = shlex.join(["weft", "watch", str(self.home)])
            raise Busy(f"data dir {self.home}: a crawl is running in it; `{watch}` shows it")

    def is_held(self) -> bool:
        """Whether a process runs the crawl, or works on its folder."""
        return is_locked(self.home / "lock")

    def let_go(self) -> None:
        """Gives the folder back."""
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
        tell: Callable[[str], None] = lambda _: None,
        spider: Description | None = None,
    ) -> Identity:
        """Makes a new crawl, or this node's part of the one that has that id: all of it, or none.

        `defaults`: the keys of `settings` that nobody named. `large`: a seed file that is read while the crawl runs;
        `tell` hears how far its copy is. `spider` describes the user's code, where there is some.
        """
        identity = Identity.new(crawl_id, len(self.data_dirs), pods, on_redis=on_redis)
        for path in (self.crawls, self.own):
            path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.crawls)
        self._write_settings(SettingsRecord(dict(settings or {}), sorted(defaults)))
        if spider is not None:
            self.keep_spider(spider)
        self._write_seeds(seeds, [self._copy(large, tell, [])] if large is not None else [])
        record_siblings(self.data_dirs, identity.id)
        return self.make(identity)

    def go_on(self) -> Identity:
        """Opens the crawl that is there, to go on with it."""
        identity = self.checked()
        if not self.is_of_one_crawl():
            raise BadInput(
                f"{self.home} holds an engine, which `weft.Engine` or `weft serve` continues, and no crawl of "
                "`weft crawl`: choose another data dir"
            )
        return identity

    def clear(self) -> None:
        """Deletes the crawl, and nothing else that may lie there."""
        for folder in self.data_dirs:
            for name in _OWN:
                path = folder / name
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            for path in folder.glob("index-*"):
                path.unlink()

    def settings(self) -> dict[str, Any]:
        """The crawl's settings; Damaged where they are not what was written."""
        return self.settings_record().values

    def settings_record(self) -> SettingsRecord:
        """The crawl's settings and their changes; Damaged where they are not what was written."""
        self.identity()
        path = self.own / "config.json"
        content = open_json(path, _SETTINGS_REMEDY)
        try:
            return msgspec.convert(content, SettingsRecord)
        except msgspec.ValidationError as error:
            raise Damaged(path, f"cannot be read: {error}", _SETTINGS_REMEDY) from None

    def config(self) -> Config:
        """The crawl's settings, as a report applies them."""
        return self.settings_record().config()

    def keep_settings(self, settings: Mapping[str, Any], defaults: Collection[str] = ()) -> SettingsRecord:
        """Records what a resume runs with, and what of it is a change."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(settings)))  # as it will be read
        before = self.settings_record()
        record = before.changed(plain, defaults, time.time(), __version__)
        if record != before:
            self._write_settings(record)
        return record

    def keep_state(self, *, is_paused: bool = False, is_cancelled: bool = False) -> None:
        """Records whether the crawl is paused, or cancelled, by a command."""
        before = self.settings_record()
        record = msgspec.structs.replace(before, is_paused=is_paused, is_cancelled=is_cancelled)
        if record != before:
            self._write_settings(record)

    def _write_settings(self, record: SettingsRecord) -> None:
        replace_file(self.own / "config.json", sealed_json(msgspec.to_builtins(record)))

    def spider(self) -> Description | None:
        """What the crawl's own code is; None for a crawl without."""
        path = self.own / "spider.json"
        if not path.exists():
            return None
        try:
            return msgspec.convert(open_json(path, _SPIDER_REMEDY), Description)
        except msgspec.ValidationError as error:
            raise Damaged(path, f"cannot be read: {error}", _SPIDER_REMEDY) from None

    def keep_spider(self, description: Description) -> None:
        """Records what the crawl's own code is now."""
        replace_file(self.own / "spider.json", sealed_json(msgspec.to_builtins(description)))

    def recrawl(self) -> dict[int, RecrawlStart]:
        """Where the last recrawl of each pod began; empty if there was none."""
        began = {}
        for pod in range(self.pods):
            path = self._recrawl(pod)
            try:
                began[pod] = msgspec.json.decode(path.read_bytes(), type=RecrawlStart)
            except FileNotFoundError:
                continue
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                remedy = "it says where the last recrawl began: restore it from a backup, or recrawl once more"
                raise unreadable(path, error, remedy) from None
        return began

    def begin_recrawl(self, pod: int, started_at: float, last_item: int) -> None:
        """Remembers where a pod's recrawl begins."""
        replace_file(self._recrawl(pod), msgspec.json.encode(RecrawlStart(last_item, started_at)))

    def _recrawl(self, pod: int) -> Path:
        return self.own / f"recrawl-{pod}.json"

    def pages_by_pod(self) -> dict[int, int]:
        """How many pages each pod has stored."""
        try:
            store = PageStore.open(self.data_dirs, read_only=True)
        except BadInput:
            return {}
        try:
            return {pod: store.stats(0, f"pod{pod}-").pages for pod in range(self.pods)}
        finally:
            store.abandon()

    def seeds(self) -> list[str]:
        """The crawl's seeds, canonical; Damaged where they are not what was written."""
        return [line for line in self._seed_lines() if not line.startswith("#")]

    def streams(self) -> list[SeedStream]:
        """The large seed files, which are read while the crawl runs."""
        return streams_in(self._seed_lines())

    def check_streams(self) -> None:
        """Damaged where a large seed file is not what was written; reads them through."""
        for stream in self.streams():
            check_stream(self.own, stream, _SEEDS_REMEDY)

    def pieces(self, stream: SeedStream, at: int = 0) -> Iterator[Piece]:
        """The pieces of a large seed file."""
        return read_pieces(self.own, stream, _SEEDS_REMEDY, at)

    def record_scope_origins(self, tell: Callable[[str], None]) -> None:
        """Reads the origins of large seed files, for their scope; what is recorded already is not read again."""
        for stream in self.streams():
            record_origins(self.own, stream, partial(self.pieces, stream), tell)

    def scope_seeds(self) -> Iterator[str]:
        """For every origin of a large seed file one URL, or several: what scope and credentials go by."""
        for stream in self.streams():
            origins, at = origins_of(self.own, stream)
            yield from (f"{origin}/" for origin in origins)
            if at < stream.bytes:
                for piece in self.pieces(stream, at):
                    yield from all_seeds(piece.lines)

    def add_seeds(
        self, seeds: Iterable[str], large: SeedFile | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Adds seeds to those that are there, and a large file unless it was added before."""
        known, streams = self.seeds(), self.streams()
        together = list(dict.fromkeys([*known, *seeds]))
        added = self._copy(large, tell, streams) if large is not None else None
        if added is not None and added.text in {stream.text for stream in streams}:
            (self.own / added.name).unlink()
            added = None
        if together != known or added is not None:
            self._write_seeds(together, [*streams, *([added] if added is not None else [])])

    def origins(self) -> list[str]:
        """The origins that the crawl's credentials go to, as they were recorded; none where nothing was."""
        return open_lines(self._origins, _ORIGINS_REMEDY) if self._origins.exists() else []

    def record_credential_origins(self, fetch: FetchSection) -> None:
        """Records the origins of all seeds there are that credentials of these settings go to; BadInput if they are too
        many. To be called when credentials are given, and not again: seeds that come later do not count."""
        origins = seed_origins(chain(self.seeds(), self.scope_seeds()), fetch.headers, fetch.auth)
        if fetch.auth or len(harmless(fetch.headers)) < len(fetch.headers) or self._origins.exists():
            replace_file(self._origins, sealed_lines(origins))

    def restore_credential_origins(self, fetch: FetchSection) -> None:
        """Records them where that was cut off, or the file was deleted; before a resume adds seeds."""
        if not self._origins.exists():
            self.record_credential_origins(fetch)

    def _seed_lines(self) -> list[str]:
        """Read once: a change of seeds replaces the file."""
        if not self.exists() and not self._seeds.exists():
            return []
        version = _version(self._seeds)
        if version is None or version != self._seeds_read[0]:
            self._seeds_read = version, open_lines(self._seeds, _SEEDS_REMEDY)
        return self._seeds_read[1]

    def _copy(self, large: SeedFile, tell: Callable[[str], None], others: Sequence[SeedStream]) -> SeedStream:
        """Under a name that no stream has."""
        number = 1 + max((int(stream.name.split("-")[1].split(".")[0]) for stream in others), default=0)
        return write_stream(self.own / f"seeds-{number}.pack", large.pieces(tell))

    def _write_seeds(self, seeds: Iterable[str], streams: Iterable[SeedStream] = ()) -> None:
        lines = [*dict.fromkeys(seeds), *(stream.line() for stream in streams)]
        replace_file(self._seeds, sealed_lines(lines))


def _version(path: Path) -> _Version | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
