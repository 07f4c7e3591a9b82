"""What is shown of a Redis address, and what its troubles are called: nothing is connected to here."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import redis
from redis import exceptions as wrong

from weft.errors import BadInput, ServerAway, ServerFull
from weft.frontier.redis import connection, metrics
from weft.frontier.redis.connection import (
    RedisSettings,
    ServerFacts,
    ServerTrouble,
    Unreachable,
    _check_facts,
    address_without_password,
    classify,
    connect,
    convert_errors,
    error_message,
    refuse_shared,
    server_addresses,
    shorten_timeouts,
)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h", "redis://h:6379/0"),
        ("redis://:secret@h:7000/3", "redis://h:7000/3"),
        ("rediss://user:secret@[::1]:7000", "rediss://[::1]:7000/0"),
        ("redis://h?db=4", "redis://h:6379/4"),
        ("redis:///2", "redis://localhost:6379/2"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("unix:///run/redis.sock?db=7&password=secret", "unix:///run/redis.sock?db=7"),
        ("redis://h:notaport", "a redis_url that cannot be read"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert address_without_password(url) == shown


def test_the_database_of_the_settings_counts_where_the_url_names_none() -> None:
    urls = ("redis://h", "redis://h/1", "unix:///s", "unix:///s?db=2")
    assert [address_without_password(url, 5) for url in urls] == [
        "redis://h:6379/5", "redis://h:6379/1", "unix:///s?db=5", "unix:///s?db=2",
    ]  # fmt: skip


def test_settings_reach_the_connection_and_the_urls_own_come_first() -> None:
    settings = RedisSettings(db=3, password="p", socket_timeout_s=7.0, connect_timeout_s=2.0, max_connections=9)
    pool: Any = connect("redis://h:7000", settings).connection_pool
    chosen = pool.connection_kwargs
    assert (chosen["db"], chosen["password"], chosen["socket_timeout"], chosen["socket_connect_timeout"]) == (
        3, "p", 7.0, 2.0,
    )  # fmt: skip
    assert (chosen["socket_keepalive"], pool.max_connections, pool.timeout) == (True, 9, 7.0)
    own = connect("redis://:q@h:7000/5", settings).connection_pool.connection_kwargs
    assert (own["db"], own["password"]) == (5, "q")
    assert "socket_keepalive" not in connect("unix:///run/x.sock", settings).connection_pool.connection_kwargs
    assert connect("redis://h").connection_pool.connection_kwargs["db"] == 0


@pytest.mark.parametrize("url", ["http://h", "redis:h", "h:6379", "", "rediss"])
def test_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="must begin with redis://"):
        connect(url)


def test_a_password_is_not_shown_in_a_refusal() -> None:
    with pytest.raises(BadInput) as refused:
        connect("redis://:topsecret@h:6379/notanumber?socket_timeout=topsecret")
    assert "topsecret" not in str(refused.value)


def test_a_password_that_is_a_word_of_the_refusal_is_not_told_either() -> None:
    with pytest.raises(BadInput, match=r"redis://h:6379/0: cannot be read$"):
        connect("redis://:nonsense@h:6379?nonsense=1")
    with pytest.raises(BadInput, match="unexpected keyword argument 'nonsense'"):
        connect("redis://:pass1@h:6379?nonsense=1")


def test_whoever_can_do_without_waits_no_longer_than_it_says() -> None:
    client = connect("redis://h", RedisSettings(socket_timeout_s=30.0, connect_timeout_s=1.0))
    shorten_timeouts(client, 2.0)
    chosen = client.connection_pool.connection_kwargs
    assert (chosen["socket_timeout"], chosen["socket_connect_timeout"]) == (2.0, 1.0)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (caused(wrong.ConnectionError("x"), socket.gaierror(1)), "no such host"),
        (caused(wrong.ConnectionError("x"), ConnectionRefusedError()), "refuses the connection: no server"),
        (caused(wrong.ConnectionError("x"), FileNotFoundError()), "there is no such socket"),
        (caused(wrong.ConnectionError("x"), PermissionError()), "this user may not open the socket"),
        (wrong.TimeoutError("x"), "does not answer in time"),
        (caused(wrong.ConnectionError("x"), TimeoutError()), "does not answer in time"),
        (wrong.OutOfMemoryError("used memory"), "is full"),
        (wrong.ResponseError("OOM command not allowed"), "is full"),
        (wrong.ResponseError("MISCONF Redis is configured to save"), "cannot write to its disk"),
        (wrong.BusyLoadingError("x"), "is loading its data"),
        (wrong.ReadOnlyError("x"), "is a read-only replica"),
        (wrong.AuthenticationError("x"), "refuses the password"),
        (wrong.ResponseError("WRONGPASS invalid"), "refuses the password"),
        (wrong.NoPermissionError("NOPERM this user has no permissions"), "forbids this user a command or a key"),
        (wrong.ResponseError("first line\nsecond"), "ResponseError: first line"),
        (wrong.ResponseError(""), "ResponseError: no message"),
    ],
)
def test_a_trouble_is_reported_in_a_few_words(error: Exception, said: str) -> None:
    assert error_message(error).startswith(said)
    assert "\n" not in error_message(error)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (wrong.OutOfMemoryError("x"), ServerTrouble.FULL),
        (wrong.AuthorizationError("x"), ServerTrouble.FATAL),
        (wrong.ConnectionError("NOAUTH Authentication required."), ServerTrouble.AWAY),
        (wrong.NoPermissionError("NOPERM this user has no permissions"), ServerTrouble.AWAY),
        (wrong.ClusterDownError("x"), ServerTrouble.AWAY),
        (wrong.ResponseError("max number of clients reached"), ServerTrouble.AWAY),
        (OSError("x"), ServerTrouble.AWAY),
        (ValueError("x"), ServerTrouble.FATAL),
    ],
)
def test_more_troubles_are_sorted_by_what_to_do(error: Exception, trouble: ServerTrouble) -> None:
    assert classify(error) is trouble


def test_what_may_pass_is_distinguished_from_what_will_not() -> None:
    for error, expected in (
        (redis.ConnectionError("gone"), ServerAway),
        (redis.ResponseError("OOM x"), ServerFull),
        (redis.ResponseError("WRONGTYPE x"), redis.ResponseError),
    ):
        with pytest.raises(expected), convert_errors("here"):
            raise error


def facts(run_id: str, db: int = 0, *, aof: bool = True) -> ServerFacts:
    return ServerFacts(f"redis://{run_id}/{db}", db, run_id, "8.0", aof, 0, 0)


def test_pods_may_share_a_server_and_not_a_database() -> None:
    refuse_shared({0: facts("a"), 1: facts("a", 1), 2: facts("b")})
    with pytest.raises(BadInput, match="pods 1 and 3 are one database"):
        refuse_shared({0: facts("a"), 1: facts("b"), 3: facts("b")})


def test_a_server_that_forgets_is_warned_of() -> None:
    assert facts("a").warnings == []
    (warning,) = facts("a", aof=False).warnings
    assert "appendonly yes" in warning


def judged(**more: Any) -> ServerFacts:
    """What is made of a server's INFO."""
    info = {
        "redis_version": "7.4.1", "run_id": "abc", "maxmemory": 0, "used_memory": 500, "aof_enabled": 1,
        "role": "master",
    } | more  # fmt: skip
    return _check_facts(info, "here", connect("redis://h/3"))


