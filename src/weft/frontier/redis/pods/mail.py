"""What other nodes leave in a pod's Redis for the node that has its files:

told     list   robots.txt of this pod's origins, fetched by processes of other nodes
nearer   list   stored pages that other nodes have found at a smaller depth; written by lua/admit.lua
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from weft.frontier.outbox import RobotsNotice
from weft.frontier.redis.item_packing import unpacked, unpacked_item
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.redis_sites import RedisSites

AT_ONCE = 100


class PodMail:
    """The mail of a pod."""

    def __init__(self, link: PodLink, sites: RedisSites) -> None:
        self._link = link
        self._sites = sites

    def deliver(self, expand: Callable[[Sequence[tuple[int, str, int]]], None]) -> None:
        """Handles new mail; called by one process of the pod. Repeated after a kill."""
        notices = self._link.ask("LRANGE", "told", 0, AT_ONCE - 1)
        for entry in notices:
            notice = msgspec.msgpack.decode(entry, type=RobotsNotice)
            self._sites.robots_known(notice.origin, notice.record, notice.crawl_delay_s)
        if notices:
            self._link.ask("LTRIM", "told", len(notices), -1)
        nearer = self._link.ask("LRANGE", "nearer", 0, AT_ONCE - 1)
        if nearer:
            expand([self._nearer(entry) for entry in nearer])
            self._link.ask("LTRIM", "nearer", len(nearer), -1)

    def _nearer(self, entry: bytes) -> tuple[int, str, int]:
        number, depth, site, rest = unpacked_item(entry)
        origin, path, _, _ = unpacked(rest, site.decode())
        return self._link.item(int(number)), origin + path, depth
