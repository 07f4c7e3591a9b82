"""The system's Redis: one that runs already is used and never stopped; what is wrong with it is told."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from ports import free_port

from weft.config import ServicesSection
from weft.errors import BadInput, Missing, WeftError
from weft.supervise.external import External
from weft.supervise.redis_server import RedisServer, ping
from weft.system.redis import POLICY, redis_of
from weft.system.supervisor import Supervisor


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Redis servers that are not Weft's to stop."""
    servers: list[RedisServer] = []

    def start(password: str | None = None, **settings: str) -> str:
        port = free_port()
        folder = tmp_path / f"other{len(servers)}"
        server = RedisServer(folder, settings={"port": str(port), **settings}, password=password)
        server.start()
        servers.append(server)
        return f"redis://127.0.0.1:{port}"

    yield start
    for server in servers:
        assert server.pid is not None and ping(server.socket), "it was stopped"
        server.stop()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Something that listens, and answers everything with this."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(4096):
                if not answer:
                    return
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def found_for(tmp_path: Path, **settings: Any) -> Any:
    return redis_of(ServicesSection(**settings), tmp_path / "redis", tmp_path / "logs" / "redis_0.log", {})


def until_healthy(service: External) -> None:
    limit = time.monotonic() + patience(10)
    while not service.healthy:
        assert time.monotonic() < limit, service.report
        service.check()
        time.sleep(0.01)


def test_one_that_runs_is_used_and_never_stopped(tmp_path: Path, other: Callable[..., str]) -> None:
    url = other(password="a secret")
    before = threading.active_count()
    with Supervisor(data_dir=str(tmp_path / "data"), redis_url=url, redis_password="a secret") as supervisor:
        assert supervisor.start("redis") is True
        (row, *_) = supervisor.status().services
        assert (row.state, row.healthy, row.pid) == ("external", True, None)
        assert "secret" not in repr(supervisor.status())
        with pytest.raises(BadInput, match="Weft has not started it"):
            supervisor.restart("redis")
        assert supervisor.restart_if_dead("redis") is True
        supervisor.stop_all()
    limit = time.monotonic() + patience(10)
    while threading.active_count() > before:
        assert time.monotonic() < limit, threading.enumerate()
        time.sleep(0.01)


def test_one_of_our_own_is_started_where_nothing_listens(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://:a%20secret@127.0.0.1:{port}/0"
    with Supervisor(data_dir=str(tmp_path), services=["redis"], redis_url=url) as supervisor:
        supervisor.start_all()
        first = supervisor.status().services[0].pid
        assert first is not None and supervisor.urls["redis"] == f"redis://127.0.0.1:{port}/0"
        service, _, close = found_for(tmp_path / "second", redis_url=url)  # for anybody else it is there already
        assert isinstance(service, External)
        until_healthy(service)
        service.stop()
        close()
        assert supervisor.is_alive("redis")
        supervisor._graph.named("redis")[0].kill()
        assert supervisor.restart_if_dead("redis") is True
        assert supervisor.is_alive("redis") and supervisor.status().services[0].pid != first
        assert "SIGKILL" in (supervisor.status().services[0].last_error or "")
        first = supervisor.status().services[0].pid
        assert supervisor.start_redis() is True and supervisor.restart_if_dead("redis") is True  # it was well
        assert supervisor.status().services[0].pid == first
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0


def test_what_is_wrong_with_a_redis_is_told(tmp_path: Path, other: Callable[..., str]) -> None:
    with_password = other(password="right")
    master = other()
    replica = other(replicaof=f"127.0.0.1 {master.rpartition(':')[2]}")
    for url, password, said in (
        (with_password, None, "needs a password; set redis_password"),
        (with_password, "wrong", "refuses the password"),
        (replica, None, "is a replica of 127.0.0.1; give its master"),
        ("rediss://127.0.0.1:1", None, "no server is running there"),
        ("unix:///nowhere/redis.sock", None, "there is no such socket"),
    ):
        with pytest.raises(WeftError, match=said):
            found_for(tmp_path, redis_url=url, redis_password=password)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Redis"),
        (b"", "closes the connection: it is not Redis"),
        (b"$5\r\nhello\r\n", "is not Redis"),
    ],
)
def test_a_port_that_something_else_has_is_told(tmp_path: Path, answer: bytes, said: str) -> None:
    with answering(answer) as url, pytest.raises(BadInput, match=said):
        found_for(tmp_path, redis_url=url)


def test_one_that_is_loading_is_waited_for(tmp_path: Path) -> None:
    with answering(b"-LOADING Redis is loading the dataset in memory\r\n") as url:
        service, _, close = found_for(tmp_path, redis_url=url)
        limit = time.monotonic() + patience(10)
        while "is loading its data" not in service.last_error:
            assert time.monotonic() < limit, service.report
            service.check()
            time.sleep(0.01)
        assert not service.healthy and not service.has_ended
        service.stop()
        close()


def test_a_missing_server_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("weft.supervise.redis_server._bundled", lambda: None)
    with pytest.raises(Missing, match=r"weft\[redis\].*or leave `redis` out of `services`"):
        found_for(tmp_path)


def test_a_server_that_cannot_be_started_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.system.redis.POLICY", replace(POLICY, first_delay_s=0.0, max_delay_s=0.0))
    port = free_port()
    url = f"redis://127.0.0.1:{port}"
    with Supervisor(data_dir=str(tmp_path), services=["redis"], redis_url=url) as supervisor:
        with supervisor._mutex:
            supervisor._make(["redis"])
            other = socket.create_server(("127.0.0.1", port))  # somebody is faster
        with other:
            said = rf"redis exited with code 1, 10 times in a row: .*port {port}.*redis_0\.log"
            with pytest.raises(WeftError, match=said):
                supervisor.start("redis")
            assert supervisor.restart_if_dead("redis") is False
        assert supervisor.status().services[0].state == "failed"
        assert supervisor.restart_if_dead("redis") is True
        assert supervisor.is_alive("redis")
