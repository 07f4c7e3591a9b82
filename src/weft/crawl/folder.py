"""A crawl on disk: what lies where in its data dirs, and who may use them.

    DATA/crawl.json     what the crawl is: layout, id, when, the public suffix list it was sharded with
    DATA/config.json    the settings in force, and every change of them (see record.py)
    DATA/dirs.json      of a crawl with several data dirs, in each of them: where all are (see siblings.py)
    DATA/seeds.txt      its seeds, canonical, one a line; large seed files by name
    DATA/seeds-N.pack   large seed files (see seed_streams.py); their origins: seeds-N.origins (seed_origins.py)
    DATA/origins.txt    the origins that its credentials go to, one a line; where it has credentials
    DATA/yielded.json   which pages `weft.crawl` has yielded (see yielded.py)
    DATA/status.json    how it stands; read by displays
    DATA/status/        how each process stands, where there are several
    DATA/recrawl.json   where the last recrawl began
    DATA/lock           held by the process that runs it
    DATA/frontier/      what is queued, and the request log; of several pods, each in pod_N/
    DATA/warc/, index-*.db, content/    the pages; in every data dir
    DATA/logs/, metrics/

The first data dir is the crawl's home; the others hold pages alone.

Must stay true: where there is a crawl.json, the settings and seeds that it was started with are on the disk. They are
written first, and the rename of crawl.json is the commit point; so one that is missing, cut or changed is damage, and
an error. Data dirs that Weft makes are its owner's alone (0700), and so is every file in the home (0600): settings may
hold logins, URLs and logs may hold keys.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__, urls
from weft.config import Config, FetchSection, load, numbers
from weft.crawl.files import open_json, open_lines, read_sealed, sealed_json, sealed_lines
from weft.crawl.record import SettingsRecord
from weft.crawl.seed_origins import origins_of, record_origins
from weft.crawl.seed_streams import Piece, Stream, check_stream, read_pieces, streams_in, write_stream
from weft.crawl.seeds import SeedFile, all_seeds
from weft.crawl.siblings import record_siblings
from weft.credentials import harmless, seed_origins
from weft.errors import BadInput, Busy, Damaged, NoCrawl, unreadable
from weft.files import is_locked, replace_file, try_lock
from weft.store.pages import PageStore
from weft.telemetry import Slot

LAYOUT = 1
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
_OWN = (
    "crawl.json",
    "config.json",
    "recrawl.json",
    "seeds.txt",
    "origins.txt",
    "dirs.json",
    "dirs.tmp",
    "yielded.json",
    "yielded.tmp",
    "crawl.tmp",
    "config.tmp",
    "recrawl.tmp",
    "seeds.tmp",
    "origins.tmp",
    "status.json",
    "status",
    "frontier",
    "spool",
    "warc",
    "content",
    "metrics",
    "logs",
)


def new_crawl_id() -> str:
    """What no other crawl is called."""
    return uuid.uuid4().hex[:12]


class Identity(msgspec.Struct):
    """The content of crawl.json."""

    layout: int
    crawl_id: str
    weft: str
    created_at: float
    suffix_list: str
    data_dirs: int
    pods: int = 1
    on_redis: bool = False
    node: str = ""  # what this node is known by to the others that crawl with it
    sealed: bool = False  # settings and seeds carry a digest: older crawls have none


class RecrawlStart(msgspec.Struct, frozen=True):
    """Where a pod's recrawl began: what it queues has later numbers, and what was queued before is fetched later."""

    last_item: int
    at: float = inf  # by the wall clock; an older Weft did not note it


def _recrawl_start(data: bytes) -> RecrawlStart:
    found = msgspec.json.decode(data, type=RecrawlStart | int)
    return RecrawlStart(found) if isinstance(found, int) else found


