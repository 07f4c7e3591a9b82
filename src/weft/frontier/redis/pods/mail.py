"""What other nodes leave in a pod's Redis for the node that has its files:

told     list   robots.txt of this pod's origins, fetched by processes of other nodes
nearer   list   stored pages that other nodes have found at a smaller depth; written by lua/admit.lua
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from weft.frontier.outbox import RobotsNotice
from weft.frontier.redis.item_packing import unpack_entry, unpacked_item
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.redis_sites import RedisSites

MAILS_AT_ONCE = 100


class PodMail:
    """The mail of a pod."""

    def __init__(self, link: PodLink, sites: RedisSites) -> None:
        self._link = link
        self._sites = sites

    def deliver(self, expand: Callable[[Sequence[tuple[int, str, int]]], None]) -> None:
        """Handles new mail; called by one process of the pod. Repeated after a kill."""
        notices = self._link.run_command("LRANGE", "told", 0, MAILS_AT_ONCE - 1)
        for entry in notices:
            notice = msgspec.msgpack.decode(entry, type=RobotsNotice)
            self._sites.robots_known(notice.origin, notice.record, notice.crawl_delay_s)
        if notices:
            self._link.run_command("LTRIM", "told", len(notices), -1)
        nearer = self._link.run_command("LRANGE", "nearer", 0, MAILS_AT_ONCE - 1)
        if nearer:
            expand([self._unpack_page(entry) for entry in nearer])
            self._link.run_command("LTRIM", "nearer", len(nearer), -1)

    def _unpack_page(self, entry: bytes) -> tuple[int, str, int]:
        number, depth, site, rest = unpacked_item(entry)
        origin, path, _, _ = unpack_entry(rest, site.decode())
        return self._link.item_of_number(int(number)), origin + path, depth
