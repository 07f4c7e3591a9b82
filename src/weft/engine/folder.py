"""A folder that crawls are kept in: what lies where in its data dirs, and what it is. One layout for all products.

    DATA/engine.json       what it is: layout, id, when it was made, pods, data dirs; sealed (see sealed.py)
    DATA/dirs.json         of a folder with several data dirs, in each of them: where all are (crawl/siblings.py)
    DATA/crawls/crawl/     of `weft crawl`: the settings, seeds and position of its one crawl (crawl/folder.py)
    DATA/settings/         of an engine: the settings that its crawls were opened with (crawls/recorded.py)
    DATA/status.json       a snapshot for displays; status/ has one for each process, where there are several
    DATA/lock              held by the process that runs `weft crawl`
    DATA/frontier/         what is queued, and the request log; of several pods, each in pod_N/
    DATA/spool/            fetched pages that wait for parser processes
    DATA/warc/NUMBER/      the pages of each crawl, by its number; in every data dir
    DATA/content/NUMBER/   their texts, where they are stored
    DATA/index-SLOT.db     the rows of the pages that a process has stored, and an engine's crawls; in every data dir
    DATA/logs/, metrics/

An engine's crawls are records of its index: the number of files does not grow with them. The first data dir is the
home; the others hold pages alone. A service has such a folder inside its own (jobs/layout.py).

Must stay true: where there is an engine.json, everything that a crawl cannot do without is on the disk. That is written
first, and engine.json is the commit point; so one that is missing, cut or changed is damage, and an error.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__, urls
from weft.errors import BadInput, Damaged, NoCrawl, unreadable
from weft.files import sync_folder
from weft.sealed import sealed_json, unsealed
from weft.telemetry import Slot

LAYOUT = 2
CRAWL_SUFFIX = "crawl"  # the name of the one crawl of a `weft crawl` folder
_ADVICE_BACKUP = "restore it from a backup"
_OLDER_IDENTITY_FILE = "crawl.json"  # what a folder of layout 1 has, if `weft crawl` made it


def new_id() -> str:
    """An id that no other folder has."""
    return uuid.uuid4().hex[:12]


class Identity(msgspec.Struct):
    """The content of engine.json."""

    layout: int
    id: str
    weft: str
    created_at: float
    suffix_list: str
    data_dirs: int = 1
    pods: int = 1
    on_redis: bool = False
    node: str = ""  # the name of this node among the nodes that crawl together

    @classmethod
    def new(cls, id_: str | None = None, data_dirs: int = 1, pods: int = 1, *, on_redis: bool = False) -> Identity:
        """The identity of a folder that is created now."""
        return cls(
            LAYOUT, id_ or new_id(), __version__, time.time(), urls.suffix_list_version(), data_dirs, pods, on_redis,
            new_id(),
        )  # fmt: skip


class EngineFolder:
    """The data dirs of one engine."""

    def __init__(self, data_dirs: Sequence[str | Path]) -> None:
        self.data_dirs = [Path(folder) for folder in data_dirs]
        self.home = self.data_dirs[0]
        self.frontier = self.home / "frontier"
        self.status = self.home / "status.json"
        self.metrics = self.home / "metrics"
        self.crawls = self.home / "crawls"
        self._path = self.home / "engine.json"
        self._pods: tuple[int, bool] | None = None

    def exists(self) -> bool:
        """Whether there is an engine or a crawl in the folder."""
        return self._path.exists()

    def is_of_one_crawl(self) -> bool:
        """Whether `weft crawl` made it."""
        return self.crawls.is_dir()

    def identity(self) -> Identity:
        """The folder's identity; refuses what this version of Weft cannot read."""
        try:
            values = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, NotADirectoryError):
            if (self.home / _OLDER_IDENTITY_FILE).exists():
                raise self._refuse_older_layout(1, "") from None
            if self.holds_pages():
                raise Damaged(self._path, "is missing, and there are pages", _ADVICE_BACKUP) from None
            raise NoCrawl(self.home) from None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable(self._path, error, _ADVICE_BACKUP) from None
        if isinstance(values.get("layout"), int) and values["layout"] != LAYOUT and "engine_id" in values:
            raise self._refuse_older_layout(values["layout"], values.get("weft"))
        content = unsealed(self._path, values, _ADVICE_BACKUP)
        if content.get("layout") != LAYOUT:
            raise self._refuse_older_layout(content.get("layout"), content.get("weft"))
        try:
            return msgspec.convert(content, Identity)
        except msgspec.ValidationError as error:
            raise unreadable(self._path, error, _ADVICE_BACKUP) from None

    def _refuse_older_layout(self, layout: object, weft: object) -> BadInput:
        made_by = f" ({weft})" if weft else ""
        return BadInput(
            f"{self.home}: has layout {layout}, this Weft reads {LAYOUT}: use the Weft that made it{made_by}, or "
            "choose another data dir"
        )

    def open_identity(self) -> Identity:
        """The identity of an engine's folder, which is made if it is empty; refuses a folder of `weft crawl`."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise BadInput(f"data dir {self.home}: there is a file of that name; choose another place") from None
        except OSError as error:
            raise BadInput(f"data dir {self.home}: {error.strerror}; choose another place") from None
        try:
            identity = self.identity()
        except NoCrawl:
            return self.write_identity(Identity.new())
        if self.is_of_one_crawl():
            raise BadInput(f"{self.home} holds a crawl of `weft crawl`, not an engine: choose another data dir")
        return identity

    def write_identity(self, identity: Identity) -> Identity:
        """Writes engine.json, durably; where two processes do so at the same time, gives the first one's."""
        temporary = self._path.with_suffix(f".{new_id()}")
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(sealed_json(msgspec.to_builtins(identity)))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self._path)
        except FileExistsError:
            return self.identity()
        finally:
            temporary.unlink()
        sync_folder(self.home)
        self._pods = identity.pods, identity.on_redis
        return identity

    def check_data_dirs(self) -> Identity:
        """The identity of a folder, if all of its data dirs are given; BadInput if not."""
        identity = self.identity()
        if identity.data_dirs != len(self.data_dirs):
            raise BadInput(
                f"{self.home}: the crawl has {identity.data_dirs} data dirs, {len(self.data_dirs)} were given; "
                "give the same ones in the same order"
            )
        return identity

    def holds_pages(self) -> bool:
        """Whether pages are stored here, of this engine or of one whose engine.json is lost."""
        return any(self.home.glob("index-*.db")) or (self.home / "warc").exists()

    @property
    def pods(self) -> int:
        """The number of its pods."""
        return self._read_pods()[0]

    @property
    def on_redis(self) -> bool:
        """Whether the pods' frontiers are on Redis."""
        return self._read_pods()[1]

    @property
    def is_one_process(self) -> bool:
        """Whether a single process does all the work: one embedded pod."""
        return self._read_pods() == (1, False)

    def _read_pods(self) -> tuple[int, bool]:
        if self._pods is None:
            identity = self.identity()
            self._pods = identity.pods, identity.on_redis
        return self._pods

    @property
    def node(self) -> str:
        """How other nodes name this one: its name, host and path."""
        place = f"{socket.gethostname()}:{self.home.resolve()}"
        return f"{self.identity().node or place}@{place}"

    def pod_folder(self, pod: int) -> Path:
        """The folder of a pod's frontier."""
        return self.frontier if self.is_one_process else self.frontier / f"pod_{pod}"

    def pod_folders(self) -> list[Path]:
        """The folders of all pods' frontiers."""
        return [self.pod_folder(pod) for pod in range(self.pods)]

    def heartbeat_folder(self, slot: Slot) -> Path:
        """The folder of a process's heartbeat and suspect."""
        return self.pod_folder(slot.pod) / slot.name if self.on_redis else self.pod_folder(slot.pod)

    def spool_folder(self, pod: int) -> Path:
        """The folder where a pod's fetched pages wait for its parsers (see engine/loop/parser/spool.py)."""
        return self.home / "spool" / f"pod_{pod}"

    def status_path(self, slot: Slot) -> Path:
        """The file where a process writes its status; a single process writes that of the crawl."""
        return self.status if self.is_one_process else self.home / "status" / f"{slot.name}.json"
