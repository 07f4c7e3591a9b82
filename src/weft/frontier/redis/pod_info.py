"""The identity of a pod's database: its crawl, its pod and their number, its layout, and its node.

    schema_version   string   the layout's number; written once, by the process that claims the empty database
    pod:info         hash     pod_id, pods, crawl, redis_url (no credentials), initialized_at, weft; written with it
                              node   the one that runs the pod, as ID@HOST:FOLDER; written by its first start
    n                hash     id     random, of this claim of the database; every script of a process checks it, so that
                              none works on a database that was emptied, or claimed by another crawl since

No field changes once it is written, and all are deleted by `forget` alone, with everything else. Invariant: a database
that holds anything else, or another crawl's, another pod's or another layout's data, is refused and left as it is. So
is a pod that another node has run: its pages, its spool and the tails of its queues lie on that node's disk.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft import __version__
from weft.errors import BadInput
from weft.frontier.redis.connection import Emptied, convert_errors

if TYPE_CHECKING:
    from redis import Redis

SCHEMA = 2
SCHEMA_KEY = "schema_version"
INFO_KEY = "pod:info"
CLAIM_KEY, CLAIM_FIELD = "n", "id"
# The keys that processes of a running crawl may write into an emptied database before they notice.
_LEFTOVER_TYPES = {
    b"n": b"hash", b"meta": b"hash", b"owner": b"string", b"decider": b"string", b"crew": b"set", b"settling": b"set",
    b"outboxes": b"hash", b"told": b"list", b"state": b"hash", b"slots": b"hash", b"senders": b"hash",
}  # fmt: skip
_CRAWL_LEFTOVER_TYPES = {b"c": b"hash", b"permits": b"hash", b"scope": b"set"}
_MOST_LEFTOVERS = 100


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The identity of a pod's database: its crawl and pod. `node` runs it; empty: not checked."""

    crawl_id: str
    pod: int
    pods: int
    node: str = ""


def claim_pod(client: Redis, where: str, identity: PodIdentity, *, was_ours: bool = False) -> bool:
    """Claims an empty database for this pod; True if it was empty, False if it is this pod's, BadInput if neither.

    `was_ours`: this node has run the pod. Then an emptied database also counts as empty if it holds only what the pod's
    own processes wrote before they noticed; that is deleted. The rest of this pod's data is also deleted if the
    counters are lost: queues are useless without them.
    """
    from redis import exceptions as wrong

    with convert_errors(where):
        while True:
            with client.pipeline() as steps:
                steps.watch(SCHEMA_KEY, INFO_KEY)  # type: ignore[no-untyped-call]
                is_broken = was_ours and _has_no_counters(steps)
                if is_claimed(steps, where, identity, was_ours=was_ours) and not is_broken:
                    return False
                leftovers = _leftover_keys(steps) if was_ours else []
                steps.multi()
                if is_broken:
                    steps.flushdb()
                elif leftovers:
                    steps.delete(*leftovers)
                steps.hset(CLAIM_KEY, CLAIM_FIELD, secrets.token_hex(8))
                steps.set(SCHEMA_KEY, SCHEMA)
                steps.hset(INFO_KEY, mapping=_info_fields(where, identity))
                try:
                    steps.execute()
                except wrong.WatchError:
                    continue  # another process of this crawl was faster: read what it wrote
                return True


def is_claimed(client: Redis, where: str, identity: PodIdentity, *, was_ours: bool = False) -> bool:
    """Whether the database is this pod's; False when it is empty, BadInput when it is neither. Changes nothing.

    `was_ours`: as for `claim_pod`.
    """
    from redis import exceptions as wrong

    try:
        with convert_errors(where):
            keys: Any = client.dbsize()  # read first: keys that another process writes meanwhile are not foreign
            info: Any = client.hgetall(INFO_KEY)
            schema: Any = client.get(SCHEMA_KEY)
            if schema is not None and not info:
                info = client.hgetall(INFO_KEY)  # another process may have written both in between
    except wrong.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise BadInput(
            f"{where}: its {SCHEMA_KEY} or {INFO_KEY} is another program's; choose an empty database (redis_db)"
        ) from None
    if schema is not None or info:
        _check_owner(
            _as_text(schema), {_as_text(name): _as_text(value) for name, value in info.items()}, where, identity
        )
        return True
    if not keys:
        return False
    if was_ours:
        with convert_errors(where):
            if keys <= _MOST_LEFTOVERS and len(_leftover_keys(client)) == client.dbsize():
                return False
        raise BadInput(
            f"{where}: was emptied, and holds {keys:,} keys that are not this crawl's; empty it (FLUSHDB) if they are "
            "not needed, and resume the crawl: its pod is filled again from what is stored"
        )
    raise BadInput(f"{where}: holds {keys:,} keys that are not a crawl's; choose an empty database (redis_db)")


def read_claim_id(client: Redis, where: str, identity: PodIdentity) -> str:
    """The random id of this pod's claim of the database; Emptied if there is none, BadInput if it is another's."""
    with convert_errors(where):
        info: Any = client.hgetall(INFO_KEY)
        if not info or _has_no_counters(client):
            raise Emptied(where)
    is_claimed(client, where, identity)
    with convert_errors(where):
        return _as_text(client.hget(CLAIM_KEY, CLAIM_FIELD))


