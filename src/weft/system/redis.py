"""The system's Redis: one that answers at `redis_url` already, which is used and never stopped, or one of our own.

It is always asked first: a server of ours is only started at an address of this machine where none listens. Without a
`redis_url` ours listens at a socket in the data dir, and no one can be in its way.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weft.config import ServicesSection
from weft.errors import Missing, ServerAway
from weft.frontier.redis.connection import (
    RedisSettings,
    Unreachable,
    address_without_password,
    connect,
    error_message,
    inspect_server,
)
from weft.supervise.child import RestartPolicy
from weft.supervise.external import External
from weft.supervise.graph import Kept
from weft.supervise.redis_server import RedisServer
from weft.supervise.service import HEALTHY, HealthReport, ServiceHealth

LIMIT_S = 2.0
STUCK_S = 25.0
# Ten tries, half a second apart.
POLICY = RestartPolicy(
    first_delay_s=0.5, factor=1.0, max_delay_s=0.5, jitter=0.0, max_failures=10, health_forgives=True, stop_grace_s=10.0
)
_LOOPBACK = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}
UsableRedis = tuple[Kept, str, Callable[[], None]]  # the service, its URL, and what cleans up after it


def redis_of(section: ServicesSection, folder: Path, log_file: Path, environment: Mapping[str, str]) -> UsableRedis:
    """The Redis that the settings select; raises the reason if it cannot be used."""
    url = section.redis_url
    if url is None:
        return _start_own(folder, log_file, environment, section.redis_password)
    try:
        return _use_external(url, section.redis_password)
    except Unreachable:
        where = startable(url)
        if where is None:
            raise
    host, port = where
    password = unquote(urlsplit(url).password or "") or section.redis_password
    return _start_own(folder, log_file, environment, password, {"port": str(port), "bind": host}, url)


def _start_own(
    folder: Path,
    log_file: Path,
    environment: Mapping[str, str],
    password: str | None,
    settings: Mapping[str, str] | None = None,
    url: str = "",
) -> UsableRedis:
    log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        server = RedisServer(
            folder, settings=settings, password=password, policy=POLICY, log_file=log_file, patience_s=STUCK_S,
            environment=environment,
        )  # fmt: skip
    except Missing as missing:
        raise Missing.said(
            f"{missing}; or name one that runs in `redis_url`, or leave `redis` out of `services`"
        ) from None
    return server.service, address_without_password(url) if url else server.url, server.clean_up


def _use_external(url: str, password: str | None) -> UsableRedis:
    """Makes a service of a server that is not ours; raises its error, except while it loads its data."""
    client = connect(url, RedisSettings(password=password, socket_timeout_s=LIMIT_S, connect_timeout_s=LIMIT_S))
    try:
        inspect_server(url, client, wait_s=0.0)
    except (ServerAway, Unreachable) as away:
        if "is loading" not in str(away) and "is still loading" not in str(away):
            client.close()
            raise
    except BaseException:
        client.close()
        raise

    def ask() -> HealthReport:
        try:
            client.ping()
            role = client.info("replication").get("role")
        except Exception as error:  # whatever the client library raises is its way to say no
            why = error_message(error)
            return HealthReport(
                ServiceHealth.LOADING if "loading" in why else ServiceHealth.FAILING,
                f"{address_without_password(url)}: {why}",
            )
        if role == "slave":
            return HealthReport(
                ServiceHealth.FAILING, f"{address_without_password(url)}: is a read-only replica; give its master"
            )
        return HEALTHY

    return External("redis", ask), address_without_password(url), client.close


def startable(url: str) -> tuple[str, int] | None:
    """Host and port of a URL at which a server of ours may be started: of this machine, and nothing listens there."""
    parts = urlsplit(url)
    host = _LOOPBACK.get(parts.hostname or "localhost")
    if parts.scheme != "redis" or host is None:
        return None
    port = parts.port or 6379
    try:
        socket.create_connection((host, port), LIMIT_S).close()
    except ConnectionRefusedError:
        return host, port
    except OSError:
        return None
    return None
