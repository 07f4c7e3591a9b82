"""How a crawl's work is spread over its pods: seeds by their domains, pages from the indexes, queues from
the pods' servers or status files.

A pod's Redis server is queried if it answers; otherwise, and for embedded pods, the processes' status files have the
last known figures. Pages always come from the indexes, which are the truth. Reads alone, but for the log.
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

HOT = 1.5  # times the mean of all pods
_INDEX = re.compile(r"index-pod(\d+)-")
_SLOT = re.compile(r"pod(\d+)-")
ANSWER_S = 2.0
log = Log("weft.crawl.pods.distribution")


class PodShare(Struct, frozen=True):
    """One pod's part of a crawl. `source`: where its queue's figures come from: server, status, or nobody."""

    pod: int
    pages: int = 0
    rows: int = 0
    queued: int | None = None
    seen: int | None = None
    sites: int | None = None
    source: str = "nobody"


class Distribution(Struct, frozen=True):
    """This node's pods, and how even they are: the largest over the mean, 1 when all are equal."""

    pods: tuple[PodShare, ...]
    pages_imbalance: float
    queued_imbalance: float
    hot: tuple[int, ...]  # the pods that have HOT times the mean, of pages or of what is queued


class SeedShares(Struct, frozen=True):
    """Where a crawl's seeds fall: how many, and of how many domains, for each pod in turn."""

    seeds: tuple[int, ...]
    domains: tuple[int, ...]

    @classmethod
    def of(cls, seeds: Iterable[str], pods: int) -> SeedShares:
        """Of canonical seeds, each counted once."""
        by_domain: Counter[str] = Counter()
        domain_of: dict[str, str] = {}  # by origin: many seeds share one
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
        """For a person: the sums, how even they are, and each pod's."""
        pairs = enumerate(zip(self.seeds, self.domains, strict=True))
        by_pod = ", ".join(f"pod {pod} {seeds:,}/{domains:,}" for pod, (seeds, domains) in pairs)
        return (
            f"{sum(self.seeds):,} seeds of {sum(self.domains):,} domains over {len(self.seeds)} pods\n"
            f"  seeds a pod: {_spread(self.seeds)}\n"
            f"  domains a pod: {_spread(self.domains)}\n"
            f"  seeds/domains: {by_pod}"
        )


def announce_pods(
    pods: int, seeds: Sequence[str], environment: Mapping[str, str] | None, announce: Callable[[str], None]
) -> None:
    """Announces and logs how the seeds fall over the pods, and whether the pods check that."""
    if pods > 1 and seeds:
        shares = SeedShares.of(seeds, pods)
        announce(shares.text())
        log.info("seeds over the pods", seeds=shares.seeds, domains=shares.domains)
    if checks_pod_assignment(environment):
        what = "every URL that a pod takes in is checked, and one in the wrong pod is logged"
        announce(f"{DEBUG_PODS} is on: {what if pods > 1 else 'with one pod there is nothing to check'}")
        log.info("the pods check every URL that they take in", switch=DEBUG_PODS)


def _spread(figures: Sequence[int]) -> str:
    mean = sum(figures) / len(figures)
    return f"min {min(figures):,}, max {max(figures):,}, mean {mean:,.1f}, imbalance {imbalance(figures):.2f}"


def distribution(folder: CrawlFolder) -> Distribution:
    """How the pods of a crawl stand; of those alone that this node runs, since the others' pages are elsewhere."""
    held = _held(folder)
    reported = _from_status_files(folder)
    live = _from_servers(folder)
    shares = []
    for pod in folder.here:
        rows, pages = held.get(pod, (0, 0))
        queued, seen, sites, source = live.get(pod) or reported.get(pod) or (None, None, None, "nobody")
        shares.append(PodShare(pod, pages, rows, queued, seen, sites, source))
    pages_of = [share.pages for share in shares]
    queued_of = [share.queued or 0 for share in shares]
    hot = {shares[at].pod for at in (*_hot(pages_of), *_hot(queued_of))}
    return Distribution(tuple(shares), imbalance(pages_of), imbalance(queued_of), tuple(sorted(hot)))


def _hot(figures: Sequence[int]) -> list[int]:
    mean = sum(figures) / len(figures)
    return [at for at, figure in enumerate(figures) if mean and figure >= HOT * mean]


Figures = tuple[int | None, int | None, int | None, str]


def _held(folder: CrawlFolder) -> dict[int, tuple[int, int]]:
    """Rows and pages of each pod."""
    corpus = Corpus(folder.data_dirs)
    found: dict[int, tuple[int, int]] = {}
    try:
        for index in corpus.indexes():
            name = _INDEX.match(index.path.name)
            if name:
                before, totals = found.get(int(name[1]), (0, 0)), index.totals()
                found[int(name[1])] = (before[0] + totals[0], before[1] + totals[1])
    finally:
        corpus.close()
    return found


def _from_status_files(folder: CrawlFolder) -> dict[int, Figures]:
    """The figures in the status files: a pod's processes share one queue, so the latest file counts."""
    latest: dict[int, CrawlStatus] = {}
    for path in (folder.home / "status").glob("pod*.json"):
        name, status = _SLOT.match(path.name), read_status(path)
        if name and status and status.updated_at >= latest.get(int(name[1]), CrawlStatus()).updated_at:
            latest[int(name[1])] = status
    if not latest:
        alone = read_status(folder.status)
        latest = {0: alone} if alone else {}
    return {pod: (status.queued, status.seen, status.sites, "status") for pod, status in latest.items()}


def _from_servers(folder: CrawlFolder) -> dict[int, Figures]:
    """The figures of the pods' own servers, of those that answer."""
    settings = folder.settings()
    found: dict[int, Figures] = {}
    here = folder.here
    for pod, url in redis_urls(folder, settings).items():
        if pod not in here:
            continue
        figures = _ask(url, settings)
        if figures:
            found[pod] = figures
    return found


def redis_urls(folder: CrawlFolder, settings: dict[str, Any]) -> dict[int, str]:
    """Where the pods' servers are, by pod; empty for embedded pods."""
    pods = settings.get("pods")
    found = {}
    for number, pod in enumerate(pods if isinstance(pods, list) else ()):
        if pod.get("redis_url"):
            found[number] = str(pod["redis_url"])
        elif pod.get("managed"):
            found[number] = f"unix://{socket_path(managed_folder(folder.frontier, number))}"
    return found


def _ask(url: str, settings: dict[str, Any]) -> Figures | None:
    try:
        from weft.frontier.redis.pod_view import figures

        with server_at(url, settings) as (client, where):
            found = figures(client, where)
    except (ServerAway, BadInput, Missing):
        return None
    return found.queued, found.seen, found.sites, "server"


@contextmanager
def server_at(url: str, settings: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """A client for a pod's server that gives up soon, and the server's address without its password."""
    from weft.frontier.redis.connection import RedisSettings, address, connect

    db, password = int(settings.get("redis_db", 0)), settings.get("redis_password")
    client = connect(url, RedisSettings(db, password, ANSWER_S, ANSWER_S, max_connections=2))
    try:
        yield client, address(url, db)
    finally:
        client.close()
