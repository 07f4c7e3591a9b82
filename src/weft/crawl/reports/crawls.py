"""The crawls of any folder, for reports: the one of `weft crawl`, or those of an engine, by name.

A report gets a folder and the name of a crawl, or None for all. A crawl's settings are read from the folder; its
process need not be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.siblings import all_data_dirs
from weft.engine.crawls.recorded import recorded_config
from weft.engine.crawls.settings_record import SettingsRecord
from weft.engine.crawls.tenant import TenantRecord
from weft.engine.folder import CRAWL_SUFFIX
from weft.engine.model import CrawlSnapshot, CrawlState
from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.errors import BadInput, WeftError
from weft.store.pages import PageStore

MOST_NAMED = 5  # in the message about an unknown name
ANSWER_S = 10.0  # an engine that takes longer is treated as not running


class ReportCrawl:
    """One crawl of a folder. Its `number` is 0 if every row of the folder belongs to it."""

    def __init__(self, folder: CrawlFolder, name: str, number: int, record: TenantRecord | SettingsRecord) -> None:
        self.folder = folder
        self.name = name
        self.number = number
        self.record = record

    @property
    def state(self) -> CrawlState:
        """The state in the engine's record; a crawl of `weft crawl` has a status of its own."""
        return self.record.state if isinstance(self.record, TenantRecord) else CrawlState.OPEN

    @property
    def revision(self) -> int:
        """The number of the settings in force."""
        return self.record.revision

    def config(self, revision: int = 0) -> Config:
        """Its settings: of a revision, or the current ones (0)."""
        if isinstance(self.record, SettingsRecord):
            return self.record.config(revision)
        return recorded_config(self.folder.home, self.record, revision)

    def robots_key(self, origin: str) -> str:
        """The key under which the robots.txt of an origin is stored for this crawl."""
        trust = self.record.trust if isinstance(self.record, TenantRecord) else ""
        return f"{trust} {origin}" if trust else origin

    @property
    def rules(self) -> tuple[str, ...]:
        """The fields that it extracts from pages."""
        return tuple(self.config().extract.extract)

    def seeds(self) -> list[str]:
        """Its seeds; for an engine's crawl from the record."""
        return self.record.roots if isinstance(self.record, TenantRecord) else self.folder.seeds()

    def scope_seeds(self) -> Iterator[str]:
        """Additional URLs for its scope: the origins of large seed files."""
        return iter(()) if isinstance(self.record, TenantRecord) else self.folder.scope_seeds()


class ReportFolder:
    """A folder with its crawls for reports; must be closed."""

    def __init__(self, data_dirs: Sequence[str | Path]) -> None:
        self.folder = CrawlFolder(all_data_dirs(data_dirs))
        self.identity = self.folder.check_data_dirs()
        self.is_engines = not self.folder.is_of_one_crawl()
        self._store: PageStore | None = None

    @property
    def store(self) -> PageStore:
        """The stored pages; raises BadInput if there are none yet."""
        if self._store is None:
            self._store = PageStore.open(self.folder.data_dirs, read_only=True)
        return self._store

    def close(self) -> None:
        """Closes the files."""
        if self._store is not None:
            self._store.abandon()

    def crawls(self, name: str | None = None) -> list[ReportCrawl]:
        """The crawl with a name, or all in the order in which they were opened; raises BadInput for an unknown name."""
        if not self.is_engines:
            if name not in (None, CRAWL_SUFFIX):
                raise self._unknown_crawl_error(name, [CRAWL_SUFFIX])
            return [ReportCrawl(self.folder, CRAWL_SUFFIX, 0, self.folder.settings_record())]
        if name is None:
            return sorted(self._all_crawls(), key=lambda crawl: crawl.number)
        number = self.store.crawl_named(name)
        row = None if number is None else self.store.crawl(number)
        if number is None or row is None:
            raise self._unknown_crawl_error(name, [crawl.name for crawl in self._all_crawls()])
        return [self._make_crawl(number, *row)]

    def crawls_numbered(self, numbers: set[int]) -> list[ReportCrawl]:
        """The existing crawls among some numbers."""
        if not self.is_engines:
            return self.crawls()
        rows = {number: self.store.crawl(number) for number in sorted(numbers)}
        crawls = (self._make_crawl(number, *one) for number, one in rows.items() if one is not None)
        return [crawl for crawl in crawls if crawl.state is not CrawlState.FORGOTTEN]

    def _all_crawls(self) -> Iterator[ReportCrawl]:
        crawls = (self._make_crawl(*row) for row in self.store.crawls())
        return (crawl for crawl in crawls if crawl.state is not CrawlState.FORGOTTEN)

    def _make_crawl(self, number: int, name: str, record: bytes) -> ReportCrawl:
        return ReportCrawl(self.folder, name, number, msgspec.msgpack.decode(record, type=TenantRecord))

    def _unknown_crawl_error(self, name: str | None, there: list[str]) -> BadInput:
        some = ", ".join(map(repr, there[-MOST_NAMED:])) or "none"
        more = f" and {len(there) - MOST_NAMED:,} others" if len(there) > MOST_NAMED else ""
        return BadInput(f"there is no crawl {name!r} in {self.folder.home}; there are: {some}{more}")

    def live_snapshots(self, names: Sequence[str] | None = None) -> dict[str, CrawlSnapshot] | None:
        """The snapshots of the folder's engine: of the named crawls, or of all that have not ended. None if no engine
        answers."""
        asked = {"live": True} if names is None else {"names": list(names)}
        try:
            connection = Connection(socket_path(self.folder.home))
        except EngineGone:
            return None
        try:
            snapshots = msgspec.convert(connection.call_within(ANSWER_S, "standings", **asked), list[CrawlSnapshot])
        except (WeftError, TimeoutError):
            return None
        finally:
            connection.close()
        return {snapshot.name: snapshot for snapshot in snapshots}
