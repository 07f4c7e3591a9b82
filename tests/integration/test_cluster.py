"""Real brokers and real workers: who is believed, who is refused, and what a broker must be."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hands import HandProcess, wait_until
from pace import patience
from shifted_clock import ShiftedClock

from weft.cluster.application import queue_of
from weft.cluster.broker import Broker
from weft.cluster.dispatch import Cluster
from weft.cluster.key import ClusterKey, make_key, read_key
from weft.cluster.signing import SCHEMA
from weft.cluster.status import cluster_status
from weft.errors import BadInput, Busy, ServerAway, ServerFull
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]
StartHand = Callable[..., HandProcess]
KEY = ClusterKey(bytes(32))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    make_key(tmp_path / "cluster.key")
    return tmp_path / "cluster.key"


@pytest.fixture
def start_hand(tmp_path: Path) -> Iterator[StartHand]:
    started: list[HandProcess] = []

    def start(url: str, key_file: Path, *flags: str) -> HandProcess:
        started.append(HandProcess(tmp_path / "hands", url, key_file, "--concurrency", "1", *flags))
        return started[-1]

    yield start
    for hand in started:
        hand.stop()


def test_a_hand_answers_what_is_signed_and_nothing_else(
    start_server: StartServer,
    start_hand: StartHand,
    key_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clock is a minute off; one message is of 100 MB; one is there twice."""
    server = start_server("valkey")
    key = read_key(key_file)
    cluster = Cluster(server.url, key)
    clock = ShiftedClock(tmp_path / "clock", monkeypatch)
    clock.forward(61.0)
    hand = start_hand(server.url, key_file)
    monkeypatch.undo()
    hand.wait_ready()
    assert cluster.heartbeat(30.0) == hand.name

    queue = queue_of(key.cluster_id, "heartbeat")
    client = cluster.broker.client
    client.lpush(queue.name, "no json", "[1]", '{"body": 1}', "{" * 100_000, '{"body": "' + "x" * 100_000_000 + '"}')
    cluster.application.send_task("os.system", args=["true"], queue=queue)
    cluster.application.send_task("weft.heartbeat", args=["unsigned"], queue=queue)
    foreign = Cluster(server.url, KEY)
    text = foreign.signature("heartbeat", {}, 30.0).args[0]
    cluster.application.send_task("weft.heartbeat", args=[text], queue=queue)
    cluster.signature("heartbeat", {}, -1.0).apply_async()
    again = cluster.signature("heartbeat", {"token": "t"}, 30.0)
    assert again.apply_async().get(timeout=patience(30))
    again.apply_async()
    assert cluster.heartbeat(30.0) == hand.name

    def refused() -> dict[str, int]:
        counts: dict[str, int] = cluster_status(cluster)["refused"]
        return counts

    expected = {"broker:malformed": 5, "broker:unknown_task": 1, "heartbeat:signature": 2}
    expected |= {"heartbeat:late": 1, "heartbeat:replayed": 1}
    wait_until(lambda: refused() == expected, "not all of it was counted")

    def reported() -> tuple[object, ...]:  # every few seconds
        (row,) = cluster_status(cluster)["hands"]
        return row["state"], row["schema"], row["refused"], row["done"]

    wait_until(lambda: reported() == ("up", SCHEMA, 10, 3), "it has not reported all of it")
    hand.stop()
    assert cluster_status(cluster)["hands"] == []


def test_a_hand_with_another_key_or_schema_is_refused_on_both_sides(
    start_server: StartServer, start_hand: StartHand, key_file: Path, tmp_path: Path
) -> None:
    server = start_server()
    cluster = Cluster(server.url, KEY)
    cluster.broker.hold("brain", json.dumps({"schema": SCHEMA}), "0")
    (tmp_path / "own.key").write_text(KEY.text)
    (tmp_path / "own.key").chmod(0o600)
    stranger = start_hand(server.url, key_file)
    assert stranger.ended() == 2
    assert "its brain has another cluster key" in stranger.output
    newer = Cluster(server.url, KEY)
    newer.broker.hold("brain", json.dumps({"schema": SCHEMA + 1}), "0")
    older = start_hand(server.url, tmp_path / "own.key")
    assert older.ended() == 2
    assert f"task schema {SCHEMA + 1}, this hand {SCHEMA}" in older.output
    lines = " ".join(one["why"] for one in cluster_status(cluster)["refused_hands"])
    assert "another cluster key" in lines
    assert "task schema" in lines
    assert "Traceback" not in stranger.output + older.output


def test_a_cluster_has_one_brain_and_its_epochs_only_grow(start_server: StartServer) -> None:
    broker = Broker(start_server().url, KEY.cluster_id)
    first = broker.hold("one", '{"host": "a"}', "0")
    with pytest.raises(Busy, match=r"another brain has this cluster's key: \{\"host\": \"a\"\}"):
        broker.hold("two", "{}", "0")
    assert broker.hold("one", "{}", "0", first.epoch).epoch == first.epoch
    second = broker.hold("one", "{}", "0")  # the same brain, started again
    assert second.epoch > first.epoch
    until = broker.now_ms() + 60_000
    assert broker.claim(["a"], until_ms=until, slot="0", epoch=first.epoch).word == "epoch"
    assert broker.claim(["a", "b"], until_ms=until, slot="0", epoch=second.epoch).granted == (True, True)
    assert broker.claim(["b", "c"], until_ms=until, slot="0", epoch=second.epoch).granted == (False, True)
    broker.client.flushall()
    assert broker.claim(["d"], until_ms=until, slot="0", epoch=second.epoch).word == "no_epoch"
    assert broker.hold("one", "{}", "0", second.epoch).epoch > second.epoch
    broker.release("one", "0")
    assert broker.hold("two", "{}", "0").epoch


