"""Every way in which a pod's Redis can be the wrong one, told in one clear message; on real servers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
from pace import patience
from ports import free_port
from server_kills import kill_written

from weft import __version__
from weft.errors import BadInput, ServerAway, ServerFull
from weft.frontier.redis import pod_info
from weft.frontier.redis.connection import (
    LOADING_POLL_S,
    RedisSettings,
    Restarted,
    ServerFacts,
    ServerTrouble,
    address_without_password,
    check_run_id,
    classify,
    connect,
    convert_errors,
    inspect_server,
    refuse_shared,
)
from weft.frontier.redis.pod_info import PodIdentity, claim_pod, empty_database, read_claim_id
from weft.supervise.redis_server import RedisServer, ping
from weft.testing.tls import CA_FILE, CERTS

KINDS = ("redis", "valkey")
StartServer = Callable[..., RedisServer]
SECRET = "s3cret-word"
QUICK = RedisSettings(socket_timeout_s=0.5, connect_timeout_s=0.5)
IDENTITY = PodIdentity("crawl0000001", 0, 2)


def looked_at(url: str, settings: RedisSettings = QUICK) -> ServerFacts:
    return inspect_server(url, connect(url, settings))


def refusal(url: str, settings: RedisSettings = QUICK) -> str:
    with pytest.raises(BadInput) as caught:
        looked_at(url, settings)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def port() -> int:
    return free_port()


@contextlib.contextmanager
def answering(reply: bytes | None) -> Iterator[int]:
    """A TCP server that is no Redis: it says one thing, or nothing at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                kept.append(connection)
                if reply is not None:
                    connection.recv(100)
                    connection.sendall(reply)
                    connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in kept:
            connection.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_can_be_used_tells_its_facts(kind: str, start_server: StartServer) -> None:
    server = start_server(kind)
    facts = looked_at(server.url)
    assert (facts.db, facts.aof, facts.warnings) == (0, True, [])
    assert facts.address == f"unix://{server.socket}?db=0"
    assert len(facts.run_id) == 40
    assert int(facts.version.split(".")[0]) >= 7


@pytest.mark.parametrize("kind", KINDS)
def test_tcp_with_password_and_a_database_of_its_own(kind: str, start_server: StartServer, port: int) -> None:
    start_server(kind, settings={"port": str(port), "requirepass": SECRET})
    there = f"redis://127.0.0.1:{port}"
    facts = looked_at(there, RedisSettings(db=3, password=SECRET))
    assert (facts.db, facts.address) == (3, f"{there}/3")
    facts = looked_at(f"redis://:{SECRET}@127.0.0.1:{port}/5")
    assert (facts.db, facts.address) == (5, f"{there}/5")
    assert "needs a password; set redis_password" in refusal(there)
    assert "refuses the password" in refusal(f"redis://:{SECRET}x@127.0.0.1:{port}")
    assert "has no database of that number" in refusal(f"redis://:{SECRET}@127.0.0.1:{port}/99")
    client = connect(f"redis://:{SECRET}@127.0.0.1:{port}/5")
    claim_pod(client, address_without_password(f"redis://:{SECRET}@127.0.0.1:{port}/5"), IDENTITY)
    assert SECRET not in str(client.hgetall("pod:info"))


def test_tls_is_spoken_to_rediss(start_server: StartServer, port: int) -> None:
    leaf = str(CERTS / "leaf.pem")
    start_server(
        settings={"tls-port": str(port), "tls-cert-file": leaf, "tls-key-file": leaf, "tls-ca-cert-file": str(CA_FILE),
                  "tls-auth-clients": "no"}
    )  # fmt: skip
    assert looked_at(f"rediss://127.0.0.1:{port}?ssl_ca_certs={CA_FILE}").address == f"rediss://127.0.0.1:{port}/0"
    assert "TLS failed" in refusal(f"rediss://127.0.0.1:{port}")
    assert "requires TLS (rediss://)" in refusal(f"redis://127.0.0.1:{port}")


def test_nobody_there(port: int, tmp_path: Path) -> None:
    assert "127.0.0.1" in refusal(f"redis://127.0.0.1:{port}")
    assert "refuses the connection" in refusal(f"redis://me:{SECRET}@127.0.0.1:{port}")
    assert "no such host" in refusal(f"redis://:{SECRET}@nowhere.invalid:6379")
    assert "there is no such socket" in refusal(f"unix://{tmp_path}/none.sock")


