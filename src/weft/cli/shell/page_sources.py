"""Where the pages of `weft shell` come from: the network, or the folder of a crawl.

`RequestedPages` asks for each page as a crawl of one URL, in an engine of its own: robots.txt, delays, the address
guard, redirects, rendering and logins are those of every crawl. `FolderPages` reads what is stored, without a request.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from weft import urls
from weft.config import Loaded, keys, was_given
from weft.errors import BadInput, WeftError

if TYPE_CHECKING:
    from weft.engine.handle import Engine
    from weft.engine.model import CrawlSnapshot
    from weft.engine.stored.stored_page import CrawledPage
    from weft.engine.user_code.request import Request

NOTICE_S = 3.0  # after that long the prompt says what it waits for
_SECTIONS = frozenset({"politeness", "fetch", "proxy"})
_NOT_FOR_ONE_PAGE = frozenset({"workers"})
_IS_FOR_CRAWLS = re.compile("`resume|weft explain").search  # advice that only a crawl with a folder can follow


class PageNotFetched(WeftError):
    """A page that `weft shell` could not get: the message says why."""


class PageSource(Protocol):
    """Where pages come from."""

    def get(self, request: Request) -> tuple[CrawledPage, str]:
        """The page of a request, and the callback that it was requested for; raises WeftError if there is none."""

    def close(self) -> None:
        """Releases everything."""


class RequestedPages:
    """Pages from the network. The engine is started with the first request."""

    def __init__(self, loaded: Loaded, note: Callable[[str], None]) -> None:
        self._loaded = loaded
        self._note = note
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._engine: Engine | None = None
        self._requests = 0

    def get(self, request: Request) -> tuple[CrawledPage, str]:
        """Asks for a page, after the delay of its site."""
        if request.method != "GET":
            raise BadInput(f"{request.method} {request.url}: the prompt sends GET alone; `weft run` sends this request")
        url = urls.seed(request.url)
        engine, name = self._started_engine(), f"page-{self._requests}"
        self._requests += 1
        engine.open(name, [url], **self._settings_for(request))
        try:
            snapshot = self._wait(engine, name, url)
        except BaseException:
            engine.cancel(name)  # interrupted: the page is not fetched later
            raise
        return self._read_page(snapshot, url), request.callback

    def close(self) -> None:
        """Ends the engine, and deletes what it has stored."""
        if self._engine is not None:
            self._engine.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _started_engine(self) -> Engine:
        if self._engine is None:
            from weft.engine.handle import Engine

            self._folder = tempfile.TemporaryDirectory(prefix="weft-shell-", ignore_cleanup_errors=True)
            known = keys()
            given = {
                name: value
                for name, value in self._loaded.given().items()
                if known[name].section in _SECTIONS and name not in _NOT_FOR_ONE_PAGE
            }
            self._engine = Engine(self._folder.name, **given)
        return self._engine

    def _settings_for(self, request: Request) -> dict[str, Any]:
        """The settings of a crawl of one page. A failure is reported at once: who types can ask again."""
        values, origins = self._loaded.values, self._loaded.origins
        settings: dict[str, Any] = {"scope": "any", "seeded_urls_only": True}
        for name, value in (
            ("politeness_delay_seconds", 1.0),
            ("max_retries", 0),
            ("robots_patience_seconds", 0.0),
        ):
            settings[name] = values[name] if was_given(origins, name) else value
        if values.get("login"):
            settings["login"] = values["login"]
        if request.headers:
            settings["headers"] = {**values["headers"], **request.headers}
        if request.render:
            settings["render"] = request.render
        if request.actions:
            settings["render_actions"] = [dict(action) for action in request.actions]
        return settings

    def _wait(self, engine: Engine, name: str, url: str) -> CrawlSnapshot:
        """Waits for the end of the crawl, and reports what it waits for."""
        reported = ""
        while True:
            try:
                return engine.wait(name, NOTICE_S)
            except TimeoutError:
                snapshot = engine.standing(name)  # words: ok
            if snapshot.pause_reason:
                raise PageNotFetched(f"{url}: {snapshot.pause_reason}")
            if snapshot.waiting_for and snapshot.waiting_for != reported:
                reported = snapshot.waiting_for
                self._note(f"waiting for {url}: {reported}")

    def _read_page(self, snapshot: CrawlSnapshot, url: str) -> CrawledPage:
        from weft.engine.stored.reader import EngineReader

        assert self._folder is not None
        with EngineReader(Path(self._folder.name)) as reader:
            rows = reader.rows(snapshot.id, 0, 100)
            for number, row in reversed(rows):
                page = reader.read_page(number, row) if row.warc_file and not row.error.startswith("redirect") else None
                if page is not None and not 300 <= page.status < 400:
                    page.requested_url = page.asked_url
                    return page
        last = rows[-1][1] if rows else None
        raise PageNotFetched(self._failure_message(url, last.status if last else 0, last.error if last else ""))

    def _failure_message(self, url: str, status: int, error: str) -> str:
        from weft.crawl.reports.causes import meaning_of

        meaning = meaning_of(status, error, self._loaded.config)
        if meaning is None:
            return f"{url}: its answer has no page (status {status})"
        hints = [part for part in meaning.hint.split("; ") if not _IS_FOR_CRAWLS(part)]
        advice = "; ".join(hints)
        return f"{url}: {meaning.message}{'. ' if hints else ''}{advice[:1].upper()}{advice[1:]}"


class FolderPages:
    """Stored pages of a crawl, an engine or a service. Nothing is requested."""

    def __init__(self, folder: str, crawl: str | None) -> None:
        from weft.cli.reports.folders import engine_dir
        from weft.crawl.reports.crawls import ReportFolder

        self._name = folder
        self._crawl_name = crawl
        self._report = ReportFolder([engine_dir(folder)])
        self._crawl = self._report.crawls(crawl)[0].number if crawl is not None else 0

    def get(self, request: Request) -> tuple[CrawledPage, str]:
        """The stored page of a URL, with the `meta` and for the callback that it was fetched with."""
        from weft.engine.stored.stored_page import read_page
        from weft.engine.user_code.again import spec_in_output
        from weft.spiders.child import meta_of

        store, wanted = self._report.store, urls.stored_as(request.url)
        row = next(filter(None, (store.row_of(one, self._crawl) for one in wanted)), None)
        if row is None:
            which = ["--crawl", self._crawl_name] if self._crawl_name is not None else []
            command = shlex.join(["weft", "explain", self._name, wanted[0], *which])
            raise BadInput(f"{request.url}: is not in {self._name}; `{command}` says why")
        page = read_page(store.read_page(row))
        if page is None:
            why = f": {row.error}" if row.error else ""
            raise BadInput(f"{request.url}: no page of it is stored, status {row.status}{why}")
        spec = spec_in_output(store.outputs_of([row.item]).get(row.item))
        page.parent, page.meta = spec.parent or store.url_of(row.parent), meta_of(spec)
        return page, request.callback or spec.callback

    def close(self) -> None:
        """Closes the files."""
        self._report.close()