def test_a_plain_server_with_room_can_be_used() -> None:
    assert judged() == ServerFacts("here", 3, "abc", "7.4.1", True, 0, 500)
    assert judged(aof_enabled=0, valkey_version="9.0", redis_mode="standalone") == ServerFacts(
        "here", 3, "abc", "9.0", False, 0, 500
    )
    assert judged(maxmemory=501, maxmemory_policy="noeviction").maxmemory_bytes == 501


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"redis_mode": "cluster"}, "runs in cluster mode"),
        ({"redis_mode": "sentinel"}, "runs in sentinel mode"),
        ({"role": "slave", "master_host": "m"}, "is a replica of m"),
        ({"maxmemory_policy": "allkeys-lru"}, "would evict queued URLs"),
        ({"maxmemory": 500}, "is full"),
        ({"maxmemory": 499}, "is full"),
    ],
)
def test_a_server_that_cannot_hold_a_frontier_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises((BadInput, ServerFull), match=said):
        judged(**more)


def test_connections_to_servers_are_told_by_where_they_lead() -> None:
    assert server_addresses([]) == frozenset()
    assert server_addresses(["unix:///run/one.sock?db=3", "redis://127.0.0.1/0", "redis://:word@127.0.0.1:7001/2"]) == {
        "/run/one.sock", ("127.0.0.1", 6379), ("127.0.0.1", 7001),
    }  # fmt: skip
    assert ("127.0.0.1", 6400) in server_addresses(["redis://:6400"]), "no host: this one"
    assert server_addresses(["redis://no.such.name.invalid:1", "redis://127.0.0.1:99999", "unix:///x"]) == {"/x"}


