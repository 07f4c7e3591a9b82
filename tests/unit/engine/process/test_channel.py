"""The channel: requests in any pieces, replies when they are due, peers that misbehave, readers that do not read."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pace import patience

from weft.engine.process import channel
from weft.engine.process.channel import ChannelServer, Connection, EngineGone, Peer, socket_path
from weft.errors import BadInput, Busy, DiskFull, Missing, WeftError
from weft.frontier.redis.connection import Unreachable


def framed(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body


class Echo:
    """Answers with what it was asked, or raises it."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, peer: Peer, verb: str, arguments: dict[str, Any]) -> Any:
        self.heard.append(verb)
        if verb == "subscribe":
            peer.subscribed = True
        if verb == "fail":
            raise {"busy": Busy("busy"), "bad": BadInput("bad"), "defect": ValueError("defect")}[arguments["how"]]
        return arguments


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(tmp_path: Path, echo: Echo) -> Iterator[ChannelServer]:
    server = ChannelServer(tmp_path / "s.sock", echo, at_once={"ask", "subscribe"})
    yield server
    server.close()
    assert not (tmp_path / "s.sock").exists()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], socket.socket]]:
    made: list[socket.socket] = []

    def new() -> socket.socket:
        made.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        made[-1].settimeout(patience(2))
        made[-1].connect(os.fspath(tmp_path / "s.sock"))
        return made[-1]

    yield new
    for one in made:
        one.close()


def committed(server: ChannelServer) -> None:
    server.seal_replies()
    server.send_sealed_replies()


def received(peer: socket.socket) -> list[Any]:
    size = struct.unpack(">I", peer.recv(4, socket.MSG_WAITALL))[0]
    found: list[Any] = msgspec.msgpack.decode(peer.recv(size, socket.MSG_WAITALL))
    return found


def test_a_request_may_come_in_any_pieces(
    server: ChannelServer, echo: Echo, connect: Callable[[], socket.socket]
) -> None:
    peer = connect()
    server.turn()
    for byte in framed([7, "do", {"x": 1}]):
        assert not server.turn() and not echo.heard
        peer.sendall(bytes([byte]))
    assert server.turn(), "a reply waits"
    server.reply_to_reads()
    server.send_sealed_replies()
    peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.recv(1)  # not before what it promises is kept
    peer.settimeout(patience(2))
    committed(server)
    assert received(peer) == [7, "ok", {"x": 1}]


def test_questions_are_answered_without_a_commit(server: ChannelServer, connect: Callable[[], socket.socket]) -> None:
    peer = connect()
    server.turn()
    peer.sendall(framed([1, "ask", {}]))
    assert not server.turn(), "nothing must be committed for it"
    server.reply_to_reads()
    assert received(peer) == [1, "ok", {}]


def test_errors_keep_their_kind_and_a_defect_ends_nothing(
    server: ChannelServer, connect: Callable[[], socket.socket]
) -> None:
    peer = connect()
    server.turn()
    for how, kind in {"busy": "Busy", "bad": "BadInput", "defect": "WeftError"}.items():
        peer.sendall(framed([1, "fail", {"how": how}]))
        server.turn()
        committed(server)
        reply = received(peer)
        assert reply[:3] == [1, "error", kind] and how in reply[3]


def test_an_error_goes_out_under_a_name_that_the_other_side_knows() -> None:
    for error, kind in (
        (Unreachable("x"), "BadInput"),
        (Missing.said("x"), "Missing"),
        (DiskFull(Path("x")), "WeftError"),
    ):
        assert channel.error_name(error) == kind and channel.ERRORS[kind]("x").exit_code == error.exit_code


