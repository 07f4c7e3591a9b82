"""A server of our own keeps to itself what it holds: a password on its door, and files that no one else reads."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from server_kills import kill_written

from weft.supervise import process
from weft.supervise.redis_server import RedisServer, find_program, ping

KINDS = ("redis", "valkey")
# Everything that has a meaning in a configuration file, and what none of its escapes is for.
HARD = "a \"quoted\" \\ pass\tword\r\n'x' #no $comment \x01 é 日本 "


def program(kind: str) -> Path:
    from weft.supervise.redis_server import _bundled

    found = find_program() if kind == "redis" else _bundled()
    if found is None:
        pytest.skip(f"no {kind} server is here: `make test` fetches it")
    return found


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "pod", program=program(request.param), password=HARD)
    umask = os.umask(0o022)
    try:
        made.start()
    finally:
        os.umask(umask)
    yield made
    made.kill()
    made.stop()


def client_of(server: RedisServer, password: str | None) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket), password=password)


def test_it_has_the_password_it_was_given_and_nobody_sees_it(server: RedisServer) -> None:
    assert client_of(server, HARD).set("a", 1)
    for wrong in (None, "other", HARD.strip()):
        with pytest.raises(redis.AuthenticationError):
            client_of(server, wrong).get("a")
    assert server.pid is not None
    assert b"quoted" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert process.state(server.pid) is not None
    assert "quoted" not in (server.folder / "redis.log").read_text()


def test_its_files_are_its_owner_s_alone(server: RedisServer) -> None:
    client_of(server, HARD).set("a", 1)
    client_of(server, HARD).bgrewriteaof()
    found = {path.relative_to(server.folder.parent).as_posix() for path in (server.folder, *server.folder.rglob("*"))}
    assert {"pod", "pod/redis.conf", "pod/redis.log", "pod/redis.lock", "pod/redis.sock", "pod/appendonlydir"} <= found
    assert any(name.endswith(".aof") for name in found)
    for path in (server.folder, *server.folder.rglob("*")):
        with suppress(FileNotFoundError):  # the server's own temporary files come and go
            assert not path.lstat().st_mode & 0o077, path
    assert stat.S_IMODE((server.folder / "redis.conf").stat().st_mode) == 0o600


def test_an_older_configuration_that_all_could_read_is_shut(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "pod", tmp_path / "elsewhere"
    folder.mkdir(mode=0o755)
    (folder / "redis.conf").write_text("old\n")
    (folder / "redis.conf").chmod(0o644)
    server = RedisServer(folder, password="secret")
    server.start()
    server.kill()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "redis.conf")] == [0o700, 0o600]
    (folder / "redis.conf").unlink()
    (folder / "redis.conf").symlink_to(elsewhere)
    server.start()
    server.stop()
    assert not elsewhere.exists(), "written to where a link led"


def test_it_is_not_running_before_its_file_is_loaded(server: RedisServer) -> None:
    """A server that wants a password says so before it says that it is loading."""
    client = client_of(server, HARD)
    client.eval("for i = 1, 10000 do redis.call('set', 'k' .. i, string.rep('x', 50)) end", 0)
    until = time.monotonic() + 20
    while client.info("persistence")["aof_buffer_length"]:
        assert time.monotonic() < until
    server.kill()
    slowly = {"key-load-delay": "50", "loading-process-events-interval-bytes": "1024"}
    slow = RedisServer(server.folder, program=server.program, settings=slowly, password=HARD)
    seen: list[bytes] = []
    try:
        while not slow.check():
            seen.append(ping(slow.socket, password=HARD))
            time.sleep(0.01)
        assert any(answer.startswith(b"-LOADING") for answer in seen)
        assert client.dbsize() == 10000
    finally:
        slow.kill()
        slow.stop()


def test_without_a_password_all_is_as_before(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "pod")
    server.start()
    assert client_of(server, None).set("a", 1)
    kill_written(server)
    server.start()
    assert client_of(server, None).get("a") == b"1"
    server.stop()
