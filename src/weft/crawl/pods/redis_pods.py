"""The pods on Redis from the orchestrator's side: their servers and holders, the work of dead processes, and the end.

One node's orchestrator holds each of the pods that it runs, with a lease that it renews: a second node is refused. Its
name is that of the data dir, which is locked, so that a node that was killed can take its own pods again at once; and a
pod that it has run once stays its own, since the pages are in its data dir. The holder of pod 0's `decider` checks all
pods, twice, and writes to pod 0 when the crawl is over; all nodes read it there. If a server does not answer, only this
waits: once the crawl runs, no pod's answer is waited for longer than PATIENCE_S, or a pod that hangs would prevent the
restart of dead processes of others.

A database that is emptied while the crawl runs is claimed again here. Until then the pod's processes wait; then they
report what their stores have, and the links of stored pages are read again, as after any loss. Processes of other pods
do that, too: the links that they had sent are lost.

    meta   hash   `end`: why the crawl is over, in pod 0; `begun`: the pod has its seeds and revisits, or the first part
                  of large seed files; `seeded`: it has all of them
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.nodes import SharedSettings
from weft.crawl.pods.servers import ManagedServers, claim_pods
from weft.crawl.processes.frontier_settings import bloom_filter_of, redis_settings_of
from weft.crawl.processes.process import CrawlProcess
from weft.engine.crawls.limits import frontier_limits_of
from weft.engine.folder import CRAWL_SUFFIX
from weft.engine.loop.parser.suspects import pop_suspect
from weft.engine.loop.stop import Stop
from weft.errors import BadInput, ServerAway, ServerFull
from weft.frontier.contract import FrontierStats
from weft.frontier.redis.connection import Emptied, address_without_password, connect, inspect_server, shorten_timeouts
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.metrics import RedisMetrics
from weft.frontier.redis.pod_info import PodIdentity, bind_pod, claim_pod, is_claimed, unbind_pod
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.frontier.redis.shared import running_node, save_or_compare_settings, used_permits
from weft.telemetry import Log

HOLD_LEASE_S = 30.0
DECIDE_AFTER_S = 5.0  # the longest time without a decider after one was killed
RENEW_EVERY_S = 5.0
JUDGE_EVERY_S = 0.25
ANSWER_PATIENCE_S = 1.0
RETRY_AWAY_AFTER_S = 2.0  # a pod that did not answer is not called again for this long
ABSENT_ERRORS = (ServerAway, ServerFull)
log = Log("weft.crawl.pods.redis_pods")
PodFacts = list[tuple[FrontierStats, dict[str, int]]]


class RedisPods:
    """All pods of a crawl; those of this node are held."""

    def __init__(self, config: Config, folder: CrawlFolder, crawl_id: str) -> None:
        pods = config.pods
        self._config = config
        self._folder = folder
        self._crawl_id = crawl_id
        self._pods_here = pods.here
        managed = [pod for pod, spec in enumerate(pods.pods) if spec.managed]
        self._settings = redis_settings_of(config)
        ours = [pod for pod in managed if pod in self._pods_here]
        self._servers = ManagedServers(folder.frontier, ours, self._settings.password)
        elsewhere = ManagedServers(folder.frontier, managed).urls
        self.urls = [spec.redis_url or elsewhere[pod] for pod, spec in enumerate(pods.pods)]
        self._frontiers: dict[int, RedisFrontier] = {}
        self._connections: dict[int, Any] = {}  # to the pods of other nodes
        self._clients: dict[int, PodClient] = {}
        self._node_name = folder.node
        self._newly_bound_pods: list[int] = []  # pods that belonged to no node, and are bound to this one by this run
        self._has_begun = False  # the end that an earlier run wrote to pod 0 is deleted
        self._pods_without_node: list[int] = []  # pods of other nodes that none of them runs
        self._unreleased: list[tuple[int, str, Path | None]] = []
        self._away_until: dict[int, float] = {}
        self._renew_at = self._judge_at = 0.0
        self._first_facts: tuple[Stop, list[object]] | None = None
        self._shared_settings: SharedSettings | None = None
        self._emptied_pods: set[int] = set()  # pods whose databases were emptied, and must be claimed again
        self._pods_to_reopen: set[int] = set()  # pods whose frontiers are closed, and not opened again yet

    # ── opening and closing ────────────────────────────────────────────────────────────────────────────────────────

    def start(self, complain: Callable[[str], None], shared: SharedSettings | None = None) -> None:
        """Starts the servers, checks that all pods can be used and belong to this crawl, and holds this node's pods.

        `shared`: the values that must be equal on all nodes, if there are others.
        """
        self._servers.start()
        self._shared_settings = shared
        try:
            servers, has_run = dict(enumerate(self.urls)), [pod for pod in self._pods_here if self._has_run_here(pod)]
            empty = claim_pods(
                self._crawl_id, servers, self._settings, here=self._pods_here, node=self._node_name, has_run=has_run,
                complain=complain,
            )  # fmt: skip
            emptied = [pod for pod in has_run if empty[pod]]
            for pod in emptied:
                complain(f"pod {pod}: {self._address_of(pod)}: was emptied; it is filled again from what is stored")
            for pod in self._pods_here:
                self._hold_pod(pod)
            if shared is not None:
                self._compare_settings(shared)
            for pod in self._pods_here:
                self._open_pod(pod)
            if emptied:
                self._rescan_links(but=emptied)
            self._share_permits()
        except BaseException:
            self._release_unused()
            self.close()
            raise

    def metrics(self) -> RedisMetrics:
        """The metrics of the servers of this node's pods; other nodes report theirs."""
        return RedisMetrics({pod: self.urls[pod] for pod in self._pods_here}, self._settings)

    def close(self) -> None:
        """Releases the pods, and stops the servers that this crawl runs."""
        try:
            if 0 in self._frontiers or 0 in self._clients:
                self._client(0).elect_decider(self._node_name, 0.0)
        except ABSENT_ERRORS as why:
            log.warning("the decider lease could not be released", why=why)
        for frontier in self._frontiers.values():
            try:
                frontier.pod.hold_pod(self._node_name, 0.0)
                frontier.close()
            except ABSENT_ERRORS as why:
                log.warning("a pod could not be released", why=why)
        self._frontiers.clear()
        self._servers.stop()

    def _address_of(self, pod: int) -> str:
        return address_without_password(self.urls[pod], self._settings.db)

    def _identity(self, pod: int) -> PodIdentity:
        return PodIdentity(self._crawl_id, pod, len(self.urls), self._node_name if pod in self._pods_here else "")

    def _has_run_here(self, pod: int) -> bool:
        """Whether a process of this node has used the pod's database before."""
        return any((self._folder.pod_folder(pod) / "marks").glob("*"))

    def _hold_pod(self, pod: int) -> None:
        """Binds a pod to this node: from now on no other node can run it, or start the crawl again."""
        connection, where, identity = (
            connect(self.urls[pod], self._settings),
            self._address_of(pod),
            self._identity(pod),
        )
        if bind_pod(connection, where, identity):
            self._newly_bound_pods.append(pod)
        frontier = RedisFrontier(
            connection, self._folder.pod_folder(pod), self._config.politeness,
            slot=f"pod{pod}-orchestrator", incarnation=int(time.time() * 1000), pod=pod, pods=len(self.urls),
            where=where, bloom_filter=bloom_filter_of(self._config), identity=identity,
        )  # fmt: skip
        self._frontiers[pod], self._connections[pod] = frontier, connection
        frontier.pod.hold_pod(self._node_name, HOLD_LEASE_S)
        if not is_claimed(connection, where, identity):
            raise BadInput(f"{where}: the crawl was just started over from another node; repeat the command")

    def _release_unused(self) -> None:
        """Releases pods that were never run from this node."""
        for pod in self._newly_bound_pods:
            connection = connect(self.urls[pod], self._settings)
            try:
                unbind_pod(connection, address_without_password(self.urls[pod], self._settings.db), self._node_name)
            except ABSENT_ERRORS as why:
                log.warning("a pod could not be released", why=why)
            finally:
                connection.close()

    def _compare_settings(self, shared: SharedSettings) -> None:
        """Checks that this node's settings equal those of the others. After its pods are held, so that of two nodes at
        least one sees the other."""
        may_change = shared.is_resumed and not self._do_other_nodes_run()
        connection, where = (
            connect(self.urls[0], self._settings),
            address_without_password(self.urls[0], self._settings.db),
        )
        try:
            if differs := save_or_compare_settings(connection, where, shared.values, may_change=may_change):
                raise shared.refusal(differs)
        finally:
            connection.close()

    def _do_other_nodes_run(self) -> bool:
        """Whether another node runs, or may run behind a server that does not answer."""
        runners = self._nodes_by_pod()
        return len(runners) < len(self.urls) - len(self._pods_here) or any(runners.values())

    def _nodes_by_pod(self) -> dict[int, str]:
        """The nodes that run the pods of other nodes; pods whose servers do not answer are left out."""
        runners = {}
        settings = replace(self._settings, socket_timeout_s=ANSWER_PATIENCE_S, connect_timeout_s=ANSWER_PATIENCE_S)
        for pod in sorted(set(range(len(self.urls))) - set(self._pods_here)):
            connection = connect(self.urls[pod], settings)
            try:
                runners[pod] = running_node(connection, address_without_password(self.urls[pod], settings.db))
            except ABSENT_ERRORS:
                continue
            finally:
                connection.close()
        return runners

    def _open_pod(self, pod: int) -> None:
        frontier = self._frontiers[pod]
        frontier.crawls.open_crawl(CRAWL_SUFFIX, frontier_limits_of(self._config))
        for name in (
            "begun",
            "seeded",
        ):  # until this run's first fetcher has added seeds and revisits
            frontier.notes.note(name, "")
        frontier.processes.assign_slots(self._slots_of_pod(pod))
        for slot in self._slots_of_pod(pod):
            frontier.processes.release_owner(slot + "#")
        shorten_timeouts(self._connections[pod], ANSWER_PATIENCE_S)

    def _slots_of_pod(self, pod: int) -> list[str]:
        pods = self._config.pods
        fetchers = [f"pod{pod}-fetcher{index}" for index in range(pods.fetchers_per_pod)]
        return fetchers + [f"pod{pod}-parser{index}" for index in range(pods.parsers_per_pod)]

    def _share_permits(self) -> None:
        """Sets each pod's permits to the pages that it has, before anything is claimed; its first fetcher requests
        more.

        If pod 0 belongs to another node, and is not open yet, no permits are available so far. The pages of other
        nodes' pods are recorded if none is yet: the limit may be new, and they may have pages already.
        """
        most = self._config.limits.max_pages
        if most is None or len(self.urls) == 1:
            return
        for frontier in self._frontiers.values():
            crawl = frontier.crawls.open_crawl(CRAWL_SUFFIX, frontier_limits_of(self._config))
            pages, flight, _ = frontier.permits.permit_counts(crawl)
            frontier.permits.allow(crawl, pages + flight)
        try:
            first = self._client(0)
            crawl = first.find_crawl(CRAWL_SUFFIX)
            first.permits.limit_pages(crawl, most)
            with_permits = first.permits.pods_with_permits(crawl)
        except ABSENT_ERRORS as why:
            log.warning("pod 0 has no permits to give yet", why=why)
            return
        for pod in range(len(self.urls)):
            if pod in self._pods_here:
                first.permits.give_permits(crawl, pod, self._pages_used(pod))
            elif pod not in with_permits:
                first.permits.record_permits(crawl, pod, self._pages_used(pod))

    def _pages_used(self, pod: int) -> int:
        """How many pages a pod has, including those in progress."""
        connection = connect(self.urls[pod], self._settings)
        try:
            return used_permits(connection, address_without_password(self.urls[pod], self._settings.db), CRAWL_SUFFIX)
        except ABSENT_ERRORS as why:
            raise BadInput(f"pod {pod}: {why}: how many pages it has must be known where max_pages is new") from None
        finally:
            connection.close()

    # ── while it runs ──────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Restarts servers that have died, returns the work of dead processes to the queue, and renews the pods'
        leases."""
        self._servers.check()
        waiting, self._unreleased = self._unreleased, []
        for grave in waiting:
            self._release_dead(*grave)
        while self._emptied_pods and self._reclaim_emptied(self._emptied_pods.pop()):
            pass
        if time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + RENEW_EVERY_S
        for pod, frontier in self._frontiers.items():
            try:
                with self._calls_to(pod):
                    frontier.pod.hold_pod(self._node_name, HOLD_LEASE_S)
            except ABSENT_ERRORS:
                continue
        unrun = [pod for pod, node in self._nodes_by_pod().items() if not node]
        if unrun != self._pods_without_node:
            self._pods_without_node = unrun
            if unrun:
                log.warning("no node runs these pods: the crawl ends when they are crawled, too", pods=unrun)

    def _reclaim_emptied(self, pod: int) -> bool:
        """Claims a database again that was emptied; raises BadInput if it now has another crawl, or foreign keys.

        False: it must be tried again. Links that other pods had sent are lost with it: their processes are restarted,
        too, and read the links again.
        """
        try:
            self._reclaim_if_emptied(pod)
            self._reopen_pod(pod)
            self._rescan_links(but=[pod])
            if 0 in self._pods_here and self._shared_settings is not None:
                self._compare_settings(self._shared_settings)
            self._share_permits()
        except ABSENT_ERRORS as why:
            log.warning("a pod's database cannot be filled again yet", pod=pod, why=why)
            self._emptied_pods.add(pod)
            return False
        return True

    def _reclaim_if_emptied(self, pod: int) -> bool:
        """Whether its database was emptied, and is claimed again now."""
        if not claim_pod(self._connections[pod], self._address_of(pod), self._identity(pod), was_ours=True):
            return False
        self._emptied_pods.discard(pod)
        log.error("a pod's database was emptied: it is filled again from what is stored", pod=pod)
        return True

    def _rescan_links(self, but: Sequence[int]) -> None:
        """Makes the processes of this node's other pods read the links of their stored pages again. A pod whose
        database was emptied, too, is claimed again, which does the same."""
        for pod in self._pods_here:
            if pod not in but:
                if pod not in self._pods_to_reopen and not self._reclaim_if_emptied(pod):
                    self._frontiers[pod].processes.report_again()
                self._reopen_pod(pod)

    def _reopen_pod(self, pod: int) -> None:
        """Opens the frontier again. May be repeated: until it succeeds, the server refuses the earlier frontier."""
        if pod not in self._pods_to_reopen:
            self._pods_to_reopen.add(pod)
            self._frontiers[pod].close()
            self._connections[pod].close()
        self._hold_pod(pod)
        self._open_pod(pod)
        self._pods_to_reopen.discard(pod)

    def on_process_death(self, process: CrawlProcess) -> None:
        """A process of a pod has died: its work goes back to the queue at once."""
        slot = process.slot
        self._release_dead(slot.pod, slot.name, self._folder.heartbeat_folder(slot) if slot.role == "parser" else None)

    def _release_dead(self, pod: int, slot: str, heartbeat: Path | None) -> None:
        frontier = self._frontiers[pod]
        try:
            with self._calls_to(pod):
                if heartbeat is not None and (suspect := pop_suspect(heartbeat)):
                    log.error("a page killed its parser", item=suspect, deaths=frontier.parse_queue.died_on(suspect))
                frontier.processes.release_owner(slot + "#")
        except ABSENT_ERRORS:
            self._unreleased.append((pod, slot, None))  # its successor reports the page, and waits for the pod

    @contextmanager
    def _calls_to(self, pod: int) -> Iterator[None]:
        """A context for calls to a pod; a pod that did not answer just now raises ServerAway without a call."""
        if time.monotonic() < self._away_until.get(pod, 0.0):
            raise ServerAway(f"pod {pod} did not answer just now")
        try:
            yield
        except Emptied:
            if pod in self._pods_here:
                self._emptied_pods.add(pod)
            else:
                self._clients.pop(pod, None)  # the process that runs it claims it again
            raise
        except ABSENT_ERRORS:
            self._away_until[pod] = time.monotonic() + RETRY_AWAY_AFTER_S
            raise

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    def verdict(self) -> Stop | None:
        """Why the crawl is over; None while it runs."""
        if time.monotonic() < self._judge_at:
            return None
        self._judge_at = time.monotonic() + JUDGE_EVERY_S
        try:
            with self._calls_to(0):
                first = self._client(0)
                if not self._has_begun:
                    first.notes.note("end", "")
                    self._has_begun = True
                if end := first.notes.note("end"):
                    return Stop(end)
                is_decider = first.elect_decider(self._node_name, DECIDE_AFTER_S)
            if is_decider and (reason := self._detect_end()) is not None:
                first.notes.note("end", str(reason))
                return reason
        except ABSENT_ERRORS:
            self._first_facts = None
        return None

    def edit(self, config: Config) -> None:
        """Applies changed settings."""
        self._config = config

    def stats(self) -> dict[int, FrontierStats]:
        """The counts of this node's pods; those that do not answer are left out."""
        by_pod = {}
        for pod, frontier in self._frontiers.items():
            try:
                with self._calls_to(pod):
                    by_pod[pod] = frontier.status.stats()
            except ABSENT_ERRORS:
                continue
        return by_pod

    def _detect_end(self) -> Stop | None:
        """Why the crawl is over: two passes with equal counts; each is complete before the next begins."""
        facts = [self._read_facts(pod) for pod in range(len(self.urls))]
        reason = _stop_reason(facts, self._config.limits.max_pages)
        counts: list[object] = [(stats.admitted, stats.finished, stats.received, more) for stats, more in facts]
        if reason is None or self._first_facts != (reason, counts):
            self._first_facts = None if reason is None else (reason, counts)
            return None
        return reason

    def _read_facts(self, pod: int) -> tuple[FrontierStats, dict[str, int]]:
        with self._calls_to(pod):
            return self._client(pod).status.stats_and_waits()

    def _client(self, pod: int) -> PodClient:
        if pod in self._frontiers:
            return self._frontiers[pod].pod
        if pod not in self._clients:
            connection = connect(self.urls[pod], self._settings)
            shorten_timeouts(connection, ANSWER_PATIENCE_S)
            link = PodLink(
                connection, self._config.politeness, pod=pod, pods=len(self.urls),
                where=self._address_of(pod), identity=self._identity(pod),
            )  # fmt: skip
            client = PodClient(link)
            client.find_crawl(CRAWL_SUFFIX)
            self._clients[pod] = client
        return self._clients[pod]


