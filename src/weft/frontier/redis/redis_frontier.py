"""The frontier of a pod on its Redis, shared by the pod's processes: its parts, opened and closed together.

Each operation is one script, so it is atomic whichever process dies (keys: lua/common.lua). Redis holds which sites are
due, what is queued, seen and leased, and every politeness clock; the disk holds the request logs (one for each slot),
robots.txt bodies and the tails of long queues. Time is the server's. Callers get it converted to this process's clock;
the end of a transfer is sent as its age, so a delay in transit makes a site due later, never earlier.

The states of an item: queued → leased → (cooled) → prepared for a batch of this slot → deleted; where parsers are
processes of their own: leased → fetched → leased to a parser → prepared. A lease is identified by its stamp, which is
unique.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from weft.alive import Alive, silent
from weft.config import PolitenessSection
from weft.frontier.redis.link import LinkOptions, OwnPodLink
from weft.frontier.redis.marks import PodMarks
from weft.frontier.redis.parts.address_slots import AddressSlots
from weft.frontier.redis.parts.held import HeldLeases
from weft.frontier.redis.parts.lead import PodSpiller
from weft.frontier.redis.parts.parse_queue import RedisParseQueue
from weft.frontier.redis.parts.pod_processes import PodProcesses
from weft.frontier.redis.parts.redis_crawls import RedisCrawls
from weft.frontier.redis.parts.redis_durability import RedisDurability
from weft.frontier.redis.parts.redis_leases import RedisLeases
from weft.frontier.redis.parts.redis_notes import RedisNotes
from weft.frontier.redis.parts.redis_queue import RedisQueue
from weft.frontier.redis.parts.redis_recovery import RedisRecovery
from weft.frontier.redis.parts.redis_rejected import RedisRejected
from weft.frontier.redis.parts.redis_revisits import RedisRevisits
from weft.frontier.redis.parts.redis_sites import RedisSites
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.mail import PodMail
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.pods.pod_routing import PodRouter
from weft.frontier.redis.scripts import ScriptArgument
from weft.frontier.requests import RequestLog, Retention
from weft.records import Found, Purpose, Reason

if TYPE_CHECKING:
    from redis import Redis

IDLE_S = 0.1  # a claim without result is not repeated sooner, unless something has changed here


class RedisFrontier:
    """See the contract."""

    pods: PodRouter | None = None  # of a process that sends to other pods

    def __init__(
        self,
        connection: Redis,
        folder: Path,
        section: PolitenessSection,
        *,
        slot: str,
        incarnation: int = 1,
        revision: int = 0,
        bloom_filter: tuple[int, float] | None = None,
        wall: Callable[[], float] = time.time,
        idle_s: float = IDLE_S,
        alive: Alive = silent,
        others: Mapping[int, OtherPod] | None = None,
        outbox: Path | None = None,
        **of_link: Unpack[LinkOptions],
    ) -> None:
        """`alive` is called for each piece of work that grows with the crawl. `others` and `outbox`: see
        `RoutedRedisFrontier`."""
        self.owner = f"{slot}#{incarnation}"
        self._marks = PodMarks(folder / "marks", slot)
        self._shared_records = shelf = SharedRecords(folder / "robots.db")
        self.link = link = OwnPodLink(connection, section, self._marks, **of_link)
        retention = Retention(section.log_days, section.log_bytes)
        self._requests = requests = RequestLog(folder / "requests" / slot, link.now(), revision, retention)
        link.open()
        held = HeldLeases(link, self.owner, requests)
        self.pod = pod = PodClient(link, refused=self._record_over_budget)
        self.status, self.permits = pod.status, pod.permits
        self.crawls = crawls = RedisCrawls(link, requests, bloom_filter)
        self.spiller = PodSpiller(link, folder / "spill", alive)
        router = None
        if others is not None and outbox is not None:
            self.pods = router = PodRouter(pod, slot, crawls.by_name, others, outbox, wall)
        places = None
        if section.key_scope == "ip":
            ask = router.call_address_slots if router is not None else self._call_own_address_slots
            places = AddressSlots(slot, self.owner, link.pod, link.pods, ask, link.now, held.slots_of)
        self.queue = RedisQueue(link, router or pod.intake, self.spiller)
        self.notes = RedisNotes(link, shelf, router.extend_scope if router else None)
        self.sites = RedisSites(link, held, shelf, requests, places, wall, router.send_robots if router else None)
        self.mail = PodMail(link, self.sites)
        self.leases = RedisLeases(link, slot, held, requests, crawls, self.sites, places, idle_s)
        self.parse_queue = RedisParseQueue(link, held, requests, crawls, self.leases)
        self.rejected = RedisRejected(link, slot, held, shelf, self.sites, wall)
        self.revisits = RedisRevisits(link, pod.intake, self.sites, self.notes, alive)
        self.durability = RedisDurability(link, slot, requests, shelf, router.outgoing.sync if router else None)
        self.processes = PodProcesses(link, held, requests)
        self.recovery = RedisRecovery(link, slot, pod.intake, held, self.processes, self.durability, places, alive)

    def now(self) -> float:
        """This process's clock."""
        return self.link.now()

    def close(self) -> None:
        """Commits, and releases files and connections."""
        if self.link.is_usable:
            self.durability.commit()
        self._requests.close()
        self._shared_records.close()
        self._marks.close()
        if self.pods is not None:
            self.pods.outgoing.close()

    def _record_over_budget(self, crawl: int, found_url: Found) -> None:
        if found_url.purpose is Purpose.SITEMAP:
            self._shared_records.record_sitemap(crawl, found_url)
        self._shared_records.record_refusal(crawl, Reason.BUDGET, found_url.url, found_url.parent)

    def _call_own_address_slots(self, pod: int, arguments: Sequence[ScriptArgument]) -> list[bytes]:
        assert pod == self.link.pod, "there are other pods"
        return self.pod.call_address_slots(arguments)


class RoutedRedisFrontier(RedisFrontier):
    """The frontier of a process that sends other pods their URLs."""

    pods: PodRouter

    def __init__(self, *args: Any, others: Mapping[int, OtherPod], outbox: Path, **more: Any) -> None:
        super().__init__(*args, others=others, outbox=outbox, **more)
