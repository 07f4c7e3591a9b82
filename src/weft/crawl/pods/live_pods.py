"""All pods of a crawl, of every node, as their Redis servers count them now: for `weft stats --config FILE`, on any
machine that reaches them. Reads alone; a server that is away is named, and the others are counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from weft.config import Config
from weft.crawl.pods.distribution import hot_pods, server_at
from weft.errors import BadInput, Missing, ServerAway
from weft.telemetry import imbalance

PODS_ASKED_AT_ONCE = 32


class LivePod(Struct, frozen=True, kw_only=True):
    """What a pod's server counts; an error where it does not answer."""

    pod: int
    server: str
    queued: int = 0
    seen: int = 0
    sites: int = 0
    leased: int = 0
    to_parse: int = 0
    error: str = ""


class LivePods(Struct, frozen=True):
    """All pods. `imbalance`: the longest queue over the mean of those that answer, 1 when all are equal."""

    pods: tuple[LivePod, ...]
    imbalance: float
    hot: tuple[int, ...]


def live_pods(config: Config) -> LivePods:
    """Asks every server that the settings name; BadInput where pods are not on Redis, or a node keeps its own."""
    pods = config.pods.pods[: config.pods.num_pods]
    if not pods:
        raise BadInput("`pods` are not on Redis: give a crawl's data dir instead of its settings")
    if any(pod.managed for pod in pods):
        raise BadInput("`pods`: managed ones are known to their own node: give that node's data dir")
    settings: dict[str, Any] = {"redis_db": config.redis.db, "redis_password": config.redis.password}
    with ThreadPoolExecutor(min(PODS_ASKED_AT_ONCE, len(pods))) as threads:
        asked = [threads.submit(_ask_pod, number, pod.redis_url, settings) for number, pod in enumerate(pods)]
        live = tuple(one.result() for one in asked)
    alive = [pod for pod in live if not pod.error]
    queued = [pod.queued for pod in alive]
    hottest = tuple(alive[index].pod for index in hot_pods(queued)) if queued else ()
    return LivePods(live, imbalance(queued) if queued else 1.0, hottest)


def _ask_pod(pod: int, url: str, settings: dict[str, Any]) -> LivePod:
    from weft.frontier.redis.connection import address_without_password
    from weft.frontier.redis.pod_view import read_counters

    where = address_without_password(url)
    try:
        with server_at(url, settings) as (client, where):
            counters = read_counters(client, where)
    except (ServerAway, BadInput, Missing) as error:
        return LivePod(pod=pod, server=where, error=str(error))
    return LivePod(
        pod=pod, server=where, queued=counters.queued, seen=counters.seen, sites=counters.sites,
        leased=counters.leased, to_parse=counters.to_parse,
    )  # fmt: skip