def check_servers(config: Config) -> None:
    """Checks that servers which the crawl does not manage can be used, before anything is written.

    Of other nodes' pods only the first must answer: it has what all nodes share.
    """
    for pod in sorted({0, *config.pods.here}) if config.pods.on_redis else ():
        if url := config.pods.pods[pod].redis_url:
            client = connect(url, redis_settings_of(config))
            try:
                inspect_server(url, client)
            except BadInput as wrong:
                raise BadInput(f"pod {pod}: {wrong}") from None
            finally:
                client.close()


def _stop_reason(facts: PodFacts, max_pages: int | None) -> Stop | None:
    """Why no more work will come, according to one pass."""
    if any(
        stats.leased or stats.to_parse or more["outboxes"] or more["mail"] or not more["seeded"]
        for stats, more in facts
    ):
        return None
    if all(stats.admitted == stats.finished for stats, _ in facts):
        return Stop.DONE
    if max_pages is not None and sum(stats.pages for stats, _ in facts) >= max_pages:
        return Stop.MAX_PAGES
    # A queue whose rest is on disk has no due site until the pod's first fetcher has loaded more, which may be in
    # progress.
    if any(more["scheduled"] or more["blocked"] or more["rejects"] or more["spilled"] for _, more in facts):
        return None
    return Stop.BUDGET if any(stats.queued for stats, _ in facts) else None
