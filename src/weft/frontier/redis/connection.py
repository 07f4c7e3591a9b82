"""Connects to a pod's Redis, checks whether it can hold a frontier, and classifies errors.

Nothing is written here (see `pod_info`). Invariants: no credentials in a message, a log or an address; a command is
never retried without its caller's knowledge, because a claim that runs twice leases twice.
"""

from __future__ import annotations

import enum
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from weft.errors import BadInput, Missing, ServerAway, ServerFull
from weft.telemetry import Peer

if TYPE_CHECKING:
    from redis import Redis

SCHEMES = ("redis", "rediss", "unix")
LOADING_POLL_S = 0.2
# Temporary errors of a server that have no type in the client library.
_AWAY_WORDS = ("BUSY ", "TRYAGAIN", "max number of clients")
_FULL_WORDS = ("OOM ", "MISCONF")
_PASSWORD_WORDS = ("NOAUTH", "WRONGPASS", "invalid password", "without any password", "Authentication required")


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Connection settings of all pods' Redis; the database and password in a URL override them."""

    db: int = 0
    password: str | None = None
    socket_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    keepalive: bool = True
    max_connections: int = 100


def server_addresses(urls: Iterable[str]) -> frozenset[Peer]:
    """The addresses of these servers, in the form of a socket's peer name; none for a host that does not resolve."""
    addresses: set[Peer] = set()
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            addresses.add(parts.path)
            continue
        try:
            answers = socket.getaddrinfo(parts.hostname or "localhost", parts.port or 6379, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            continue
        addresses.update((str(address[0]), int(address[1])) for *_, address in answers)
    return frozenset(addresses)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Properties of a usable server."""

    address: str
    db: int
    run_id: str
    version: str
    aof: bool
    maxmemory_bytes: int
    used_bytes: int

    @property
    def warnings(self) -> list[str]:
        """Settings that should be corrected, though the crawl can run."""
        if self.aof:
            return []
        return [
            f"{self.address}: its append-only file is off: what was queued since its last snapshot is lost when it "
            "dies; set `appendonly yes` there"
        ]


class Unreachable(BadInput):
    """No server answers there, or not in time: a wrong address, or a server that is down."""


class Restarted(ServerAway):
    """The server was restarted, and may have lost data: nothing was sent."""


class Emptied(ServerAway):
    """The database differs from the one that was opened: it was emptied, or claimed again since. Nothing was
    changed.
    """

    def __init__(self, where: str) -> None:
        super().__init__(f"{where}: was emptied while the crawl used it; it is filled again from what is stored")


class ServerTrouble(enum.Enum):
    """What to do about an exception of the client library."""

    AWAY = "away"  # the pod pauses and tries again; also after a change of password, which may be reverted
    FULL = "full"  # the pod pauses until there is room
    FATAL = "fatal"  # trying again is useless


def address_without_password(url: str, db: int = 0) -> str:
    """A URL without user and password, fit for messages: `redis://10.0.0.7:6379/0`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "a redis_url that cannot be read"
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={_database_in_query(parts.query, db)}"
    number = parts.path.strip("/") or str(_database_in_query(parts.query, db))
    host = parts.hostname or "localhost"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port or 6379}/{number}"


def connect(url: str, settings: RedisSettings | None = None) -> Redis:
    """A client for a pod's Redis. Nothing is sent yet; an invalid URL is BadInput."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise Missing.of_extra("the client for Redis", "redis") from None
    settings = settings or RedisSettings()
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or "://" not in url:
        raise BadInput("redis_url: must begin with redis://, rediss:// or unix://, as in redis://localhost:6379/0")
    options: dict[str, Any] = {
        "db": settings.db,
        "password": settings.password,
        "socket_timeout": settings.socket_timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "max_connections": settings.max_connections,
        "timeout": settings.socket_timeout_s,
    }
    if scheme != "unix":
        options["socket_keepalive"] = settings.keepalive
    try:
        pool = redis.BlockingConnectionPool.from_url(url, **options)
        pool.connection_class(**pool.connection_kwargs)  # raises for invalid options now, not at the first command
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"redis_url {address_without_password(url, settings.db)}: {_message_without_password(error, url)}"
        ) from None
    return redis.Redis(connection_pool=pool)


def shorten_timeouts(client: Redis, timeout_s: float) -> None:
    """Shortens the client's timeouts, for callers that can work without this server for a while."""
    options = client.connection_pool.connection_kwargs
    _reconnect(client, {name: min(options[name], timeout_s) for name in ("socket_timeout", "socket_connect_timeout")})


