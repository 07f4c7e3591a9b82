"""The keys of pods: how a crawl is divided into pods and processes, and how it connects to Redis."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from weft.config.section import Count, Help, Positive, Section, SocketTimeout, Tuning


class PodSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The location of a pod's frontier: an existing Redis, or one that the crawl runs itself."""

    redis_url: str = ""
    managed: bool = False


class PodsSection(Section, frozen=True, kw_only=True):
    """How a crawl is divided into pods and processes."""

    pods: Annotated[tuple[PodSpec, ...], Help("a Redis URL for each pod, or `managed`; none: pods are embedded")] = ()
    num_pods: Annotated[
        Annotated[int, Meta(ge=1, le=256)],
        Help("parts that the crawl's domains are divided over; with `pods`, the first N of them"),
    ]
    only_pods: Annotated[str | None, Tuning("pods that run on this node, as 0-3 or 0,2; none: all")] = None
    fetchers_per_pod: Annotated[Annotated[int, Meta(ge=1, le=1000)], Tuning("fetcher processes of a pod")]
    parsers_per_pod: Annotated[
        Annotated[int, Meta(ge=0, le=1000)], Tuning("parser processes of a pod; 0: fetchers parse pages themselves")
    ]
    parser_workers: Annotated[Positive, Tuning("pages that a parser leases at a time")] = 50
    affinity: Annotated[bool, Tuning("one core for each process")] = field(default=False, name="enable_cpu_affinity")
    parse_soft: Annotated[Positive, Tuning("pages waiting for a pod's parsers at which fetchers slow down")] = field(
        default=20_000, name="parse_queue_soft_limit"
    )
    parse_hard: Annotated[Positive, Tuning("pages waiting for a pod's parsers at which fetchers wait")] = field(
        default=80_000, name="parse_queue_hard_limit"
    )
    seen_filter: Annotated[
        Literal["exact", "bloom"],
        Tuning("how a Redis pod remembers seen URLs; bloom uses less memory, and skips some new ones"),
    ] = "exact"
    bloom_capacity: Annotated[Positive, Tuning("URLs that the bloom filters of all pods are sized for")] = field(
        default=10_000_000_000, name="bloom_filter_capacity"
    )
    bloom_error_rate: Annotated[
        Annotated[float, Meta(gt=0, lt=1)], Tuning("share of new URLs that a bloom filter mistakes for known ones")
    ] = field(default=0.001, name="bloom_filter_error_rate")

    @property
    def on_redis(self) -> bool:
        """Whether the pods' frontiers are in Redis."""
        return bool(self.pods)

    @property
    def here(self) -> tuple[int, ...]:
        """The pods that run on this node."""
        return tuple(range(self.num_pods)) if self.only_pods is None else numbers(self.only_pods)


class RedisSection(Section, frozen=True, kw_only=True):
    """How to connect to the Redis of every pod."""

    db: Annotated[Count, Tuning("database of every pod's Redis")] = field(default=0, name="redis_db")
    password: Annotated[str | None, Tuning("password of every pod's Redis")] = field(
        default=None, name="redis_password"
    )
    socket_timeout_s: Annotated[SocketTimeout, Tuning("seconds to wait for an answer of Redis")] = field(
        default=30.0, name="redis_socket_timeout"
    )
    connect_timeout_s: Annotated[SocketTimeout, Tuning("seconds to connect to Redis")] = field(
        default=10.0, name="redis_socket_connect_timeout"
    )
    keepalive: Annotated[bool, Tuning("keep idle connections to Redis alive")] = field(
        default=True, name="redis_socket_keepalive"
    )
    max_connections: Annotated[Positive, Tuning("connections of a process to one Redis, at most")] = field(
        default=100, name="redis_max_connections"
    )


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of `0-3,7`, sorted; raises ValueError for any other form."""
    result: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if int(last or first) >= 10_000:  # far more pods than are possible; a larger range would fill the memory
            raise ValueError(text)
        result.update(range(int(first), int(last or first) + 1))
    if not result:
        raise ValueError(text)
    return tuple(sorted(result))
