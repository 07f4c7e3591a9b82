"""Hosts whose pages look like shells and gain nothing in a browser: `render: auto` does not render them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from weft import urls

USELESS_RENDERINGS = 3  # pages of a host in a row that gained nothing in a browser
READABLE_FOR_S = 86400.0  # after which pages of such a host are rendered again
HOSTS_KEPT = 10_000


class ShellHosts:
    """Remembers a bounded number of hosts, those that were rendered last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hosts: OrderedDict[str, tuple[int, float]] = OrderedDict()  # pages in a row, and the time of the last

    def is_no_better(self, url: str) -> bool:
        """Whether a page of this host is expected to gain nothing in a browser."""
        pages, at = self._hosts.get(urls.host_of(url), (0, 0.0))
        return pages >= USELESS_RENDERINGS and self._clock() < at + READABLE_FOR_S

    def record_rendering(self, url: str, *, gained: bool) -> None:
        """Records that a page which looked like a shell was rendered; `gained`: it has readable text now."""
        host = urls.host_of(url)
        pages, _ = self._hosts.pop(host, (0, 0.0))
        if not gained:
            self._hosts[host] = (min(pages, USELESS_RENDERINGS) + 1, self._clock())
            if len(self._hosts) > HOSTS_KEPT:
                self._hosts.popitem(last=False)
