"""A pod's frontier on Redis, seen from outside: reads and changes nothing, for `weft stats` and `weft explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.errors import BadInput
from weft.frontier.redis.client import POD_BITS
from weft.frontier.redis.connection import asking, describe
from weft.frontier.redis.packing import Keys, unpacked, unpacked_item
from weft.frontier.view import Entry

if TYPE_CHECKING:
    from redis import Redis


class PodFigures(Struct, frozen=True):
    """How a pod stands."""

    queued: int
    seen: int
    sites: int
    leased: int
    to_parse: int


def figures(client: Redis, where: str) -> PodFigures:
    """The counters of lua/common.lua. ServerAway when nobody answers, BadInput when it is no server of ours."""
    import redis

    try:
        return _read(client, where)
    except (redis.RedisError, ValueError) as error:
        raise BadInput(f"{where}: {describe(error)}") from None


def _read(client: Redis, where: str) -> PodFigures:
    with asking(where):
        pipe = client.pipeline(transaction=False)
        pipe.hmget("n", "queued", "sites")
        pipe.hlen("lease")
        pipe.llen("parse")
        pipe.hvals("crawls")
        answers: list[Any] = pipe.execute()
        (queued, sites), leased, to_parse, crawls = answers
        seen: list[Any] = [client.hget(f"c:{int(crawl)}", "seen") for crawl in crawls]
    return PodFigures(int(queued or 0), sum(int(one or 0) for one in seen), int(sites or 0), leased, to_parse)


def waiting(client: Redis, where: str, pod: int, key_scope: str, url: str) -> list[tuple[Entry, int]]:
    """The items of a URL that have not ended, each with how many of its site come before it.

    Reads the site's queues through, so seconds for millions; what is spilled to disk is not looked at. ServerAway and
    BadInput as `figures`.
    """
    import redis

    key, _ = Keys(key_scope).of(url[: url.index("/", 8)])
    try:
        with asking(where):
            return list(_waiting(client, pod, key, url))
    except redis.RedisError as error:
        raise BadInput(f"{where}: {describe(error)}") from None


def _waiting(client: Any, pod: int, key: str, url: str) -> Iterator[tuple[Entry, int]]:
    for record in client.hvals("lease") + client.hvals("fetched"):
        fields = unpacked_item(record)
        if fields[2].decode() == key and (entry := _entry(fields[5], pod, key, url)) is not None:
            yield entry, 0
    for crawl in sorted(client.hvals("crawls"), key=int):
        ahead = 0
        for member in client.zrange(f"u:{int(crawl)}:{key}", 0, -1):
            if (entry := _entry(unpacked_item(member[6:]), pod, key, url)) is not None:
                yield entry, ahead
            ahead += 1
        has_depths = client.hget(f"c:{int(crawl)}", "depth") is not None
        lanes = (client.hget(f"s:{key}", "L") or b"").decode().split(";")
        depths = next((lane.split(":")[6] for lane in lanes if lane.startswith(f"{int(crawl)}:")), "")
        for depth in filter(None, depths.replace("w", "").split(".")):
            for name in (f"q:{int(crawl)}:{depth}:{key}", f"w:{int(crawl)}:{depth}:{key}"):
                for packed in _members(client, name):
                    rest = packed[6 + packed[5] :] if has_depths else packed[5:]
                    item = [int.from_bytes(packed[:5], "big"), int(depth), 0, b"p", 0, b"", rest, b""]
                    if (entry := _entry(item, pod, key, url)) is not None:
                        yield entry, ahead
                    ahead += 1


def _members(client: Any, name: str) -> Iterator[bytes]:
    for start in range(0, client.llen(name), 1000):
        yield from client.lrange(name, start, start + 999)


def _entry(item: list[Any], pod: int, key: str, url: str) -> Entry | None:
    number, depth, hops, letter, attempt, _, rest, _ = item
    origin, path, parent, _ = unpacked(rest, key)
    if origin + path != url or number < 0:
        return None
    return Entry(number + (pod << POD_BITS), url, depth, parent, hops, False, attempt, letter == b"s")
