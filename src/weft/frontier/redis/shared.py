"""What the nodes of one crawl share besides the pods themselves: which node runs which pod, and common settings.

owner    string   node that runs the pod now, with a time to live; written by lua/hold.lua and by `lock_pods`
shared   hash     key of the configuration -> its value as JSON; in pod 0's database, written by the first node
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.errors import Busy
from weft.frontier.redis.connection import convert_errors

if TYPE_CHECKING:
    from redis import Redis

OWNER_KEY = "owner"
SHARED_KEY = "shared"


def running_node(client: Redis, where: str) -> str:
    """The node that runs the pod now; empty if none does."""
    with convert_errors(where):
        node: Any = client.get(OWNER_KEY)
    return node.decode() if node else ""


def used_permits(client: Redis, where: str, crawl: str) -> int:
    """Pages of a crawl that a pod has stored or in flight, whether or not a node runs it."""
    with convert_errors(where):
        number: Any = client.hget("crawls", crawl)
        if number is None:
            return 0
        figures: Any = client.hmget(f"c:{int(number)}", ["pages", "flight"])
    return sum(int(figure or 0) for figure in figures)


def lock_pods(pods: Mapping[int, tuple[Redis, str]], node: str, ttl_s: float) -> None:
    """Locks these pods against other nodes for a time. Busy, and none is locked, if another node runs one."""
    held: list[int] = []
    for pod, (client, where) in pods.items():
        before = _lock_pod(client, where, node, ttl_s)
        if not before:
            held.append(pod)
        elif before != node:
            for mine in held:
                pods[mine][0].delete(OWNER_KEY)
            raise Busy(
                f"{where}: pod {pod} is run by node {before.partition('@')[2]}, and `fresh=True` starts the crawl over "
                "on all nodes: stop it there first"
            )


def _lock_pod(client: Any, where: str, node: str, ttl_s: float) -> str:
    """Locks a pod, unless another node has it; returns the node that had it until now, empty for none."""

    def step(steps: Any) -> str:
        owner = steps.get(OWNER_KEY)
        holder = owner.decode() if owner else ""
        steps.multi()
        if holder in ("", node):
            steps.set(OWNER_KEY, node, px=int(ttl_s * 1000))
        return holder

    with convert_errors(where):
        return str(client.transaction(step, OWNER_KEY, value_from_callable=True))


def save_or_compare_settings(
    client: Redis, where: str, values: dict[Any, Any], *, may_change: bool
) -> dict[str, tuple[str | None, str | None]]:
    """Saves the settings that all nodes must share, or compares with them; returns the differences: (saved, given)."""
    from redis import exceptions as wrong

    with convert_errors(where):
        while True:
            with client.pipeline() as steps:
                steps.watch(SHARED_KEY)  # type: ignore[no-untyped-call]
                read: Any = steps.hgetall(SHARED_KEY)
                saved = {name.decode(): value.decode() for name, value in read.items()}
                differs = {
                    name: (saved.get(name), values.get(name))
                    for name in sorted(saved.keys() | values.keys())
                    if saved.get(name) != values.get(name)
                }
                if not differs or (saved and not may_change):
                    return differs
                steps.multi()
                steps.delete(SHARED_KEY)
                steps.hset(SHARED_KEY, mapping=values)
                try:
                    steps.execute()
                except wrong.WatchError:
                    continue
                return {}
