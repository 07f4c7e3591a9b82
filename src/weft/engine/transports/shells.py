"""Which hosts have pages that look like shells and are no better in a browser: `render: auto` leaves them alone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from weft import urls

IN_VAIN = 3  # pages of a host in a row that had nothing more in a browser
READABLE_S = 86400.0  # for which the others are taken as they are, then
HOSTS_KEPT = 10_000


class ShellHosts:
    """Remembers a bounded number of hosts, those that were rendered last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hosts: OrderedDict[str, tuple[int, float]] = OrderedDict()  # pages in a row, and when the last was

    def is_no_better(self, url: str) -> bool:
        """Whether a browser would show no more of a page of this host, as far as is known."""
        pages, at = self._hosts.get(urls.host_of(url), (0, 0.0))
        return pages >= IN_VAIN and self._clock() < at + READABLE_S

    def rendered(self, url: str, *, gained: bool) -> None:
        """A page that looked like a shell was rendered; `gained`: there was something to read then."""
        host = urls.host_of(url)
        pages, _ = self._hosts.pop(host, (0, 0.0))
        if not gained:
            self._hosts[host] = (min(pages, IN_VAIN) + 1, self._clock())
            if len(self._hosts) > HOSTS_KEPT:
                self._hosts.popitem(last=False)
