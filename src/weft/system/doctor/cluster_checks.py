"""The doctor's checks for a cluster: its broker, as it is reached from here, and its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.cluster.broker import Broker, is_private
from weft.cluster.key import configured_key
from weft.config import ServiceConfig
from weft.errors import ServerAway, WeftError
from weft.system.doctor.finding import CheckState, Finding
from weft.system.redis import startable

ANSWER_S = 2.0


def broker(config: ServiceConfig) -> Iterator[Finding]:
    """Checks the server that the setting `broker` names; yields nothing if none is named."""
    section = config.cluster
    if section.broker is None:
        return
    try:
        server = Broker(section.broker, "", timeout_s=ANSWER_S)
        try:
            server.check()
            yield _check_broker_settings(server)
        finally:
            server.close()
    except ServerAway as away:
        if config.services.with_cluster and startable(section.broker) is not None:
            yield Finding("broker", CheckState.OK, f"{away}; `weft up --cluster` starts one there")
        else:
            yield Finding("broker", CheckState.PROBLEM, str(away), "start it, or correct `broker`")
    except WeftError as wrong:
        yield Finding("broker", CheckState.PROBLEM, str(wrong), "correct `broker`, or the server's settings")
    yield from _check_key(config)


def _check_broker_settings(server: Broker) -> Finding:
    """Advice about the settings of a broker that has passed its check: persistence, TLS."""
    with server.asking():
        info: Any = server.client.info("all")
    advice = []
    if not int(info.get("aof_enabled", 0)):
        advice.append("set `appendonly yes` there: without it all tasks are lost when it dies")
    if not is_private(server.url):
        advice.append("use rediss://: without TLS no request with a password or cookie goes to workers")
    version = info.get("valkey_version") or info["redis_version"]
    state = CheckState.WARNING if advice else CheckState.OK
    return Finding("broker", state, f"{server.where}, version {version}", "; ".join(advice))


def _check_key(config: ServiceConfig) -> Iterator[Finding]:
    section = config.cluster
    if section.key is None and section.key_file is None:
        if not config.services.with_cluster:
            yield Finding(
                "cluster key", CheckState.PROBLEM, "there is a broker and no key",
                "name its file in `cluster_key_file`; `weft cluster init` makes one",
            )  # fmt: skip
        return
    try:
        key = configured_key(section)
    except WeftError as wrong:
        yield Finding("cluster key", CheckState.PROBLEM, str(wrong), "correct `cluster_key_file`")
    else:
        yield Finding("cluster key", CheckState.OK, f"cluster {key.cluster_id}")