def test_what_is_no_redis() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert "is not Redis" in refusal(f"redis://127.0.0.1:{port}")
    with answering(b"") as port:
        assert "it is not Redis, or it requires TLS" in refusal(f"redis://127.0.0.1:{port}")
    with answering(b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n") as port:
        assert "is not Redis" in refusal(f"redis://127.0.0.1:{port}")
    with answering(None) as port:
        assert "does not answer in time" in refusal(f"redis://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:6379", "must begin with redis://"),
        (f"http://me:{SECRET}@localhost", "must begin with redis://"),
        (f"redis://me:{SECRET}@localhost:sixthousand/0", "redis_url"),
        (f"redis://me:{SECRET}@localhost/0?no_such_option=1", "no_such_option"),
        (f"redis://me:{SECRET}@[::1/0", "redis_url"),
    ],
)
def test_a_url_that_leads_nowhere(url: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        connect(url)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_replica_is_refused(start_server: StartServer, port: int) -> None:
    start_server(settings={"port": str(port)})
    replica = start_server(settings={"replicaof": f"127.0.0.1 {port}"})
    assert "is a replica of 127.0.0.1; give its master" in refusal(replica.url)
    with pytest.raises(ServerAway, match="read-only replica"), convert_errors("pod 1"):
        connect(replica.url).set("a", 1)


def test_cluster_mode_is_refused(start_server: StartServer, port: int) -> None:
    server = start_server(settings={"cluster-enabled": "yes", "port": str(port), "cluster-port": str(free_port())})
    assert "runs in cluster mode; each pod needs a plain Redis" in refusal(server.url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_server_is_reported_at_the_start_and_while_it_runs(kind: str, start_server: StartServer) -> None:
    server = start_server(kind, settings={"maxmemory": "100mb"})
    looked_at(server.url)
    client = connect(server.url)
    client.config_set("maxmemory", "1000")
    with pytest.raises(ServerFull, match="is full"), convert_errors("pod 0"):
        client.set("k", "x")
    with pytest.raises(ServerFull, match="is full"), convert_errors("pod 0"):
        client.eval("return redis.call('set', KEYS[1], 'x')", 1, "k")
    with pytest.raises(ServerFull, match="raise its maxmemory"):
        looked_at(server.url)


def test_an_evicting_server_is_refused(start_server: StartServer) -> None:
    server = start_server(settings={"maxmemory-policy": "allkeys-lru"})
    assert "would evict queued URLs (maxmemory-policy allkeys-lru)" in refusal(server.url)


def test_a_server_without_append_only_file_is_warned_of(start_server: StartServer) -> None:
    server = start_server(settings={"appendonly": "no"})
    (warning,) = looked_at(server.url).warnings
    assert "append-only file is off" in warning


def test_a_user_without_rights_is_reported(start_server: StartServer) -> None:
    server = start_server()
    connect(server.url).acl_setuser("poor", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], commands=["+ping"])
    assert "may not use INFO" in refusal(f"unix://poor:{SECRET}@{server.socket}")


def test_a_loading_server_is_waited_for(start_server: StartServer) -> None:
    server = start_server()
    connect(server.url).eval("for i = 1, 10000 do redis.call('set', 'k' .. i, string.rep('x', 50)) end", 0)
    kill_written(server)
    slowly = {"key-load-delay": "50", "loading-process-events-interval-bytes": "1024"}
    slow = start_server(folder=server.folder, settings=slowly, wait=False)
    until = time.monotonic() + patience(20)
    while not ping(slow.socket).startswith(b"-LOADING"):
        slow.check()
        assert time.monotonic() < until
    told: list[str] = []
    client = connect(slow.url)
    with pytest.raises(ServerAway, match="loading its data"), convert_errors("pod 0"):
        client.get("k1")
    assert inspect_server(slow.url, client, tell=told.append).aof
    assert told == [f"unix://{slow.socket}?db=0: is loading its data; waiting for it"]
    assert client.dbsize() == 10000
    with pytest.raises(ServerAway, match="still loading"):
        inspect_server(slow.url, _Loading(client), wait_s=-1)  # type: ignore[arg-type]
    slept: list[float] = []
    looks = map(float, count())
    with pytest.raises(ServerAway, match="after 3 s"):
        inspect_server(slow.url, _Loading(client), clock=lambda: next(looks), sleep=slept.append, wait_s=3)  # type: ignore[arg-type]
    assert slept == [LOADING_POLL_S] * 3, "it is not asked again and again without a pause"


class _Loading:
    """A client of a server that is loading for ever."""

    def __init__(self, client: redis.Redis) -> None:
        self.connection_pool = client.connection_pool

    def info(self, _: str) -> dict[str, object]:
        return {"redis_version": "7.0", "loading": 1}


def test_one_database_for_two_pods_is_refused_whatever_its_names(start_server: StartServer, port: int) -> None:
    server = start_server(settings={"port": str(port)})
    other = start_server()
    three = [looked_at(server.url), looked_at(other.url), looked_at(f"redis://localhost:{port}/0")]
    with pytest.raises(BadInput, match="pods 0 and 2 are one database"):
        refuse_shared(dict(enumerate(three)))
    refuse_shared({0: looked_at(server.url), 1: looked_at(other.url), 2: looked_at(f"redis://localhost:{port}/1")})


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_is_taken_once_and_known_again(kind: str, start_server: StartServer) -> None:
    server = start_server(kind)
    client = connect(server.url)
    where = address_without_password(server.url)
    assert claim_pod(client, where, IDENTITY) is True
    assert claim_pod(client, where, IDENTITY) is False
    info: Any = client.hgetall("pod:info")
    assert datetime.fromisoformat(info.pop(b"initialized_at").decode()) <= datetime.now(UTC)
    assert info == {
        b"pod_id": b"0", b"pods": b"2", b"crawl": b"crawl0000001", b"redis_url": where.encode(),
        b"weft": __version__.encode(),
    }  # fmt: skip
    assert client.get("schema_version") == str(pod_info.SCHEMA).encode()
    for identity, said in (
        (PodIdentity("crawl0000002", 0, 2), "holds another crawl (crawl0000001, made 2"),
        (PodIdentity("crawl0000001", 0, 3), "the crawl has 2 pods, 3 were given"),
        (PodIdentity("crawl0000001", 1, 2), "is pod 0 of this crawl, but is listed as pod 1"),
    ):
        with pytest.raises(BadInput) as caught:
            claim_pod(client, where, identity)
        assert said in str(caught.value)
    before = client.dbsize()
    empty_database(client, where, "another")
    assert client.dbsize() == before
    empty_database(client, where, "crawl0000001")
    assert client.dbsize() == 0


def test_a_foreign_database_is_refused_and_left_as_it_is(start_server: StartServer) -> None:
    server = start_server()
    client = connect(server.url)
    client.set("shop:basket", 1)
    with pytest.raises(BadInput, match="holds 1 keys that are not a crawl's"):
        claim_pod(client, "here", IDENTITY)
    assert client.keys() == [b"shop:basket"]
    client.flushdb()
    client.set("schema_version", 99)
    with pytest.raises(BadInput, match="its data has layout 99, this Weft reads 2"):
        claim_pod(client, "here", IDENTITY)
    assert client.get("schema_version") == b"99"
    for name in ("schema_version", "pod:info"):
        client.flushdb()
        client.lpush(name, 1)
        with pytest.raises(BadInput, match="is another program's; choose an empty database"):
            claim_pod(client, "here", IDENTITY)
        assert client.keys() == [name.encode()]


def test_what_a_pods_own_processes_leave_in_an_emptied_database_is_not_foreign(start_server: StartServer) -> None:
    client: Any = connect(start_server().url)
    client.hset("n", mapping={"ops": 2, "last": 5})
    client.set("owner", "node@host:/data", px=30_000)
    client.hset("meta", "end", "done")
    client.hset("c:1", "max", 10)
    with pytest.raises(BadInput, match="holds 4 keys that are not a crawl's"):
        claim_pod(client, "here", IDENTITY)
    for name, value in (("shop:basket", "1"), ("crawls", "1"), ("q:1:0:site", "1"), ("c:x", "1"), ("crew", "1")):
        client.set(name, value)
        with pytest.raises(BadInput, match="was emptied, and holds 5 keys that are not this crawl's"):
            claim_pod(client, "here", IDENTITY, was_ours=True)
        client.delete(name)
    assert client.dbsize() == 4
    assert claim_pod(client, "here", IDENTITY, was_ours=True)
    assert sorted(client.keys()) == [b"n", b"pod:info", b"schema_version"]
    assert client.hkeys("n") == [b"id"], "nothing that was left is believed"
    claim = client.hget("n", "id")
    assert not claim_pod(client, "here", IDENTITY, was_ours=True)
    assert read_claim_id(client, "here", IDENTITY) == claim.decode()


def test_processes_that_take_one_database_at_once_agree(start_server: StartServer) -> None:
    server = start_server()
    made: list[bool] = []
    threads = [
        threading.Thread(target=lambda: made.append(claim_pod(connect(server.url), "here", IDENTITY))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]


def test_a_server_that_goes_away_is_away_and_comes_back(start_server: StartServer) -> None:
    server = start_server()
    client = connect(server.url, QUICK)
    client.set("a", 1)
    kill_written(server)
    for _ in range(2):
        with pytest.raises(ServerAway), convert_errors("pod 0"):
            client.get("a")
    server.start()
    assert client.get("a") == b"1"
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ServerAway, match="does not answer in time"), convert_errors("pod 0"):
            client.get("a")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert client.get("a") == b"1"


def test_a_client_that_was_connected_already_asks_which_run_it_reaches(start_server: StartServer) -> None:
    server = start_server()
    client = connect(server.url)
    run = str(client.info("server")["run_id"])
    check_run_id(client, lambda: run)
    client.set("a", 1)
    kill_written(server)
    server.start()
    with pytest.raises(Restarted):
        client.set("a", 2)
    assert connect(server.url).get("a") == b"1", "nothing was sent"


def test_a_command_is_never_sent_twice(start_server: StartServer) -> None:
    """A busy server answers late: the client gives up, and the one that was sent is the only one."""
    server = start_server()
    client = connect(server.url, QUICK)
    client.ping()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(ServerAway), convert_errors("pod 0"):
        client.incr("count")
    os.kill(server.pid, signal.SIGCONT)
    other = connect(server.url)
    until = time.monotonic() + patience(10)
    while other.get("count") is None and time.monotonic() < until:
        time.sleep(0.01)
    assert other.get("count") == b"1"


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (redis.ConnectionError("refused"), ServerTrouble.AWAY),
        (redis.TimeoutError("late"), ServerTrouble.AWAY),
        (redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"), ServerTrouble.AWAY),
        (redis.ReadOnlyError("You can't write"), ServerTrouble.AWAY),
        (redis.ResponseError("BUSY Redis is busy running a script"), ServerTrouble.AWAY),
        (redis.ResponseError("OOM command not allowed"), ServerTrouble.FULL),
        (redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), ServerTrouble.FULL),
        (redis.AuthenticationError("WRONGPASS"), ServerTrouble.AWAY),
        (redis.ResponseError("ERR Error running script"), ServerTrouble.FATAL),
        (redis.ResponseError("WRONGTYPE Operation against a key"), ServerTrouble.FATAL),
        (redis.InvalidResponse("Protocol Error"), ServerTrouble.FATAL),
    ],
)
def test_troubles_are_sorted_by_what_to_do(error: Exception, trouble: ServerTrouble) -> None:
    assert classify(error) is trouble


def test_a_command_whose_answer_does_not_come_is_not_sent_again() -> None:
    """The server may have done it: whoever sent it decides."""
    asked: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    while (command := connection.recv(4096)) and b"INCR" not in command:
                        connection.sendall(b"+OK\r\n" * command.count(b"*"))
                    asked.append(command)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        client = connect(f"redis://127.0.0.1:{listener.getsockname()[1]}", QUICK)
        with pytest.raises(redis.ConnectionError):
            client.incr("x")
        assert client.connection_pool.connection_kwargs["retry"].get_retries() == 0
        client.close()
        listener.shutdown(socket.SHUT_RDWR)
    assert len(asked) == 1
