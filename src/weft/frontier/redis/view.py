"""A pod's frontier on Redis, seen from outside: reads a few keys and changes nothing, for `weft stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.errors import BadInput
from weft.frontier.redis.connection import asking, describe

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