@pytest.mark.parametrize(
    "rubbish",
    [b"\xff\xff\xff\xff", framed("hello"), framed([1]), framed([1, "do", 3]), struct.pack(">I", 1) + b"\xc1"],
)
def test_rubbish_is_hung_up_on_and_what_follows_it_is_not_done(
    server: ChannelServer, echo: Echo, connect: Callable[[], socket.socket], rubbish: bytes
) -> None:
    peer, other = connect(), connect()
    server.turn(), server.turn()
    peer.sendall(rubbish + framed([1, "do", {}]))
    server.turn()
    assert peer.recv(1) == b"" and echo.heard == []
    other.sendall(framed([1, "do", {}]))
    server.turn()
    committed(server)
    assert received(other)[1] == "ok"


def test_a_peer_that_went_gets_no_reply(server: ChannelServer, connect: Callable[[], socket.socket]) -> None:
    peer = connect()
    server.turn()
    peer.sendall(framed([1, "do", {}]))
    server.turn()
    peer.close()
    server.turn()
    committed(server)
    assert server.subscribers == []


def test_a_reader_that_does_not_read_keeps_the_last_notice_alone(
    server: ChannelServer, connect: Callable[[], socket.socket]
) -> None:
    peer = connect()
    server.turn()
    peer.sendall(framed([1, "subscribe", {}]))
    server.turn()
    server.reply_to_reads()
    (reader,) = server.subscribers
    for number in range(5000):
        server.notify(reader, [number, "x" * 1000])
    assert len(reader.unsent) < 10_000 and reader.notice == [4999, "x" * 1000]
    assert received(peer)[1] == "ok"
    heard = [received(peer)[2][0]]
    while heard[-1] != 4999:
        server.turn()
        heard.append(received(peer)[2][0])
    assert heard == sorted(set(heard)), "each comes once, in order"


def test_one_that_lets_its_replies_lie_is_disconnected(
    server: ChannelServer, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "UNREAD_BYTES", 1 << 20)
    peer = connect()
    server.turn()
    while server._peers:
        with suppress(BrokenPipeError):
            peer.sendall(framed([1, "do", {"text": "x" * 100_000}]))
        server.turn(), server.turn()
        committed(server)


def test_a_connection_waits_for_its_reply_and_raises_what_was_raised(server: ChannelServer, tmp_path: Path) -> None:
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.005):
            server.turn()
            committed(server)
            server.reply_to_reads()
            for peer in server.subscribers:
                server.notify(peer, "news")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with closing(Connection(tmp_path / "s.sock")) as connection:
            assert connection.call("do", x="é") == {"x": "é"}
            with pytest.raises(Busy, match="busy"):
                connection.call("fail", how="busy")
            with pytest.raises(WeftError, match="internal error: ValueError: defect"):
                connection.call("fail", how="defect")
            for value in ("\udc80", 1 << 70, object()):
                with pytest.raises(BadInput, match="cannot be sent"):
                    connection.call("do", x=value)
            assert connection.notice(0.0) is None
            connection.call("subscribe")
            assert connection.notice(patience(2)) == "news"
            assert connection.call("do", y=1) == {"y": 1}, "notices are no replies"
    finally:
        over.set()
        thread.join()


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(EngineGone, match="no engine listens"):
        Connection(tmp_path / "nobody.sock")
    with pytest.raises(EngineGone):
        Connection(tmp_path / ("x" * 200))


def test_the_socket_is_its_owners_and_takes_the_place_of_a_dead_one(tmp_path: Path) -> None:
    for _ in range(2):  # the second time a file is there
        path = tmp_path / "dead.sock"
        server = ChannelServer(path, lambda *_: None)
        assert path.stat().st_mode & 0o777 == 0o600
        server._listener.close()


def test_a_long_path_is_shortened_the_same_way_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert socket_path(Path("/x")) == Path("/x/engine.sock")
    long = tmp_path / ("d" * 120)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run")
    short = socket_path(long)
    assert short.parent == Path("/run") and short == socket_path(long) != socket_path(long / "other")
    assert short == socket_path(tmp_path / "x" / ".." / ("d" * 120))
    (tmp_path / ("r" * 90)).mkdir()
    for runtime in (str(tmp_path / ("r" * 90)), "/nowhere", ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert len(os.fsencode(socket_path(long))) <= 100
