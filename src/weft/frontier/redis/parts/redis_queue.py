"""The queue of a pod on Redis: admits URLs, each in the pod that it belongs to, and restores excluded items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.frontier.contract import Admission, Item, PageLinks
from weft.frontier.redis.item_packing import unpack_entry, unpacked_item
from weft.frontier.redis.link import LETTER_PURPOSES, PodLink
from weft.frontier.redis.parts.intake import PodIntake
from weft.frontier.redis.parts.lead import PodSpiller
from weft.frontier.redis.pods.pod_routing import PodRouter
from weft.frontier.redis.scripts import ScriptArgument
from weft.records import Found


class RedisQueue:
    """See the contract."""

    def __init__(self, link: PodLink, intake: PodIntake | PodRouter, lead: PodSpiller) -> None:
        self._link = link
        self._intake = intake
        self._spiller = lead

    def admit(self, crawl: int, found_urls: Sequence[Found]) -> Admission:
        """Queues new URLs, each in its pod; redirect targets, robots.txt and sitemaps before the rest."""
        return self._intake.admit(crawl, found_urls)

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """Queues the new links of pages with a single call."""
        return self._intake.admit(crawl, [one for some in links for one in some.found_urls()])

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """The URLs that this process does not know as seen in their pods; `admit` asks the servers about these."""
        return self._intake.unseen(crawl, candidates)

    def restore_excluded(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues again those excluded items that are `wanted` now; returns how many."""
        cursor: Any = 0
        back = 0
        while True:
            cursor, records = self._link.run_command("HSCAN", f"aside:{crawl}", cursor, "COUNT", 500)
            items = [self._excluded_item(record) for record in records.values()]
            arguments: list[ScriptArgument] = [self._link.number_of_item(item.item) for item in items if wanted(item)]
            if arguments:
                back += int(self._link.call_script("aside", ["back", crawl, *arguments])[0])
                self._link.next_claim.allow_after(0.0)
            if not int(cursor):
                return back

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything queued for a crawl, one kind after the other; spilled items only on the lead's node."""
        link, depths = self._link, self._link.crawls[crawl].has_depths
        for kind in ("r", "u", "m"):
            for keys in link.scan_keys(f"{kind}:{crawl}:*"):
                for name in keys:
                    site = name.split(b":", 2)[2].decode()
                    for member in link.run_command("ZRANGE", name, 0, -1):
                        yield self._queued_item(unpacked_item(member[6:]), site)
        for kind in ("q", "g", "w"):
            for keys in link.scan_keys(f"{kind}:{crawl}:*"):
                for name in keys:
                    _, _, depth, key = name.split(b":", 3)
                    entries = link.run_command("LRANGE", name, 0, -1)
                    for entry in self._spiller.spilled_entries(entries) if kind == "g" else entries:
                        rest = entry[6 + entry[5] :] if depths else entry[5:]
                        origin, path, parent, offsite = unpack_entry(rest, key.decode())
                        number = link.item_of_number(int.from_bytes(entry[:5], "big"))
                        yield Item(number, origin + path, int(depth), parent, offsite=offsite)

    def _excluded_item(self, record: bytes) -> Item:
        site, fields = unpacked_item(record)
        return self._queued_item(fields, site.decode())

    def _queued_item(self, fields: list[Any], key: str) -> Item:
        number, depth, hops, letter, attempt, about, rest, _ = fields
        origin, path, parent, offsite = unpack_entry(rest, key)
        return Item(
            self._link.item_of_number(number), origin + path, depth, parent, hops, LETTER_PURPOSES[letter],
            about.decode(), attempt, offsite,
        )  # fmt: skip
