"""Whose database this is: which crawl's, which pod's, of how many, in which layout.

    schema_version   string   the layout's number; written once, by the first who takes the database
    pod:info         hash     crawl, pod, pods, address (no credentials), made_at, weft; written with it, never changed

Both are deleted by `forget` alone, with everything else. Invariant: a database that holds anything else, or another
crawl's, another pod's or another layout's data, is refused and left as it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft import __version__
from weft.errors import BadInput
from weft.frontier.redis.connection import asking

if TYPE_CHECKING:
    from redis import Redis

SCHEMA = 1
SCHEMA_KEY = "schema_version"
INFO_KEY = "pod:info"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which part of which crawl a database shall hold."""

    crawl_id: str
    pod: int
    pods: int


def take(client: Redis, where: str, identity: PodIdentity) -> bool:
    """Makes the database this pod's, or sees that it is; True when it was empty. BadInput when it is not ours."""
    from redis import exceptions as wrong

    with asking(where):
        while True:
            with client.pipeline() as steps:
                steps.watch(SCHEMA_KEY, INFO_KEY)  # type: ignore[no-untyped-call]
                if is_taken(steps, where, identity):
                    return False
                steps.multi()
                steps.set(SCHEMA_KEY, SCHEMA)
                steps.hset(INFO_KEY, mapping=_fields(where, identity))
                try:
                    steps.execute()
                except wrong.WatchError:
                    continue  # another process of this crawl was faster: see what it wrote
                return True


def is_taken(client: Redis, where: str, identity: PodIdentity) -> bool:
    """Whether the database is this pod's; False when it is empty, BadInput when it is neither. Changes nothing."""
    with asking(where):
        keys: Any = client.dbsize()  # before the others: what another process writes in between is no foreign key
        info: Any = client.hgetall(INFO_KEY)
        schema: Any = client.get(SCHEMA_KEY)
        if schema is not None and not info:
            info = client.hgetall(INFO_KEY)  # another process may have written both in between
    if schema is not None or info:
        _check(_text(schema), {_text(name): _text(value) for name, value in info.items()}, where, identity)
        return True
    if keys:
        raise BadInput(f"{where}: holds {keys:,} keys that are no crawl's; choose an empty database (redis_db)")
    return False


def forget(client: Redis, where: str, crawl_id: str) -> None:
    """Empties the database if it is that crawl's; another's is left as it is."""
    with asking(where):
        owner: Any = client.hget(INFO_KEY, "crawl")
        if owner is not None and _text(owner) == crawl_id:
            client.flushdb()


def _fields(where: str, identity: PodIdentity) -> dict[Any, Any]:
    return {
        "crawl": identity.crawl_id,
        "pod": identity.pod,
        "pods": identity.pods,
        "address": where,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "weft": __version__,
    }


def _check(schema: str, info: dict[str, str], where: str, identity: PodIdentity) -> None:
    if schema != str(SCHEMA):
        made = info.get("weft")
        raise BadInput(
            f"{where}: its data has layout {schema or 'of another program'}, this Weft reads {SCHEMA}; "
            f"use the Weft that made it{f' ({made})' if made else ''}, or another redis_db"
        )
    if info.get("crawl") != identity.crawl_id:
        raise BadInput(
            f"{where}: holds another crawl ({info.get('crawl', 'unknown')}, made {info.get('made_at', 'unknown')}); "
            "choose another redis_db, or go on with that one in its data dir"
        )
    if info.get("pods") != str(identity.pods):
        raise BadInput(
            f"{where}: the crawl has {info.get('pods')} pods, {identity.pods} were given; "
            "the number is fixed for a crawl: give as many as it was started with"
        )
    if info.get("pod") != str(identity.pod):
        raise BadInput(
            f"{where}: is pod {info.get('pod')} of this crawl, but stands in the list as pod {identity.pod}; "
            "give the pods in the order that the crawl was started with"
        )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
