"""How a crawl's work is distributed over its pods: seeds by domain, pages from the indexes, queues from the pods'
servers or status files.

A pod's Redis server is queried if it answers; otherwise, and for embedded pods, the processes' status files have the
last known counts. Pages always come from the indexes, which are the truth. Read-only, except for the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from weft import urls
from weft.config import DEBUG_PODS, checks_pod_assignment
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.servers import managed_folder
from weft.engine.loop.progress import CrawlStatus, read_status
from weft.errors import BadInput, Missing, ServerAway
from weft.store.corpus import Corpus
from weft.supervise.redis_server import socket_path
from weft.telemetry import Log, imbalance

HOT_FACTOR = 1.5  # times the mean of all pods
_INDEX_OF_POD = re.compile(r"index-pod(\d+)-")
_SLOT_OF_POD = re.compile(r"pod(\d+)-")
ANSWER_S = 2.0
log = Log("weft.crawl.pods.distribution")


class PodShare(Struct, frozen=True):
    """One pod's share of a crawl. `source`: where its queue counts come from (server or status)."""

    pod: int
    pages: int = 0
    rows: int = 0
    queued: int | None = None
    seen: int | None = None
    sites: int | None = None
    source: str = "nobody"  # words: ok (the JSON value for an unknown source)


class Distribution(Struct, frozen=True):
    """The shares of this node's pods, and their imbalance: the largest over the mean, 1 if all are equal."""

    pods: tuple[PodShare, ...]
    pages_imbalance: float
    queued_imbalance: float
    hot_pods: tuple[int, ...]  # pods with at least HOT times the mean of pages or of queued URLs


class SeedShares(Struct, frozen=True):
    """The number of seeds, and of their domains, of each pod."""

    seeds: tuple[int, ...]
    domains: tuple[int, ...]

    @classmethod
    def of(cls, seeds: Iterable[str], pods: int) -> SeedShares:
        """Counts canonical seeds, each once."""
        by_domain: Counter[str] = Counter()
        domain_of: dict[str, str] = {}  # by origin, because many seeds share one
        for seed in dict.fromkeys(seeds):
            origin = seed[: seed.index("/", 8)]
            if origin not in domain_of:
                domain_of[origin] = urls.domain_of(seed)
            by_domain[domain_of[origin]] += 1
        counted, domains = [0] * pods, [0] * pods
        for domain, number in by_domain.items():
            pod = urls.pod_of(domain, pods)
            counted[pod] += number
            domains[pod] += 1
        return cls(tuple(counted), tuple(domains))

    def text(self) -> str:
        """A summary for people: totals, imbalance, and the counts of each pod."""
        pairs = enumerate(zip(self.seeds, self.domains, strict=True))
        by_pod = ", ".join(f"pod {pod} {seeds:,}/{domains:,}" for pod, (seeds, domains) in pairs)
        return (
            f"{sum(self.seeds):,} seeds of {sum(self.domains):,} domains over {len(self.seeds)} pods\n"
            f"  seeds a pod: {_spread_text(self.seeds)}\n"
            f"  domains a pod: {_spread_text(self.domains)}\n"
            f"  seeds/domains: {by_pod}"
        )


def announce_pods(
    pods: int, seeds: Sequence[str], environment: Mapping[str, str] | None, announce: Callable[[str], None]
) -> None:
    """Announces and logs the distribution of the seeds, and whether the pods verify it."""
    if pods > 1 and seeds:
        shares = SeedShares.of(seeds, pods)
        announce(shares.text())
        log.info("distribution of the seeds over the pods", seeds=shares.seeds, domains=shares.domains)
    if checks_pod_assignment(environment):
        what = "every URL that a pod receives is checked, and one of another pod is logged"
        announce(f"{DEBUG_PODS} is on: {what if pods > 1 else 'with one pod there is nothing to check'}")
        log.info("the pods check every URL that they receive", switch=DEBUG_PODS)


def _spread_text(counts: Sequence[int]) -> str:
    mean = sum(counts) / len(counts)
    return f"min {min(counts):,}, max {max(counts):,}, mean {mean:,.1f}, imbalance {imbalance(counts):.2f}"