def renew_claim(client: Redis, where: str, identity: PodIdentity) -> None:
    """Ends the work of every process that has opened the database until now, as if it had been emptied, and forgets the
    reports of its slots. Emptied, and nothing is written, if it was emptied or belongs to another crawl now.
    """
    from redis import exceptions as wrong

    with convert_errors(where), client.pipeline() as steps:
        steps.watch(INFO_KEY)  # type: ignore[no-untyped-call]
        crawl: Any = steps.hget(INFO_KEY, "crawl")
        if crawl is None or _as_text(crawl) != identity.crawl_id:
            raise Emptied(where)
        steps.multi()
        steps.hset(CLAIM_KEY, CLAIM_FIELD, secrets.token_hex(8))
        steps.delete("slots")
        try:
            steps.execute()
        except wrong.WatchError:
            raise Emptied(where) from None


def _has_no_counters(client: Redis) -> bool:
    """Whether there are crawls, but not the counters that every operation changes."""
    return bool(client.exists("crawls")) and not client.hexists(CLAIM_KEY, "ops")


def _leftover_keys(client: Redis) -> list[bytes]:
    """The keys that contain no data, only what processes wrote into an emptied database."""
    scanned: Any = client.scan(0, count=10 * _MOST_LEFTOVERS)  # so few keys come at once
    names: list[bytes] = scanned[1]
    return [name for name in names if client.type(name) == _kind_of_leftover(name)]


def _kind_of_leftover(name: bytes) -> bytes | None:
    if match := re.fullmatch(rb"([a-z]+):\d+", name):
        return _CRAWL_LEFTOVER_TYPES.get(match[1])
    return _LEFTOVER_TYPES.get(name)


def agree_on_crawl_id(client: Redis, where: str, pods: int, wanted: str) -> str:
    """The id of the crawl in pod 0's database, which is claimed for the wanted id if it is empty."""
    while True:
        any_crawl = PodIdentity("", 0, pods)
        if is_claimed(client, where, any_crawl):
            with convert_errors(where):
                return _as_text(client.hget(INFO_KEY, "crawl"))
        try:
            claim_pod(client, where, PodIdentity(wanted, 0, pods))
        except BadInput:
            continue  # another node was faster: read what it wrote
        return wanted


def bind_pod(client: Redis, where: str, identity: PodIdentity) -> bool:
    """Assigns the pod to this node; True if it had none. BadInput if it is assigned to another node."""
    from redis import exceptions as wrong

    with convert_errors(where):
        while True:
            with client.pipeline() as steps:
                steps.watch(INFO_KEY)  # type: ignore[no-untyped-call]
                if not is_claimed(steps, where, identity):
                    raise BadInput(f"{where}: was emptied in this moment; start again")
                if steps.hget(INFO_KEY, "node"):
                    return False
                steps.multi()
                steps.hset(INFO_KEY, "node", identity.node)
                try:
                    steps.execute()
                except wrong.WatchError:
                    continue
                return True


def unbind_pod(client: Redis, where: str, node: str) -> None:
    """Releases a pod of a node that had just bound it and could not start."""
    with convert_errors(where):
        if _as_text(client.hget(INFO_KEY, "node")) == node:
            client.hdel(INFO_KEY, "node")


def belongs_to_crawl(client: Redis, where: str, crawl_id: str) -> bool:
    """Whether the database belongs to that crawl."""
    with convert_errors(where):
        return _as_text(client.hget(INFO_KEY, "crawl")) == crawl_id


def empty_database(client: Redis, where: str, crawl_id: str) -> None:
    """Empties the database if it belongs to that crawl; another's is unchanged."""
    if belongs_to_crawl(client, where, crawl_id):
        with convert_errors(where):
            client.flushdb()


def _info_fields(where: str, identity: PodIdentity) -> dict[Any, Any]:
    return {
        "pod_id": identity.pod,
        "pods": identity.pods,
        "crawl": identity.crawl_id,
        "redis_url": where,
        "initialized_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "weft": __version__,
    }


def _check_owner(schema: str, info: dict[str, str], where: str, identity: PodIdentity) -> None:
    if schema != str(SCHEMA):
        made = info.get("weft")
        raise BadInput(
            f"{where}: its data has layout {schema or 'of another program'}, this Weft reads {SCHEMA}; "
            f"use the Weft that made it{f' ({made})' if made else ''}, or another redis_db"
        )
    if identity.crawl_id and info.get("crawl") != identity.crawl_id:
        crawl_id, since = info.get("crawl", "unknown"), info.get("initialized_at", "unknown")
        raise BadInput(
            f"{where}: holds another crawl ({crawl_id}, made {since}); "
            "choose another redis_db, or resume that crawl in its data dir"
        )
    if info.get("pods") != str(identity.pods):
        raise BadInput(
            f"{where}: the crawl has {info.get('pods')} pods, {identity.pods} were given; "
            "the number is fixed for a crawl: give as many as it was started with"
        )
    if info.get("pod_id") != str(identity.pod):
        raise BadInput(
            f"{where}: is pod {info.get('pod_id')} of this crawl, but is listed as pod {identity.pod}; "
            "give the pods in the order that the crawl was started with"
        )
    holder = info.get("node", "")
    if identity.node and holder and _node_id(holder) != _node_id(identity.node):
        raise BadInput(
            f"{where}: pod {identity.pod} belongs to node {holder.partition('@')[2]}, which has its pages: "
            "run it there (`resume=True`), or leave it out with `only_pods`"
        )


def _node_id(node: str) -> str:
    """A node's id, which is the same after its folder is moved."""
    return node.partition("@")[0]


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
