"""The queue of a pod on Redis: admits URLs, each in the pod that it belongs to, and restores excluded items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.frontier.contract import Admission, Item, PageLinks
from weft.frontier.redis.item_packing import unpacked, unpacked_item
from weft.frontier.redis.link import PURPOSES, PodLink
from weft.frontier.redis.parts.intake import PodIntake
from weft.frontier.redis.parts.lead import Lead
from weft.frontier.redis.pods.pod_routing import PodRouter
from weft.frontier.redis.scripts import Argument
from weft.records import Found


class RedisQueue:
    """See the contract."""

    def __init__(self, link: PodLink, intake: PodIntake | PodRouter, lead: Lead) -> None:
        self._link = link
        self._intake = intake
        self._lead = lead

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues new URLs, each in its pod; redirect targets, robots.txt and sitemaps before the rest."""
        return self._intake.admit(crawl, found)

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """Queues the new links of pages with a single call."""
        return self._intake.admit(crawl, [one for some in links for one in some.found()])

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """The URLs that this process does not know as seen in their pods; `admit` asks the servers about these."""
        return self._intake.unseen(crawl, candidates)

    def restore_excluded(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues again those excluded items that are `wanted` now; returns how many."""
        cursor: Any = 0
        back = 0
        while True:
            cursor, records = self._link.ask("HSCAN", f"aside:{crawl}", cursor, "COUNT", 500)
            items = [self._excluded_item(record) for record in records.values()]
            arguments: list[Argument] = [self._link.number(item.item) for item in items if wanted(item)]
            if arguments:
                back += int(self._link.call("aside", ["back", crawl, *arguments])[0])
                self._link.next_claim.after(0.0)
            if not int(cursor):
                return back

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything queued for a crawl, one kind after the other; spilled items only on the lead's node."""
        link, depths = self._link, self._link.crawls[crawl].has_depths
        for kind in ("r", "u", "m"):
            for keys in link.scan(f"{kind}:{crawl}:*"):
                for name in keys:
                    site = name.split(b":", 2)[2].decode()
                    for member in link.ask("ZRANGE", name, 0, -1):
                        yield self._item_of(unpacked_item(member[6:]), site)
        for kind in ("q", "g", "w"):
            for keys in link.scan(f"{kind}:{crawl}:*"):
                for name in keys:
                    _, _, depth, key = name.split(b":", 3)
                    entries = link.ask("LRANGE", name, 0, -1)
                    for entry in self._lead.spilled(entries) if kind == "g" else entries:
                        rest = entry[6 + entry[5] :] if depths else entry[5:]
                        origin, path, parent, offsite = unpacked(rest, key.decode())
                        number = link.item(int.from_bytes(entry[:5], "big"))
                        yield Item(number, origin + path, int(depth), parent, offsite=offsite)

    def _excluded_item(self, record: bytes) -> Item:
        site, fields = unpacked_item(record)
        return self._item_of(fields, site.decode())

    def _item_of(self, fields: list[Any], key: str) -> Item:
        number, depth, hops, letter, attempt, about, rest, _ = fields
        origin, path, parent, offsite = unpacked(rest, key)
        return Item(
            self._link.item(number), origin + path, depth, parent, hops, PURPOSES[letter], about.decode(), attempt,
            offsite,
        )  # fmt: skip
