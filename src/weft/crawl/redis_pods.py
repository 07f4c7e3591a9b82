"""The pods on Redis, as the orchestrator keeps them: their servers, their holders, what the dead held, and the end.

One node's orchestrator holds each of the pods that it runs, for a time that it keeps renewing: a second one is refused.
Its name is the machine's and the data dir's, which is locked, so that a node that was killed takes its own pods up at
once. Whoever holds pod 0's `decider` looks at all pods, twice, and says in pod 0 when the crawl is over; all nodes read
it there. A server that does not answer makes all this wait, and nothing else: once the crawl runs, no pod's answer is
waited for longer than PATIENCE_S, or one that hangs would keep the dead of the others from being replaced.

    meta   hash   `end`: why the crawl is over, in pod 0; `seeded`: the pod has its seeds and revisits
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.opening import CRAWL
from weft.crawl.process import Process
from weft.crawl.redis_process import bloom_of, settings_of
from weft.crawl.servers import ManagedServers, forget_pods, take_pods
from weft.engine.loop import Stop
from weft.engine.suspects import take_suspect
from weft.errors import BadInput, ServerAway, ServerFull
from weft.frontier.contract import CrawlLimits, FrontierStats
from weft.frontier.redis.client import PodClient
from weft.frontier.redis.connection import address, connect, hurry, inspect
from weft.frontier.redis.frontier import RedisFrontier
from weft.frontier.redis.metrics import RedisMetrics
from weft.telemetry import Log

HOLD_S = 30.0
RENEW_EVERY_S = 5.0
JUDGE_EVERY_S = 0.25
PATIENCE_S = 1.0
AWAY_S = 2.0  # a pod that did not answer is left alone for so long
ABSENT = (ServerAway, ServerFull)
log = Log("weft.crawl.redis_pods")
Facts = list[tuple[FrontierStats, dict[str, int]]]


class RedisPods:
    """All pods of a crawl; those of this node are held."""

    def __init__(self, config: Config, folder: CrawlFolder, crawl_id: str) -> None:
        pods = config.pods
        self._config = config
        self._folder = folder
        self._crawl_id = crawl_id
        self._here = pods.here
        managed = [pod for pod, spec in enumerate(pods.pods) if spec.managed]
        self._servers = ManagedServers(folder.frontier, [pod for pod in managed if pod in self._here])
        elsewhere = ManagedServers(folder.frontier, managed).urls
        self.urls = [spec.redis_url or elsewhere[pod] for pod, spec in enumerate(pods.pods)]
        self._settings = settings_of(config)
        self._frontiers: dict[int, RedisFrontier] = {}
        self._clients: dict[int, PodClient] = {}
        self._node = f"{socket.gethostname()}:{folder.home.resolve()}"
        self._buried: list[tuple[int, str, Path | None]] = []
        self._away_until: dict[int, float] = {}
        self._renew_at = self._judge_at = 0.0
        self._first: tuple[Stop, list[object]] | None = None

    # ── opening and closing ────────────────────────────────────────────────────────────────────────────────────────

    def start(self, complain: Callable[[str], None], *, fresh: str | None = None) -> None:
        """Starts the servers, sees that all pods can be used and are this crawl's, and holds this node's.

        `fresh` is the id of a crawl that is started over: what it left in the databases is deleted.
        """
        self._servers.start()
        try:
            if fresh is not None:
                forget_pods(fresh, dict(enumerate(self.urls)), self._settings)
            take_pods(self._crawl_id, dict(enumerate(self.urls)), self._settings, here=self._here, complain=complain)
            for pod in self._here:
                self._open(pod)
            if 0 in self._frontiers:
                self._frontiers[0].note("end", "")
            self._share_permits()
        except BaseException:
            self.close()
            raise

    def metrics(self) -> RedisMetrics:
        """What the servers have to tell; of this node's pods, since other nodes tell of theirs."""
        return RedisMetrics({pod: self.urls[pod] for pod in self._here}, self._settings)

    def close(self) -> None:
        """Lets the pods go, and ends the servers that this crawl runs."""
        for frontier in self._frontiers.values():
            try:
                frontier.hold_pod(self._node, 0.0)
                frontier.decide(self._node, 0.0)
                frontier.close()
            except ABSENT as why:
                log.warning("a pod could not be let go", why=why)
        self._frontiers.clear()
        self._servers.stop()

    def _open(self, pod: int) -> None:
        connection = connect(self.urls[pod], self._settings)
        frontier = RedisFrontier(
            connection, self._folder.of_pod(pod), self._config.politeness,
            slot=f"pod{pod}-orchestrator", incarnation=int(time.time() * 1000), pod=pod, pods=len(self.urls),
            where=address(self.urls[pod], self._settings.db), bloom_filter=bloom_of(self._config),
        )  # fmt: skip
        self._frontiers[pod] = frontier
        frontier.hold_pod(self._node, HOLD_S)
        frontier.open_crawl(CRAWL, self._limits())
        frontier.note("seeded", "")  # until this run's first fetcher has brought in seeds, and what is visited again
        for slot in self._slots(pod):
            frontier.release_owner(slot + "#")
        hurry(connection, PATIENCE_S)

    def _slots(self, pod: int) -> list[str]:
        pods = self._config.pods
        fetchers = [f"pod{pod}-fetcher{index}" for index in range(pods.fetchers_per_pod)]
        return fetchers + [f"pod{pod}-parser{index}" for index in range(pods.parsers_per_pod)]

    def _share_permits(self) -> None:
        """Before anything is claimed, each pod may have what it has; its first fetcher asks for more."""
        if self._config.limits.max_pages is None or len(self.urls) == 1:
            return
        for pod, frontier in self._frontiers.items():
            crawl = frontier.open_crawl(CRAWL, self._limits())
            pages, flight, _ = frontier.given(crawl)
            first = self._client(0)
            frontier.allow(crawl, first.give_permits(first.find_crawl(CRAWL), pod, pages + flight))

    def _limits(self) -> CrawlLimits:
        limits = self._config.limits
        return CrawlLimits(limits.max_pages, limits.max_pages_per_domain, self._config.scope.max_depth)

    # ── while it runs ──────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Brings servers back that have died, gives back what the dead held, and goes on holding the pods."""
        self._servers.look()
        waiting, self._buried = self._buried, []
        for grave in waiting:
            self._bury(*grave)
        if time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + RENEW_EVERY_S
        for pod, frontier in self._frontiers.items():
            try:
                with self._asking(pod):
                    frontier.hold_pod(self._node, HOLD_S)
            except ABSENT:
                continue

    def died(self, process: Process) -> None:
        """A process of a pod has died: what it held goes back at once."""
        slot = process.slot
        self._bury(slot.pod, slot.name, self._folder.pulse_of(slot) if slot.role == "parser" else None)

    def _bury(self, pod: int, slot: str, pulse: Path | None) -> None:
        frontier = self._frontiers[pod]
        try:
            with self._asking(pod):
                if pulse is not None and (suspect := take_suspect(pulse)):
                    log.error("a page killed its parser", item=suspect, deaths=frontier.died_on(suspect))
                frontier.release_owner(slot + "#")
        except ABSENT:
            self._buried.append((pod, slot, None))  # the page is the successor's to tell of, which waits for the pod

    @contextmanager
    def _asking(self, pod: int) -> Iterator[None]:
        """One that did not answer just now is away without being asked."""
        if time.monotonic() < self._away_until.get(pod, 0.0):
            raise ServerAway(f"pod {pod} did not answer just now")
        try:
            yield
        except ABSENT:
            self._away_until[pod] = time.monotonic() + AWAY_S
            raise

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    def verdict(self) -> Stop | None:
        """Why the crawl is over, once somebody has found out."""
        if time.monotonic() < self._judge_at:
            return None
        self._judge_at = time.monotonic() + JUDGE_EVERY_S
        try:
            with self._asking(0):
                first = self._client(0)
                if said := first.note("end"):
                    return Stop(said)
                is_decider = first.decide(self._node, HOLD_S)
            if is_decider and (reason := self._judge()) is not None:
                first.note("end", str(reason))
                return reason
        except ABSENT:
            self._first = None
        return None

    def _judge(self) -> Stop | None:
        """Two passes with the same figures; each is complete before the next begins."""
        facts = [self._facts(pod) for pod in range(len(self.urls))]
        reason = _reason(facts, self._config.limits.max_pages)
        figures: list[object] = [(stats.admitted, stats.finished, stats.received, more) for stats, more in facts]
        if reason is None or self._first != (reason, figures):
            self._first = None if reason is None else (reason, figures)
            return None
        return reason

    def _facts(self, pod: int) -> tuple[FrontierStats, dict[str, int]]:
        with self._asking(pod):
            return self._client(pod).facts()

    def _client(self, pod: int) -> PodClient:
        if pod in self._frontiers:
            return self._frontiers[pod]
        if pod not in self._clients:
            connection = connect(self.urls[pod], self._settings)
            hurry(connection, PATIENCE_S)
            client = PodClient(
                connection, self._config.politeness, pod=pod, pods=len(self.urls),
                where=address(self.urls[pod], self._settings.db),
            )  # fmt: skip
            client.find_crawl(CRAWL)
            self._clients[pod] = client
        return self._clients[pod]


def check_servers(config: Config) -> None:
    """Sees whether the servers that somebody else runs can be used, before anything is written."""
    for pod in config.pods.here if config.pods.on_redis else ():
        if url := config.pods.pods[pod].redis_url:
            client = connect(url, settings_of(config))
            try:
                inspect(url, client)
            except BadInput as wrong:
                raise BadInput(f"pod {pod}: {wrong}") from None
            finally:
                client.close()


def _reason(facts: Facts, max_pages: int | None) -> Stop | None:
    """Why nothing more will come, as far as one look can tell."""
    if any(stats.leased or stats.to_parse or more["outboxes"] or not more["seeded"] for stats, more in facts):
        return None
    if all(stats.admitted == stats.finished for stats, _ in facts):
        return Stop.DONE
    if max_pages is not None and sum(stats.pages for stats, _ in facts) >= max_pages:
        return Stop.MAX_PAGES
    if any(more["scheduled"] or more["blocked"] or more["rejects"] for _, more in facts):
        return None
    return Stop.BUDGET if any(stats.queued for stats, _ in facts) else None