def test_a_hand_outlives_a_queue_that_is_none_and_a_broker_that_is_read_only(
    start_server: StartServer, start_hand: StartHand, key_file: Path
) -> None:
    server = start_server()
    cluster = Cluster(server.url, read_key(key_file))
    hand = start_hand(server.url, key_file).wait_ready()
    client, queue = cluster.broker.client, queue_of(cluster.key.cluster_id, "heartbeat")
    client.set(queue.name, "no queue")
    wait_until(lambda: not client.exists(queue.name), "the queue is not usable again")
    assert cluster.heartbeat(30.0) == hand.name
    client.replicaof("127.0.0.1", 1)
    wait_until(lambda: "read only" in hand.output, "the hand did not notice")
    client.replicaof("NO", "ONE")
    assert cluster.heartbeat(30.0) == hand.name
    assert hand.popen.poll() is None
    assert "Traceback" not in hand.output


def test_a_hand_outlives_a_password_that_is_changed_and_set_back(
    start_server: StartServer, start_hand: StartHand, key_file: Path
) -> None:
    server = start_server()
    cluster = Cluster(server.url, read_key(key_file))
    hand = start_hand(server.url, key_file).wait_ready()
    client = cluster.broker.client
    client.config_set("requirepass", "another")
    client.client_kill_filter(_type="normal", skipme=True)
    signs = "Authentication required", "wants another password"
    wait_until(lambda: any(sign in hand.output for sign in signs), "it has noticed nothing")
    client.config_set("requirepass", "")
    assert cluster.heartbeat(patience(60)) == hand.name
    assert "Traceback" not in hand.output


def test_what_a_stranger_writes_into_the_clusters_keys_is_not_read(start_server: StartServer) -> None:
    cluster = Cluster(start_server().url, KEY)
    broker, client = cluster.broker, cluster.broker.client
    held = broker.hold("one", "{}", "0")
    for epoch in ("garbage", "1e300", "9" * 40):
        client.set(broker.key("epoch:0"), epoch)
        held, before = broker.hold("one", "[" * 100_000, "0", held.epoch), held
        assert held.epoch > before.epoch
    broker.count_for("a", {"fetch:done": 2})
    for name in ("counts", "counts:a"):
        client.hset(broker.key(name), mapping={"fetch:failed": "x", "fetch:refused:late": "9" * 5000, "fetch:ms": "-"})
    client.zadd(broker.key("hands"), {"a": float("inf"), "b": 1e300, "c": -1e300})
    client.zadd("weft:refused_hands", {"d": float("inf"), "e": 1e300})
    broker.refuse_hand("hand f: why")
    facts = cluster_status(cluster)
    assert (facts["brain"], facts["hands"], facts["counts"], facts["refused"]) == (None, [], {"fetch:done": 2}, {})
    assert [one["why"] for one in facts["refused_hands"]] == ["hand f: why"]
    assert broker.counts("a") == {"fetch:done": 2}
    cluster.close()


def test_bodies_have_room_within_the_limit_and_give_it_back(start_server: StartServer) -> None:
    broker = Broker(start_server().url, KEY.cluster_id)
    assert broker.put_body("a", b"x" * 600, 1000, 0.0)
    assert not broker.put_body("b", b"x" * 600, 1000, 0.0)
    assert broker.take_body("a", 600) == b"x" * 600
    assert broker.take_body("a", 600) is None
    assert broker.put_body("b", b"x" * 1000, 1000, 0.0)


def test_a_server_that_can_be_no_broker_is_refused_with_one_message(start_server: StartServer) -> None:
    evicting = start_server(settings={"maxmemory-policy": "allkeys-lru"})
    with pytest.raises(BadInput, match="would evict tasks"):
        Broker(evicting.url, "x").check()
    shard = start_server(settings={"cluster-enabled": "yes", "port": "0"}, wait=False)
    try:
        shard.start()
    except Exception:
        pytest.skip("this server joins no cluster without a port")
    with pytest.raises(BadInput, match="runs in cluster mode"):
        Broker(shard.url, "x").check()


def test_a_full_server_is_one_that_may_have_room_later(start_server: StartServer) -> None:
    server = start_server()
    broker = Broker(server.url, "x")
    broker.client.config_set("maxmemory", "1")
    with pytest.raises(ServerFull):
        broker.hold("one", "{}", "0")
    assert not broker.put_body("a", b"x", 1000, 0.3)
    broker.client.config_set("maxmemory", "0")
    assert broker.put_body("a", b"x", 1000, 0.3)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (b"", ServerAway, "does not answer in time"),
        (b"-MOVED 1 10.0.0.1:6379\r\n", BadInput, "belongs to a Redis Cluster"),
        (b"-READONLY You can't write against a read only replica.\r\n", ServerAway, "is a read-only replica"),
        (b"-NOAUTH Authentication required.\r\n", BadInput, "wants another password"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", BadInput, "is no Redis or Valkey"),
    ],
)
def test_what_a_broker_answers_is_one_clear_error(answer: bytes, kind: type[Exception], message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_all, args=(listener, answer), daemon=True).start()
        broker = Broker(f"redis://127.0.0.1:{listener.getsockname()[1]}/0", "x", timeout_s=0.5)
        with pytest.raises(kind, match=message):
            broker.hold("one", "{}", "0")
        broker.close()


def _answer_all(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, answer), daemon=True).start()


def _answer(connection: socket.socket, answer: bytes) -> None:
    """Also to the two commands by which the library introduces itself."""
    with connection:
        while data := connection.recv(65536):
            connection.sendall(b"+OK\r\n" * data.count(b"SETINFO") if b"SETINFO" in data else answer)
