"""Shares a crawl's cookies between processes that crawl one site: what one receives, the others send with their next
request.

Each process has a jar; the frontier keeps a copy of each site's part; a lease has the version of the newest. A copy is
only changed when names or values are: a site that sets the same cookie on every page costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft import urls
from weft.fetch.cookies import CookieJar
from weft.frontier.contract import SitesPart
from weft.records import Lease

MAX_SHARED_BYTES = 64 * 1024  # of one site's cookies: more than this is not shared with other processes
_MOST_SITES = 50_000


class CookieShare:
    """Keeps one crawl's jar in step with those of the other processes. A crawl may have several, by name."""

    def __init__(self, crawl: int, jar: CookieJar, sites: SitesPart, name: str = "") -> None:
        self._crawl = crawl
        self.jar = jar
        self._suffix = f" {name}" if name else ""
        self._cookies_by_site = sites
        self._loaded_versions: dict[str, int] = {}  # by site: the version of the copy in the jar

    def load_shared_cookies(self, lease: Lease) -> None:
        """Loads the cookies that other processes got from the lease's site."""
        if self._suffix:
            lease = msgspec.structs.replace(lease, key=lease.key + self._suffix)
        copy = self._cookies_by_site.cookies_of(lease)
        if copy is not None and self._loaded_versions.get(lease.key) != copy[0]:
            self.jar.load(copy[1])
            self._keep_copy(lease.key, copy[0])

    def store_cookies(self, url: str, path: str, values: Sequence[str], now: float) -> None:
        """Stores the cookies that a response set, and shares them if names or values have changed."""
        host = urls.host_of(url)
        base = urls.domain(host)
        before = self.jar.contents(base)
        self.jar.store(host, path, url.startswith("https:"), values, now)
        if self.jar.contents(base) == before:
            return
        data = self.jar.dump(base)
        if len(data) <= MAX_SHARED_BYTES:
            key = self._cookies_by_site.key_of(url) + self._suffix
            self._keep_copy(key, self._cookies_by_site.keep_cookies(self._crawl, key, data))

    def _keep_copy(self, key: str, copy: int) -> None:
        if len(self._loaded_versions) >= _MOST_SITES:
            self._loaded_versions.clear()
        self._loaded_versions[key] = copy