def check_run_id(client: Redis, known: Callable[[], str]) -> None:
    """Makes every new connection check the server's run id: Restarted, before anything is sent, if it differs from the
    known one (empty: any is accepted).

    The library reconnects silently, and another process may have loaded the scripts again.
    """

    def checked(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("INFO", "server")
        found, run = connection.read_response().split(), known()
        if run and f"run_id:{run}".encode() not in found:
            connection.disconnect()
            raise Restarted("the server was restarted")

    _reconnect(client, {"redis_connect_func": checked})


def _reconnect(client: Redis, options: Mapping[str, Any]) -> None:
    pool = client.connection_pool
    pool.connection_kwargs.update(options)
    pool.disconnect()
    pool.reset()  # existing connections would otherwise reconnect with the old options


def classify(error: BaseException) -> ServerTrouble:
    """What to do about an exception that a command raised."""
    from redis import exceptions as wrong

    text = str(error)
    if isinstance(error, wrong.OutOfMemoryError) or any(word in text for word in _FULL_WORDS):
        return ServerTrouble.FULL
    if isinstance(error, wrong.AuthorizationError):
        return ServerTrouble.FATAL
    if isinstance(error, wrong.NoPermissionError) or _contains_any(_PASSWORD_WORDS, text):
        return ServerTrouble.AWAY
    away = (wrong.ConnectionError, wrong.TimeoutError, wrong.ReadOnlyError, wrong.ClusterDownError, OSError)
    if isinstance(error, away) or _contains_any(_AWAY_WORDS, text):
        return ServerTrouble.AWAY
    return ServerTrouble.FATAL


@contextmanager
def convert_errors(where: str) -> Iterator[None]:
    """Turns the client library's exceptions into ServerAway and ServerFull; a fatal one is raised unchanged."""
    import redis

    try:
        yield
    except redis.RedisError as error:
        trouble = classify(error)
        if trouble is ServerTrouble.AWAY:
            raise ServerAway(f"{where}: {error_message(error)}") from error
        if trouble is ServerTrouble.FULL:
            raise ServerFull(f"{where}: {error_message(error)}") from error
        raise


def error_message(error: BaseException) -> str:
    """The error as a short message."""
    from redis import exceptions as wrong

    causes = list(_error_causes(error))
    text = str(error)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "no such host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "refuses the connection: no server is running there"
    if any(isinstance(cause, FileNotFoundError) for cause in causes):
        return "there is no such socket: no server is running there"
    if any(isinstance(cause, PermissionError) for cause in causes):
        return "this user may not open the socket"
    if any(isinstance(cause, wrong.TimeoutError | TimeoutError) for cause in causes):
        return "does not answer in time"
    if isinstance(error, wrong.OutOfMemoryError) or "OOM" in text:
        return "is full (maxmemory with noeviction): give it more memory, and the crawl continues"
    if "MISCONF" in text:
        return "cannot write to its disk: make room there, and the crawl continues"
    if isinstance(error, wrong.BusyLoadingError):
        return "is loading its data"
    if isinstance(error, wrong.ReadOnlyError):
        return "is a read-only replica"
    if isinstance(error, wrong.NoPermissionError):
        return "forbids this user a command or a key: give it all of them, and the crawl continues"
    if _contains_any(_PASSWORD_WORDS, text) or isinstance(error, wrong.AuthenticationError):
        return (
            "refuses the password: the crawl continues when it is accepted again; for another one stop the crawl, and "
            "resume it with redis_password (or WEFT_REDIS_PASSWORD)"
        )
    return f"{type(error).__name__}: {text.splitlines()[0][:200] if text else 'no message'}"


def inspect_server(
    url: str,
    client: Redis,
    *,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    wait_s: float = 3600.0,
) -> ServerFacts:
    """Checks whether the server can hold a frontier; waits while it loads. Raises one clear BadInput, or ServerFull.

    Unreachable, a kind of BadInput, may be temporary.
    """
    where = address_without_password(url, int(client.connection_pool.connection_kwargs.get("db") or 0))
    until, announced = clock() + wait_s, False
    while True:
        info = _read_info(client, where)
        if not int(info.get("loading", 0)):
            return _check_facts(info, where, client)
        if not announced:
            tell(f"{where}: is loading its data; waiting for it")
            announced = True
        if clock() > until:
            raise ServerAway(f"{where}: is still loading its data after {wait_s:.0f} s")
        sleep(LOADING_POLL_S)


def refuse_shared(servers: Mapping[int, ServerFacts]) -> None:
    """BadInput if two pods share a database, whatever its URLs."""
    known: dict[tuple[str, int], int] = {}
    for pod, facts in servers.items():
        first = known.setdefault((facts.run_id, facts.db), pod)
        if first != pod:
            raise BadInput(
                f"pods {first} and {pod} are one database ({servers[first].address} and {facts.address}): "
                "each pod needs a Redis of its own, or at least a database of its own"
            )


def _read_info(client: Redis, where: str) -> dict[str, Any]:
    from redis import exceptions as wrong

    try:
        info: Any = client.info("all")
    except wrong.InvalidResponse:
        raise BadInput(f"{where}: is not Redis: its answers are not in Redis's protocol") from None
    except wrong.NoPermissionError:
        raise BadInput(f"{where}: the user may not use INFO: give it all commands and keys") from None
    except (wrong.RedisError, OSError) as error:
        raise _connection_error(error, where) from None
    if not isinstance(info, dict) or "redis_version" not in info:
        raise BadInput(f"{where}: is not Redis: its INFO has no redis_version")
    return info


def _connection_error(error: BaseException, where: str) -> BadInput:
    from redis import exceptions as wrong

    text = str(error)
    if isinstance(error, wrong.AuthenticationError) or _contains_any(_PASSWORD_WORDS, text):
        needs = "NOAUTH" in text or "Authentication required" in text
        why = "needs a password" if needs else "refuses the password"
        return BadInput(f"{where}: {why}; set redis_password (or WEFT_REDIS_PASSWORD), or put it into redis_url")
    if "DB index is out of range" in text:
        return BadInput(f"{where}: has no database of that number; choose another redis_db")
    if "SSL" in text or "certificate" in text:
        return BadInput(f"{where}: TLS failed: {text.splitlines()[0][:200]}")
    hung_up = "Connection closed" in text or "Connection not ready" in text
    if hung_up or any(isinstance(cause, ConnectionResetError | BrokenPipeError) for cause in _error_causes(error)):
        return BadInput(f"{where}: closes the connection: it is not Redis, or it requires TLS (rediss://)")
    return (Unreachable if classify(error) is ServerTrouble.AWAY else BadInput)(f"{where}: {error_message(error)}")


def _check_facts(info: dict[str, Any], where: str, client: Redis) -> ServerFacts:
    mode = info.get("redis_mode", "standalone")
    if mode != "standalone":
        raise BadInput(f"{where}: runs in {mode} mode; each pod needs a plain Redis of its own")
    if info.get("role") == "slave":
        raise BadInput(f"{where}: is a replica of {info.get('master_host')}; give its master")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise BadInput(
            f"{where}: would evict queued URLs (maxmemory-policy {policy}); set `maxmemory-policy noeviction` there"
        )
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if most and used >= most:
        raise ServerFull(f"{where}: is full: {used / 1e6:,.0f} of {most / 1e6:,.0f} MB are used; raise its maxmemory")
    db = int(client.connection_pool.connection_kwargs.get("db") or 0)
    aof = bool(int(info.get("aof_enabled", 0)))
    version = str(info.get("valkey_version") or info["redis_version"])
    return ServerFacts(where, db, str(info["run_id"]), version, aof, most, used)


def _error_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _contains_any(words: Sequence[str], text: str) -> bool:
    return any(word in text for word in words)


def _database_in_query(query: str, db: int) -> str:
    return parse_qs(query).get("db", [str(db)])[0]


def _message_without_password(error: BaseException, url: str) -> str:
    """An error message about a URL, unless it contains the password."""
    text = str(error)
    try:
        secret = urlsplit(url).password or ""
    except ValueError:
        return "cannot be read"
    return "cannot be read" if secret and secret in text else text
