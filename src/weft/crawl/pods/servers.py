"""The Redis servers of a crawl's pods: runs the managed ones, and checks all of them before the crawl starts.

A managed pod's server stores its data in its pod's folder, so that a resumed crawl finds it. Invariant: no pod is
changed before all reachable pods were checked, so that a crawl that is refused has changed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from weft.errors import BadInput
from weft.frontier.redis.connection import (
    RedisSettings,
    ServerFacts,
    Unreachable,
    connect,
    inspect_server,
    refuse_shared,
)
from weft.frontier.redis.pod_info import PodIdentity, belongs_to_crawl, claim_pod, empty_database, is_claimed
from weft.frontier.redis.shared import lock_pods
from weft.supervise.redis_server import RedisServer

POLL_EVERY_S = 0.01
FORGET_WITHIN_S = 60.0  # for emptying all databases


def managed_folder(frontier: Path, pod: int) -> Path:
    """The data folder of the server of a managed pod."""
    return frontier / f"pod_{pod}" / "redis"


class ManagedServers:
    """The servers that a crawl runs, by pod. They end with this process, however it ends."""

    def __init__(self, frontier: Path, pods: Collection[int], password: str | None = None) -> None:
        self._servers = {pod: RedisServer(managed_folder(frontier, pod), password=password) for pod in pods}

    @property
    def urls(self) -> dict[int, str]:
        """Their addresses, by pod."""
        return {pod: server.url for pod, server in self._servers.items()}

    def start(self) -> None:
        """Starts all at the same time and waits until each can be used."""
        try:
            while not self.check():
                time.sleep(POLL_EVERY_S)
        except BaseException:
            self.stop()
            raise

    def check(self) -> bool:
        """Restarts servers that have died; returns whether all can be used now. Raises ServerFailed for a crash
        loop."""
        usable = [server.check() for server in self._servers.values()]
        return all(usable)

    def stop(self) -> None:
        """Stops all servers, with their data on disk."""
        for server in self._servers.values():
            server.stop()


def claim_pods(
    crawl_id: str,
    urls: Mapping[int, str],
    settings: RedisSettings,
    *,
    here: Collection[int],
    node: str = "",
    has_run: Collection[int] = (),
    complain: Callable[[str], None] = lambda _: None,
) -> dict[int, bool]:
    """Claims every pod's database for this crawl; returns by pod whether it was empty. Raises what is wrong with the
    first.

    `here`: the pods of this node, which must answer, and belong to no other node; `has_run`: those that it has run
    before, so that a database without an identity must have been emptied. For a pod of another node that does not
    answer there is only a warning: links for it will wait.
    """
    clients = {pod: connect(url, settings) for pod, url in urls.items()}
    try:
        facts: dict[int, ServerFacts] = {}
        for pod, url in urls.items():
            try:
                facts[pod] = inspect_server(url, clients[pod], tell=complain)
            except Unreachable as away:
                if pod in here:
                    raise BadInput(f"pod {pod}: {away}") from None
                complain(f"pod {pod}, of another node: {away}")
            except BadInput as wrong:
                raise BadInput(f"pod {pod}: {wrong}") from None
        refuse_shared(facts)
        for one in facts.values():
            for warning in one.warnings:
                complain(warning)
        identities = {pod: PodIdentity(crawl_id, pod, len(urls), node if pod in here else "") for pod in facts}
        for pod, one in facts.items():
            is_claimed(clients[pod], one.address, identities[pod], was_ours=pod in has_run)
        return {
            pod: claim_pod(clients[pod], one.address, identities[pod], was_ours=pod in has_run)
            for pod, one in facts.items()
        }
    finally:
        for client in clients.values():
            client.close()


def forget_pods(crawl_id: str, urls: Mapping[int, str], settings: RedisSettings, node: str = "") -> None:
    """Empties the databases of a crawl that is started again; those of other crawls are left as they are. Raises Busy
    while a node runs."""
    with ExitStack() as opened:
        clients = {}
        for pod, url in urls.items():
            client = opened.enter_context(closing(connect(url, settings)))
            where = inspect_server(url, client).address
            if belongs_to_crawl(client, where, crawl_id):
                clients[pod] = (client, where)
        lock_pods(clients, node, FORGET_WITHIN_S)
        for client, where in clients.values():
            empty_database(client, where, crawl_id)
