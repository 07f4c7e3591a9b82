"""Read-only access to a pod's frontier on Redis, for `weft stats` and `weft explain`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from weft.errors import BadInput
from weft.frontier.redis.connection import convert_errors, error_message
from weft.frontier.redis.item_packing import OriginCodes, unpack_entry, unpacked_breakers, unpacked_item
from weft.frontier.redis.link import POD_BITS
from weft.frontier.view import JournalEntry, SiteDelays

if TYPE_CHECKING:
    from redis import Redis


class PodCounters(Struct, frozen=True):
    """The counters of a pod."""

    queued: int
    seen: int
    sites: int
    leased: int
    to_parse: int


def read_counters(client: Redis, where: str) -> PodCounters:
    """Reads the counters of lua/common.lua. ServerAway if the server does not answer, BadInput if it is not a pod's."""
    import redis

    try:
        return _read_counters(client, where)
    except (redis.RedisError, ValueError) as error:
        raise BadInput(f"{where}: {error_message(error)}") from None


def _read_counters(client: Redis, where: str) -> PodCounters:
    with convert_errors(where):
        pipe = client.pipeline(transaction=False)
        pipe.hmget("n", "queued", "sites")
        pipe.hlen("lease")
        pipe.llen("parse")
        pipe.hvals("crawls")
        answers: list[Any] = pipe.execute()
        (queued, sites), leased, to_parse, crawls = answers
        seen: list[Any] = [client.hget(f"c:{int(crawl)}", "seen") for crawl in crawls]
    return PodCounters(int(queued or 0), sum(int(one or 0) for one in seen), int(sites or 0), leased, to_parse)


class WaitingItem(Struct, frozen=True):
    """An item that has not ended."""

    entry: JournalEntry
    ahead: int  # how many items of its site come before it
    location: str


def waiting_items(client: Redis, where: str, pod: int, key_scope: str, url: str, spill: Path) -> list[WaitingItem]:
    """The items of a URL that have not ended; `spill` is the folder with the middle parts of long queues.

    Scans the site's queues: seconds, for millions of URLs. ServerAway and BadInput as `figures`.
    """
    import redis

    key, _ = OriginCodes(key_scope).key_and_code(url[: url.index("/", 8)])
    try:
        with convert_errors(where):
            return list(_QueueScan(client, pod, key, url, spill).scan_items())
    except redis.RedisError as error:
        raise BadInput(f"{where}: {error_message(error)}") from None


def site_pace(client: Redis, where: str, key: str) -> SiteDelays:
    """What delays requests to a site. ServerAway and BadInput as `figures`."""
    import redis

    try:
        with convert_errors(where):
            return _read_pace(client, key)
    except redis.RedisError as error:
        raise BadInput(f"{where}: {error_message(error)}") from None


def _read_pace(client: Any, key: str) -> SiteDelays:
    address, rare, took, packed = client.hmget(f"s:{key}", "T", "t", "l", "o")
    if address is not None:  # it shares the clock of its address
        rare, took = client.hmget(f"t:{address.decode()}", "t", "l")
    # As lua/sites.lua writes them; an older version wrote no lag.
    crawl_delay, extra, _, _, _, _, _, lag = [*(rare or b"0:0:0:0:0:0:").split(b":"), b"0"][:8]
    recent, usual = (took or b"-:0").split(b":")
    server_s, server_us = client.time()
    now = 1_000_000 * server_s + server_us + int(client.hget("n", "offset") or 0)
    return SiteDelays(
        crawl_delay=int(crawl_delay) / 1e6,
        extra=int(extra) / 1e6,
        lag=int(lag) / 1e6,
        recent=0.0 if recent == b"-" else int(recent) / 1e6,
        usual=int(usual) / 1e6,
        breakers={
            origin: (probes, True, time.time() + (open_until - now) / 1e6)
            for origin, (open_until, probes) in (unpacked_breakers(packed, key) if packed else {}).items()
            if open_until
        },
    )


class _QueueScan:
    """One scan of a site's queues for a URL."""

    def __init__(self, client: Any, pod: int, key: str, url: str, spill: Path) -> None:
        self._client = client
        self._pod, self._key, self._url = pod, key, url
        self._spill = spill
        self._ahead = 0

    def scan_items(self) -> Iterator[WaitingItem]:
        for table, place in (("lease", "leased to a process"), ("fetched", "fetched, and waits for a parser")):
            for record in self._client.hvals(table):
                fields = unpacked_item(record)
                if fields[2].decode() == self._key:
                    yield from self._matching_item(fields[5], place)
                    self._ahead = 0
        for crawl in sorted(map(int, self._client.hvals("crawls"))):
            for kind in ("u", "m"):
                for member in self._client.zrange(f"{kind}:{crawl}:{self._key}", 0, -1):
                    yield from self._matching_item(unpacked_item(member[6:]), "before the others of its site")
            has_depths = self._client.hget(f"c:{crawl}", "depth") is not None
            for depth in self._queue_depths(crawl):
                for packed, place in self._read_queue(f"{crawl}:{depth}:{self._key}"):
                    rest = packed[6 + packed[5] :] if has_depths else packed[5:]
                    item = [int.from_bytes(packed[:5], "big"), int(depth), 0, b"p", 0, b"", rest, b""]
                    yield from self._matching_item(item, place)

    def _queue_depths(self, crawl: int) -> list[str]:
        queues = (self._client.hget(f"s:{self._key}", "L") or b"").decode().split(";")
        depths = next((queue.split(":")[6] for queue in queues if queue.startswith(f"{crawl}:")), "")
        return list(filter(None, depths.replace("w", "").split(".")))

    def _read_queue(self, queue: str) -> list[tuple[bytes, str]]:
        """Head, segments on disk and tail, each with its position; read again if a segment was moved meanwhile."""
        while True:
            segments: list[bytes] = self._client.lrange(f"g:{queue}", 0, -1)
            entries = [(packed, "in its queue") for packed in _packed_members(self._client, f"q:{queue}")]
            for segment in segments:
                path = self._spill / segment.decode()
                entries += [(packed, f"in a long queue, on disk: {path}") for packed in _read_segment(path)]
            entries += [
                (packed, "at the end of a long queue") for packed in _packed_members(self._client, f"w:{queue}")
            ]
            if segments == self._client.lrange(f"g:{queue}", 0, -1):
                return entries

    def _matching_item(self, item: list[Any], place: str) -> Iterator[WaitingItem]:
        if (entry := _unpack_entry(item, self._pod, self._key, self._url)) is not None:
            yield WaitingItem(entry, self._ahead, place)
        self._ahead += 1


def _read_segment(segment: Path) -> list[bytes]:
    """The entries of a segment; empty if the file is on another node, or was used up meanwhile, which the caller
    detects by the list of segments.
    """
    try:
        return msgspec.msgpack.decode(segment.read_bytes(), type=list[bytes])
    except FileNotFoundError:
        return []


def _packed_members(client: Any, name: str) -> Iterator[bytes]:
    for start in range(0, client.llen(name), 1000):
        yield from client.lrange(name, start, start + 999)


def _unpack_entry(item: list[Any], pod: int, key: str, url: str) -> JournalEntry | None:
    number, depth, hops, letter, attempt, _, rest, _ = item
    origin, path, parent, _ = unpack_entry(rest, key)
    if origin + path != url or number < 0:
        return None
    return JournalEntry(number + (pod << POD_BITS), url, depth, parent, hops, False, attempt, letter == b"s")