class CrawlFolder:
    """The data dirs of one crawl."""

    def __init__(self, data_dirs: Sequence[str | Path]) -> None:
        self.data_dirs = [Path(folder) for folder in data_dirs]
        self.home = self.data_dirs[0]
        self.frontier = self.home / "frontier"
        self.status = self.home / "status.json"
        self.metrics = self.home / "metrics"
        self._pods: tuple[int, bool] | None = None
        self._identity = self.home / "crawl.json"
        self._seeds = self.home / "seeds.txt"
        self._origins = self.home / "origins.txt"
        self._lock: int | None = None

    def exists(self) -> bool:
        """Whether a crawl is there."""
        return self._identity.exists()

    def identity(self) -> Identity:
        """What the crawl is; refuses what this Weft cannot read."""
        try:
            identity = read_sealed(self._identity.read_bytes(), Identity)
        except FileNotFoundError:
            if (self.home / "engine.json").exists():
                raise BadInput(
                    f"{self.home} is the folder of a `weft.Engine`, not of one crawl: read it with "
                    "`weft.Engine(...).standings()`, `.events(name)` and `.pages(name)`; see docs/engine.md"
                ) from None
            if self.holds_pages():
                raise Damaged(self._identity, "is missing, and there are pages", "restore it from a backup") from None
            raise NoCrawl(self.home) from None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable(self._identity, error, "restore it from a backup") from None
        if identity is None:
            raise Damaged(self._identity, "is not what was written", "restore it from a backup")
        if identity.layout != LAYOUT:
            raise BadInput(
                f"{self.home}: the crawl has layout {identity.layout}, this Weft reads {LAYOUT}; "
                f"use the Weft that made it ({identity.weft})"
            )
        return identity

    def holds_pages(self) -> bool:
        """Whether pages are there, of this crawl or of one whose crawl.json is gone."""
        return any(self.home.glob("index-*.db")) or (self.home / "warc").exists()

    @property
    def pods(self) -> int:
        """How many pods the crawl has."""
        return self._divided()[0]

    @property
    def here(self) -> tuple[int, ...]:
        """The pods that this node runs; its data dirs hold the pages of those alone."""
        only = self.settings().get("only_pods")
        return numbers(only) if only else tuple(range(self.pods))

    @property
    def on_redis(self) -> bool:
        """Whether the pods' frontiers are on Redis."""
        return self._divided()[1]

    @property
    def is_one_process(self) -> bool:
        """Whether one process does it all: one embedded pod."""
        return self._divided() == (1, False)

    def _divided(self) -> tuple[int, bool]:
        if self._pods is None:
            identity = self.identity()
            self._pods = identity.pods, identity.on_redis
        return self._pods

    @property
    def node(self) -> str:
        """This node's name, for the others: what it is known by, and where it is."""
        place = f"{socket.gethostname()}:{self.home.resolve()}"
        return f"{self.identity().node or place}@{place}"

    def of_pod(self, pod: int) -> Path:
        """Where a pod's frontier lies."""
        return self.frontier if self.is_one_process else self.frontier / f"pod_{pod}"

    def pulse_of(self, slot: Slot) -> Path:
        """Where a process's heartbeat and suspect lie."""
        return self.of_pod(slot.pod) / slot.name if self.on_redis else self.of_pod(slot.pod)

    def spool_of(self, pod: int) -> Path:
        """Where a pod's fetched pages wait for its parsers (see engine/loop/spool.py)."""
        return self.home / "spool" / f"pod_{pod}"

    def frontiers(self) -> list[Path]:
        """Where the frontiers of all pods lie."""
        return [self.of_pod(pod) for pod in range(self.pods)]

    def status_of(self, slot: Slot) -> Path:
        """Where a process tells how it stands; one that is alone tells it for the crawl."""
        return self.status if self.is_one_process else self.home / "status" / f"{slot.name}.json"

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
    ) -> Identity:
        """Makes a new crawl, or this node's part of the one that has that id: all of it, or none.

        `defaults`: the keys of `settings` that nobody named. `large`: a seed file that is read while the crawl runs;
        `tell` hears how far its copy is.
        """
        identity = Identity(
            LAYOUT,
            crawl_id or new_crawl_id(),
            __version__,
            time.time(),
            urls.suffix_list_version(),
            len(self.data_dirs),
            pods,
            on_redis,
            uuid.uuid4().hex[:12],
            sealed=True,
        )
        self._pods = pods, on_redis
        self._write_settings(SettingsRecord(dict(settings or {}), sorted(defaults)))
        self._write_seeds(seeds, [self._copy(large, tell, [])] if large is not None else [])
        record_siblings(self.data_dirs, identity.crawl_id)
        replace_file(self._identity, sealed_json(msgspec.to_builtins(identity)))
        return identity

    def go_on(self) -> Identity:
        """Opens the crawl that is there, to go on with it."""
        identity = self.identity()
        if identity.data_dirs != len(self.data_dirs):
            raise BadInput(
                f"{self.home}: the crawl has {identity.data_dirs} data dirs, {len(self.data_dirs)} were given; "
                "give the same ones in the same order"
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
            for path in (*folder.glob("index-*"), *folder.glob("seeds-*.pack"), *folder.glob("seeds-*.origins")):
                path.unlink()

    def settings(self) -> dict[str, Any]:
        """The crawl's settings; Damaged where they are not what was written."""
        return self.settings_record().values

    def settings_record(self) -> SettingsRecord:
        """The crawl's settings and their changes; Damaged where they are not what was written."""
        path = self.home / "config.json"
        content = open_json(path, _SETTINGS_REMEDY, must_be_sealed=self.identity().sealed)
        try:
            return SettingsRecord.read(content)
        except msgspec.ValidationError as error:
            raise Damaged(path, f"cannot be read: {error}", _SETTINGS_REMEDY) from None

    def config(self) -> Config:
        """The crawl's settings, as a report applies them."""
        record = self.settings_record()
        return load(environment={}, earlier=record.values, earlier_defaults=record.defaults).config

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
        replace_file(self.home / "config.json", sealed_json(msgspec.to_builtins(record)))

    def recrawl(self) -> dict[int, RecrawlStart]:
        """Where the last recrawl of each pod began; empty if there was none."""
        began = {}
        for pod in range(self.pods):
            path = self._recrawl(pod)
            try:
                began[pod] = _recrawl_start(path.read_bytes())
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
        return self.home / "recrawl.json" if self.is_one_process else self.of_pod(pod) / "recrawl.json"

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

    def streams(self) -> list[Stream]:
        """The large seed files, which are read while the crawl runs."""
        return streams_in(self._seed_lines())

    def check_streams(self) -> None:
        """Damaged where a large seed file is not what was written; reads them through."""
        for stream in self.streams():
            check_stream(self.home, stream, _SEEDS_REMEDY)

    def pieces(self, stream: Stream, at: int = 0) -> Iterator[Piece]:
        """The pieces of a large seed file."""
        return read_pieces(self.home, stream, _SEEDS_REMEDY, at)

    def record_scope_origins(self, tell: Callable[[str], None]) -> None:
        """Reads the origins of large seed files, for their scope; what is recorded already is not read again."""
        for stream in self.streams():
            record_origins(self.home, stream, partial(self.pieces, stream), tell)

    def scope_seeds(self) -> Iterator[str]:
        """For every origin of a large seed file one URL, or several: what scope and credentials go by."""
        for stream in self.streams():
            origins, at = origins_of(self.home, stream)
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
            (self.home / added.name).unlink()
            added = None
        if together != known or added is not None:
            self._write_seeds(together, [*streams, *([added] if added is not None else [])])

    def origins(self) -> list[str]:
        """The origins that the crawl's credentials go to, as they were recorded; none where nothing was."""
        return open_lines(self._origins, _ORIGINS_REMEDY, must_be_sealed=True) if self._origins.exists() else []

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
        begun = self.exists()
        if not begun and not self._seeds.exists():
            return []
        return open_lines(self._seeds, _SEEDS_REMEDY, must_be_sealed=begun and self.identity().sealed)

    def _copy(self, large: SeedFile, tell: Callable[[str], None], others: Sequence[Stream]) -> Stream:
        """Under a name that no stream has."""
        number = 1 + max((int(stream.name.split("-")[1].split(".")[0]) for stream in others), default=0)
        return write_stream(self.home / f"seeds-{number}.pack", large.pieces(tell))

    def _write_seeds(self, seeds: Iterable[str], streams: Iterable[Stream] = ()) -> None:
        lines = [*dict.fromkeys(seeds), *(stream.line() for stream in streams)]
        replace_file(self._seeds, sealed_lines(lines))
