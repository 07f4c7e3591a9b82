"""The proxies that crawls use: chosen by `rotation`, read from a list or from `live_proxies.json`, and kept up.

A process has one pool per file, so that all crawls share the results of a proxy. With a test URL the proxies are
tested: at first, on a schedule, and when fewer than `min_proxies` are usable; in a thread, by the first process that
notices it; no proxy is used before its test. Changed files are read again. Without a test URL, a list is used without
tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from weft import urls
from weft.config import ProxySection
from weft.errors import BadInput, Busy, WeftError
from weft.fetch.proxies import live as live_file
from weft.fetch.proxies.counts import ProxyCounts
from weft.fetch.proxies.entry import Listed, Proxy, parse_list
from weft.fetch.proxies.refresh import Refresh
from weft.fetch.proxies.rotation import FAILS_TO_DIE, ProxyOutcome, Rotation
from weft.telemetry import Log

POLL_S = 1.0
SAY_S = 60.0
_NEW_LATENCY_S = 1.0
log = Log("weft.fetch.proxies")


def read_list(path: Path) -> Listed:
    """Reads a list that a user has written; BadInput if it contains no proxy."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            listed = parse_list(file)
    except OSError as error:
        raise BadInput(f"proxies {path}: {error.strerror}; write one proxy a line into it") from None
    if not listed.proxies:
        why = f" ({listed.unreadable})" if listed.unreadable else ""
        raise BadInput(f"proxies {path}: there is no proxy in it{why}; write one a line, as http://HOST:PORT")
    return listed


def check(path: Path) -> str:
    """BadInput if there is no proxy to use. Returns a warning about invalid lines; usually empty."""
    if live_file.is_live_file(path):
        if live_file.read(path) is None:
            raise BadInput(f"proxies {path}: No such file; `weft proxies refresh` writes it")
        return ""
    unreadable = read_list(path).unreadable
    return unreadable and f"proxies {path}: {unreadable}"