def test_a_managed_server_that_tells_little_of_itself_can_be_used() -> None:
    bare = {"redis_version": "7.4.1", "run_id": "abc"}
    assert _check_facts(bare, "here", connect("redis://h")) == ServerFacts("here", 0, "abc", "7.4.1", False, 0, 0)


def test_a_server_without_a_version_is_no_redis() -> None:
    class Odd:
        def info(self, _: str) -> dict[str, str]:
            return {"version": "1"}

    with pytest.raises(BadInput, match=r"here: .*its INFO has no redis_version"):
        connection._read_info(Odd(), "here")  # type: ignore[arg-type]


def test_a_message_of_any_length_is_told_in_one_line() -> None:
    assert error_message(wrong.ResponseError("x" * 500)) == "ResponseError: " + "x" * 200


def test_a_figure_that_a_server_does_not_tell_is_nought() -> None:
    assert [metrics._metric_value(info, "x") for info in ({}, {"x": "n/a"}, {"x": None}, {"x": "2.5"}, {"x": 3})] == [
        0.0, 0.0, 0.0, 2.5, 3.0,
    ]  # fmt: skip


def test_a_crawl_without_servers_has_no_figures_of_them() -> None:
    collector = metrics.RedisMetrics({})
    assert [sample for family in collector.collect() for sample in family.samples] == []
    collector.close()


def test_whoever_scrapes_waits_a_moment_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = metrics.RedisMetrics({0: "redis://h"}, RedisSettings(db=3, password="p", socket_timeout_s=99.0))
    (client,) = collector._clients.values()
    pool: Any = client.connection_pool
    chosen = pool.connection_kwargs
    assert (chosen["db"], chosen["password"], chosen["socket_timeout"], chosen["socket_connect_timeout"]) == (
        3, "p", metrics.ANSWER_TIMEOUT_S, metrics.ANSWER_TIMEOUT_S,
    )  # fmt: skip
    assert pool.max_connections == 2
    closed: list[str] = []
    monkeypatch.setattr(client, "close", lambda: closed.append("closed"))
    collector.close()
    assert closed == ["closed"]


def test_a_server_that_may_come_back_is_told_apart_from_one_that_cannot_be_used() -> None:
    away = connection._connection_error(
        wrong.ConnectionError("Error 111 connecting to a:1. Connection refused."), "a:1"
    )
    unusable = connection._connection_error(wrong.ResponseError("ERR unknown command 'INFO'"), "a:1")
    assert (type(away), type(unusable)) == (Unreachable, BadInput)


def test_a_server_that_was_asked_for_nothing_yet_has_missed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = metrics.RedisMetrics({})
    monkeypatch.setattr(
        collector, "_ask_servers", lambda: {"3": {"keyspace_hits": 0}, "4": {"keyspace_misses": 2}, "5": {}}
    )
    told = {family.name: {one.labels["pod"]: one.value for one in family.samples} for family in collector.collect()}
    assert told["weft_redis_hit_ratio"] == {"3": 1.0, "4": 0.0}
    assert told["weft_redis_up"] == {"3": 1, "4": 1, "5": 0}
