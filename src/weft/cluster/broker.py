"""What brain and hands share on the broker, a Redis or Valkey. Names below follow `weft:{cluster id}:`.

    owner              hash     the brain: name, facts (JSON); time to live 30 s; lua/own.lua, lua/disown.lua
    epoch:{process}    string   of one process of the brain, raised before it claims anything; lua/own.lua
    claim:{id}         string   that a task was begun, so that it is begun once; lua/claim.lua; expires
    hands, reports     zset, hash   hands by the time of their last signed report, and that report; lua/report.lua
    body:{id}          string   a result's body that is too large for its message; written by a hand, deleted by the
                                brain; expires after ten minutes
    bytes, bytes_sum   zset, string   bytes reserved for such bodies; lua/reserve.lua
    results:{process}  list     signed results for one process of the brain
    pool               string   there while a pool's run has this cluster's hands; written by its brain
    counts             hash     `queue:word` -> how often: tasks done and failed, messages refused; both sides add
    counts:{hand}      hash     the same of one hand; expires
    fetch:{hand}, batches, proxies, heartbeat   lists: Celery's queues
    unacked…           Celery's messages that a hand has and has not acknowledged

Beside them, for all clusters of a database: `weft:brains` (zset, cluster ids with a brain by the end of its hold) and
`weft:refused_hands` (zset, what was refused here, by the time; the last hundred).

Invariants: times are the broker's (`TIME`), never a machine's wall clock; nothing here is believed that is not signed,
but for what this module's scripts decide; every error of the library becomes ServerAway, ServerFull or BadInput.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from weft.errors import BadInput, Busy, ServerAway, ServerFull
from weft.frontier.redis.connection import (
    SCHEMES,
    RedisSettings,
    ServerTrouble,
    address_without_password,
    classify,
    connect,
    error_message,
)

if TYPE_CHECKING:
    from redis import Redis

TIMEOUT_S = 5.0
OWNER_S = 30.0  # a brain's hold, renewed every few seconds
CLAIM_S = 2 * 3600.0  # a claim is remembered: longer than any visibility timeout
BODY_S = 600.0
REPORT_KEPT_S = 3600.0
REFUSED_KEPT = 100
BRAINS, REFUSED_HANDS = "weft:brains", "weft:refused_hands"
_LUA = files("weft.cluster") / "lua"
_AGAIN_S = 0.1
_CLOCK_MS = 60_000  # a report cannot be from the future, except by a step of the broker's clock
_COUNT = re.compile(rb"[0-9]{1,18}")  # anybody can write to a hash: what is no count of ours is not read


@dataclass(frozen=True, slots=True)
class Claim:
    """What became of a claim: `word` is ok, late, clock, no_epoch or epoch; `granted` has a value for each id."""

    word: str
    granted: tuple[bool, ...]
    left_s: float  # until the task's deadline, when the broker answered


@dataclass(frozen=True, slots=True)
class Hold:
    """The brain's hold on its cluster, as it was confirmed at `now_ms`."""

    epoch: int
    now_ms: int