class ProxyPool:
    """The pool of one file; used from one thread."""

    def __init__(
        self,
        path: Path,
        section: ProxySection,
        refresh: Refresh | None,
        *,
        counts: ProxyCounts | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`path`: a list, or a live file. `refresh`: how the proxies are tested; None if they are not."""
        self._counts = counts or ProxyCounts()
        self._path, self._section, self._refresh = path, section, refresh
        self._is_list = not live_file.is_live_file(path)
        self._clock, self._wall = clock, wall
        self.rotation = Rotation(rest_s=section.rest_s, ban_s=section.ban_s)
        self._read_from: tuple[Path, int] | None = None  # and when that was written
        self._next_poll = self._next_say = self._next_refresh = 0.0
        self._thread: threading.Thread | None = None

    def choose(self, host: str, now: float, *, sticky: bool, apart: bool) -> Proxy | None:
        """The proxy for the next request to a host; None if none is free."""
        if now >= self._next_poll:
            self._revive_due(now)
        return self.rotation.choose(urls.domain(host), now, sticky=sticky, apart=apart)

    def ended(self, proxy: Proxy, host: str, outcome: ProxyOutcome, took_s: float, now: float) -> None:
        """Records how a request ended."""
        if outcome in (ProxyOutcome.FAILED, ProxyOutcome.BLOCKED):
            log.info("proxy " + outcome.value, proxy=proxy.name, site=urls.domain(host))
        self._counts.requested(proxy, outcome.value)
        self.rotation.ended(proxy.url, urls.domain(host), outcome, took_s, now)

    def held_up(self, now: float) -> str:
        """Why no request can be sent, and what helps; empty while one can, and before the first proxy is needed."""
        if not self._next_poll or any(standing.is_free(now) for standing in self.rotation.standings):
            return ""
        if self._thread is not None and self._thread.is_alive():
            return f"the proxies of {self._path} are being tested, and none is used before"
        helps = "run `weft proxies refresh`"
        if self._is_list:
            helps = f"see `weft proxies test URL --proxies {self._path}`, and correct the file, which is read again"
        return f"no proxy of {self._path} is usable, so nothing is asked: {helps}; or set `direct_fallback=True`"

    def _revive_due(self, now: float) -> None:
        self._next_poll = now + POLL_S
        self._read()
        usable = self.rotation.usable(now)
        if self._refresh is not None:
            self._keep_up(self._refresh, usable, now)
        else:
            self._revive(now)
        if not usable and now >= self._next_say:
            self._next_say = now + SAY_S
            log.warning("no proxy is usable", known=len(self.rotation), file=self._path)

    # -- the files

    def _read(self) -> None:
        """Applies changes of the files; an unreadable file changes nothing."""
        source = self._source()
        written = None if source is None else written_at(source)
        if source is None or written is None or self._read_from == (source, written):
            return
        unreadable = ""
        try:
            if live_file.is_live_file(source):
                found = live_file.read(source)
                rows = [(one.proxy, one.latency_s) for one in found.proxies] if found is not None else []
            else:
                listed = read_list(source)
                rows, unreadable = [(proxy, _NEW_LATENCY_S) for proxy in listed.proxies], listed.unreadable
        except BadInput as error:
            log.warning("proxies cannot be read", why=error)
            return
        self._read_from = source, written
        self.rotation.replace(rows)
        log.info("proxies", count=len(rows), file=source)
        if unreadable:
            log.warning("proxies are left out", file=source, why=unreadable)

    def _source(self) -> Path | None:
        """The file to read: for a tested list, the proxies that have passed since it was written; None if the test is
        not finished.
        """
        if self._refresh is None or not self._is_list:
            return self._path
        passed, listed = written_at(self._refresh.live), written_at(self._path)
        return self._refresh.live if passed is not None and passed >= (listed or 0) else None

    # -- keeping them up

    def _keep_up(self, refresh: Refresh, usable: int, now: float) -> None:
        if now < self._next_refresh or (self._thread is not None and self._thread.is_alive()):
            return
        written = written_at(refresh.live)
        age_s = self._wall() - (written or 0) / 1e9
        is_old = age_s >= self._section.refresh_s or self._source() is None
        if not is_old and (usable >= self._section.least or age_s < self._section.pause_s):
            return
        self._next_refresh = now + max(POLL_S, self._section.pause_s)
        log.info("testing proxies", usable=usable, least=self._section.least)
        self._thread = threading.Thread(target=_run, args=(refresh,), name="proxy refresh", daemon=True)
        self._thread.start()

    def _revive(self, now: float) -> None:
        """Without tests: a proxy that was given up gets another attempt after its rest."""
        for standing in self.rotation.standings:
            if standing.is_dead and now >= standing.rests_until:
                standing.failures = FAILS_TO_DIE - 1


class PoolChooser:
    """A pool as one crawl uses it."""

    def __init__(self, pool: ProxyPool, *, sticky: bool, apart: bool) -> None:
        self._pool, self._sticky, self._apart = pool, sticky, apart

    def choose(self, host: str, _tag: object, now: float) -> Proxy | None:
        """See `client.Chooser`."""
        return self._pool.choose(host, now, sticky=self._sticky, apart=self._apart)

    def ended(self, proxy: Proxy, host: str, outcome: ProxyOutcome, took_s: float, now: float) -> None:
        """Records how a request ended."""
        self._pool.ended(proxy, host, outcome, took_s, now)


def sources_of(path: str | None, section: ProxySection) -> list[str]:
    """The sources of proxies: `proxies`, if that is a list, and `proxy_sources`."""
    listed = [path] if path and not live_file.is_live_file(Path(path)) else []
    return [*listed, *section.sources]


def live_of(path: str | None, folder: Path) -> Path:
    """The file of tested proxies: `proxies`, if that is such a file, or one in the folder."""
    is_one = path is not None and live_file.is_live_file(Path(path))
    return Path(str(path)) if is_one else folder / live_file.FILE


def usable_in(path: str | None, folder: Path) -> list[Proxy]:
    """The proxies of a list, or those that have passed their last test."""
    if path is not None and not live_file.is_live_file(Path(path)):
        return read_list(Path(path)).proxies
    found = live_file.read(live_of(path, folder))
    return [one.proxy for one in found.proxies] if found is not None else []


def written_at(path: Path) -> int | None:
    """When a file was last written, in nanoseconds; None if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _run(refresh: Refresh) -> None:
    try:
        refresh.run()
    except Busy:
        pass  # another process does it
    except WeftError as error:
        log.warning("proxies could not be tested", why=error)
    except Exception:  # the thread's edge: the crawl continues with the proxies it has
        log.error("proxies could not be tested", exc_info=True)