def distribution(folder: CrawlFolder) -> Distribution:
    """The shares of the pods of a crawl that this node runs; pages of other pods are on other nodes."""
    held = _count_stored(folder)
    reported = _from_status_files(folder)
    live = _from_servers(folder)
    shares = []
    for pod in folder.pods_here:
        rows, pages = held.get(pod, (0, 0))
        queued, seen, sites, source = live.get(pod) or reported.get(pod) or (None, None, None, "nobody")  # words: ok
        shares.append(PodShare(pod, pages, rows, queued, seen, sites, source))
    pages_of = [share.pages for share in shares]
    queued_of = [share.queued or 0 for share in shares]
    hottest = {shares[at].pod for at in (*hot_pods(pages_of), *hot_pods(queued_of))}
    return Distribution(tuple(shares), imbalance(pages_of), imbalance(queued_of), tuple(sorted(hottest)))


def hot_pods(counts: Sequence[int]) -> list[int]:
    """The indexes of those that have HOT times the mean."""
    mean = sum(counts) / len(counts)
    return [at for at, figure in enumerate(counts) if mean and figure >= HOT_FACTOR * mean]


QueueCounts = tuple[int | None, int | None, int | None, str]


def _count_stored(folder: CrawlFolder) -> dict[int, tuple[int, int]]:
    """Rows and pages of each pod."""
    corpus = Corpus(folder.data_dirs)
    by_pod: dict[int, tuple[int, int]] = {}
    try:
        for index in corpus.indexes():
            name = _INDEX_OF_POD.match(index.path.name)
            if name:
                before, totals = by_pod.get(int(name[1]), (0, 0)), index.totals()
                by_pod[int(name[1])] = (before[0] + totals[0], before[1] + totals[1])
    finally:
        corpus.close()
    return by_pod


def _from_status_files(folder: CrawlFolder) -> dict[int, QueueCounts]:
    """The counts in the status files: a pod's processes share one queue, so the latest file counts."""
    latest: dict[int, CrawlStatus] = {}
    for path in (folder.home / "status").glob("pod*.json"):
        name, status = _SLOT_OF_POD.match(path.name), read_status(path)
        if name and status and status.updated_at >= latest.get(int(name[1]), CrawlStatus()).updated_at:
            latest[int(name[1])] = status
    if not latest:
        alone = read_status(folder.status)
        latest = {0: alone} if alone else {}
    return {pod: (status.queued, status.seen, status.sites, "status") for pod, status in latest.items()}


def _from_servers(folder: CrawlFolder) -> dict[int, QueueCounts]:
    """The counts of the pods' servers that answer."""
    settings = folder.settings()
    by_pod: dict[int, QueueCounts] = {}
    here = folder.pods_here
    for pod, url in redis_urls(folder, settings).items():
        if pod not in here:
            continue
        counts = _query_server(url, settings)
        if counts:
            by_pod[pod] = counts
    return by_pod


def redis_urls(folder: CrawlFolder, settings: dict[str, Any]) -> dict[int, str]:
    """The URLs of the pods' servers, by pod; empty for embedded pods."""
    pods = settings.get("pods")
    by_pod = {}
    for number, pod in enumerate(pods if isinstance(pods, list) else ()):
        if pod.get("redis_url"):
            by_pod[number] = str(pod["redis_url"])
        elif pod.get("managed"):
            by_pod[number] = f"unix://{socket_path(managed_folder(folder.frontier, number))}"
    return by_pod


def _query_server(url: str, settings: dict[str, Any]) -> QueueCounts | None:
    try:
        from weft.frontier.redis.pod_view import read_counters

        with server_at(url, settings) as (client, where):
            counters = read_counters(client, where)
    except (ServerAway, BadInput, Missing):
        return None
    return counters.queued, counters.seen, counters.sites, "server"


@contextmanager
def server_at(url: str, settings: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """A client for a pod's server with short timeouts, and the server's address without its password."""
    from weft.frontier.redis.connection import RedisSettings, address_without_password, connect

    db, password = int(settings.get("redis_db", 0)), settings.get("redis_password")
    client = connect(url, RedisSettings(db, password, ANSWER_S, ANSWER_S, max_connections=2))
    try:
        yield client, address_without_password(url, db)
    finally:
        client.close()