class Broker:
    """A connection to the broker of one cluster. Safe under threads; not across a fork."""

    def __init__(
        self, url: str, cluster_id: str, *, timeout_s: float = TIMEOUT_S, visibility_s: float = 3600.0
    ) -> None:
        check_address(url)
        self.url, self.cluster_id = url, cluster_id
        self.where = address_without_password(url)
        self._claim_ms = int(1000 * max(CLAIM_S, 2 * visibility_s))
        with _named():
            self._client = connect(url, RedisSettings(socket_timeout_s=timeout_s, connect_timeout_s=timeout_s))
        self._scripts: dict[str, Any] = {}

    @property
    def client(self) -> Redis:
        """The client of the library, for lists and counts; use it within `asking`."""
        return self._client

    def key(self, name: str) -> str:
        """A name of this cluster on the broker."""
        return f"weft:{self.cluster_id}:{name}"

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Turns what goes wrong at the broker into errors of ours."""
        import redis

        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise self._trouble(error) from error

    def check(self) -> None:
        """BadInput with one message if the server there can be no broker; ServerAway if it may be one later."""
        with self.asking():
            info: Any = self._client.info("all")
        if not isinstance(info, dict) or "redis_version" not in info:
            raise BadInput(f"{self.where}: is no Redis or Valkey: its INFO has no redis_version")
        if (mode := info.get("redis_mode", "standalone")) != "standalone":
            raise BadInput(f"{self.where}: runs in {mode} mode; a broker must be one plain Redis or Valkey")
        if info.get("role") == "slave":
            raise BadInput(f"{self.where}: is a read-only replica of {info.get('master_host')}; give its master")
        if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
            raise BadInput(
                f"{self.where}: would evict tasks (maxmemory-policy {policy}); set `maxmemory-policy noeviction` there"
            )

    def now_ms(self) -> int:
        """The broker's time."""
        with self.asking():
            reply: Any = self._client.time()
        return int(reply[0]) * 1000 + int(reply[1]) // 1000

    # -- tasks

    def claim(
        self, ids: Sequence[str], *, until_ms: int, made_ms: int = 0, slot: str = "", epoch: int = 0, most: int = 1
    ) -> Claim:
        """Claims the ids of a task, all in one call; what was claimed `most` times before is not granted."""
        keys = [self.key(f"epoch:{slot}"), *(self.key(f"claim:{one}") for one in ids)]
        reply = self._run("claim", keys, ["" if not slot else epoch, until_ms, most, self._claim_ms, made_ms])
        granted = tuple(bool(one) for one in reply[2:]) or (False,) * len(ids)
        return Claim(_text(reply[1]), granted, max(0.0, (until_ms - int(reply[0])) / 1000))

    def count_for(self, who: str, counts: Mapping[str, int]) -> None:
        """Adds to the counts of the cluster, and of one of its hands, which are forgotten an hour after the last."""
        own = self.key(f"counts:{who}")
        with self.asking(), self._client.pipeline(transaction=False) as steps:
            for name, by in counts.items():
                steps.hincrby(self.key("counts"), name, by)
                steps.hincrby(own, name, by)
            steps.expire(own, int(REPORT_KEPT_S))
            steps.execute()

    def counts(self, who: str = "") -> dict[str, int]:
        """All counts of the cluster, or of one hand."""
        with self.asking():
            reply: Any = self._client.hgetall(self.key(f"counts:{who}" if who else "counts"))
        return {_text(name): int(value) for name, value in reply.items() if _COUNT.fullmatch(value)}

    def queue_length(self, queue: str) -> int:
        """Messages that wait in a queue."""
        with self.asking():
            length: Any = self._client.llen(queue)
        return int(length)

    # -- the brain

    def hold(self, owner: str, facts: str, slot: str, epoch: int = 0) -> Hold:
        """Takes or renews the cluster for a brain, and gives the epoch of its process: a new one without `epoch`.

        Busy if another brain holds it. An epoch that differs from the given one means that the broker was emptied:
        what was out is lost.
        """
        keys = [self.key("owner"), self.key(f"epoch:{slot}"), BRAINS]
        reply = self._run("own", keys, [owner, facts, int(OWNER_S * 1000), str(epoch or ""), self.cluster_id])
        if not reply[1]:
            raise Busy(
                f"{self.where}: another brain has this cluster's key: {_text(reply[2])[:300]}. One key is for one "
                "brain: stop that one, or make another key for this one (`weft cluster init`)"
            )
        return Hold(int(reply[1]), int(reply[0]))

    def release(self, owner: str, slot: str) -> None:
        """Gives the cluster back; tasks that are out are refused from now on."""
        self._run("disown", [self.key("owner"), self.key(f"epoch:{slot}"), BRAINS], [owner, self.cluster_id])

    def owner_facts(self) -> str:
        """What the brain says of itself (JSON); empty without one."""
        with self.asking():
            reply: Any = self._client.hget(self.key("owner"), "facts")
        return _text(reply or b"")

    # -- hands

    def report(self, hand: str, signed: str) -> tuple[int, str, int]:
        """A hand's report (empty: it leaves). Gives the time, the brain's facts, and how many clusters have a brain."""
        keys = [self.key("hands"), self.key("reports"), self.key("owner"), BRAINS, self.key("pool")]
        reply = self._run("report", keys, [hand, signed, int(REPORT_KEPT_S * 1000)])
        return int(reply[0]), _text(reply[1]), int(reply[2])

    def reports(self) -> list[tuple[str, float, str]]:
        """Each hand with the age of its last report in seconds, and the report."""
        now = self.now_ms()
        with self.asking():
            hands: Any = self._client.zrangebyscore(self.key("hands"), 0, now + _CLOCK_MS, withscores=True)
            texts: Any = self._client.hgetall(self.key("reports"))
        return [(_text(name), max(0.0, (now - at) / 1000), _text(texts.get(name, b""))) for name, at in sorted(hands)]

    def refuse_hand(self, text: str) -> None:
        """Leaves a line about a hand that may not work here, for `weft cluster status` of any cluster."""
        with self.asking():
            self._client.zadd(REFUSED_HANDS, {text[:300]: self.now_ms()})
            self._client.zremrangebyrank(REFUSED_HANDS, 0, -REFUSED_KEPT - 1)

    def refused_hands(self, since_s: float = 3600.0) -> list[tuple[float, str]]:
        """Age in seconds and line of each."""
        now = self.now_ms()
        with self.asking():
            rows: Any = self._client.zrangebyscore(REFUSED_HANDS, now - 1000 * since_s, now, withscores=True)
        return [(max(0.0, (now - at) / 1000), _text(line)) for line, at in rows]

    # -- large bodies

    def put_body(self, id_: str, data: bytes, most: int, left_s: float) -> bool:
        """Keeps a result's body for ten minutes; False if there was no room for it until `left_s` was over."""
        until = time.monotonic() + left_s
        while True:
            try:
                if self._reserve(id_, len(data), most):
                    with self.asking():
                        self._client.set(self.key(f"body:{id_}"), data, px=int(BODY_S * 1000))
                    return True
            except ServerFull:
                pass
            if time.monotonic() + _AGAIN_S >= until:
                return False
            time.sleep(_AGAIN_S)

    def take_body(self, id_: str, size: int) -> bytes | None:
        """The body, which is deleted; None if it is gone."""
        with self.asking():
            reply: Any = self._client.getdel(self.key(f"body:{id_}"))
        self._reserve(id_, size, 0)
        return bytes(reply) if reply is not None else None

    def _reserve(self, id_: str, size: int, most: int) -> bool:
        keys = [self.key("bytes"), self.key("bytes_sum")]
        return bool(int(self._run_value("reserve", keys, [id_, size, most, int(BODY_S * 1000)])))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
        self._client.connection_pool.disconnect()

    def _run(self, name: str, keys: Sequence[str], arguments: Sequence[str | int]) -> list[Any]:
        reply = self._run_value(name, keys, arguments)
        return list(reply) if isinstance(reply, list) else [reply]

    def _run_value(self, name: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._client.register_script((_LUA / f"{name}.lua").read_text())
        with self.asking():
            return script(keys=keys, args=arguments)

    def _trouble(self, error: BaseException) -> Exception:
        from redis import exceptions as wrong

        if isinstance(error, wrong.MovedError | wrong.AskError):
            return BadInput(
                f"{self.where}: belongs to a Redis Cluster (it answers MOVED); give one plain Redis or Valkey"
            )
        if isinstance(error, wrong.AuthenticationError) or "NOAUTH" in str(error):
            return BadInput(f"{self.where}: wants another password: write it into the broker's address (WEFT_BROKER)")
        if isinstance(error, wrong.InvalidResponse):
            return BadInput(f"{self.where}: is no Redis or Valkey: its answers are not in their protocol")
        if "WRONGTYPE" in str(error):
            return BadInput(
                f"{self.where}: another program writes to this cluster's keys (WRONGTYPE): give the cluster a database "
                "of its own, and delete the keys that begin with `weft:` in this one"
            )
        kind = {ServerTrouble.AWAY: ServerAway, ServerTrouble.FULL: ServerFull}.get(classify(error), BadInput)
        return kind(f"{self.where}: {_for_a_cluster(error_message(error))}")


def check_address(url: str) -> None:
    """BadInput unless this can be the address of a broker."""
    if not url.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise BadInput("`broker`: must begin with redis://, rediss:// or unix://, as in redis://10.0.0.7:6379/0")


def is_private(url: str) -> bool:
    """Whether no stranger can read what goes to this broker: TLS, a local socket, or loopback."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme in ("rediss", "unix"):
        return True
    host = parts.hostname or "localhost"
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _named() -> Iterator[None]:
    """Messages about an address say which setting it is."""
    try:
        yield
    except BadInput as error:
        raise BadInput(str(error).replace("redis_url", "`broker`", 1)) from None


def _for_a_cluster(text: str) -> str:
    """The connection's words are about crawls on Redis; here the server is a broker."""
    return text.partition(", and the crawl continues")[0].partition(": the crawl continues")[0]


def _text(value: Mapping[str, Any] | bytes | str | Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
