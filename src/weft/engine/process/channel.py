"""The channel to an engine in another process: commands in, replies and notices out, over a Unix socket.

A frame is a msgpack value behind its length (4 bytes, big-endian). A request is `[id, verb, arguments]`, its reply
`[id, "ok", result]` or `[id, "error", kind, message]`. A connection that has subscribed gets notices, `[0, "notice",
value]`: they announce a commit without its content, which readers read from the index, so the engine does the same work
for one reader as for fifty. For a slow reader a notice replaces the one before it, so a reader that never reads costs
one buffer.

Only its owner can use the socket (0600), and a peer of another user is refused. If the data dir's path is too long for
a socket's address, the socket is in the user's runtime folder.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from weft import frames
from weft.errors import BadInput, Busy, WeftError
from weft.telemetry import Log

SOCKET = "engine.sock"
LONGEST_FRAME = 64 << 20
UNREAD_BYTES = 16 << 20  # unread replies of a peer: beyond this it is disconnected
_LONGEST_ADDRESS = 100  # bytes of a Unix socket's path; the kernel takes 107, the rest is margin
_RECEIVE_BYTES = 1 << 16
_encode = msgspec.msgpack.Encoder().encode
log = Log("weft.engine.process.channel")


class EngineGone(WeftError):
    """The engine's process has ended, or does not listen yet."""


def socket_path(data_dir: Path, name: str = SOCKET) -> Path:
    """Where the engine of a data dir listens: the same path for every process of a user. `name`: of another server's
    socket.
    """
    path = data_dir.resolve() / name
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        return path
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    name = f"weft-{sha256(os.fsencode(path)).hexdigest()[:24]}.sock"
    folders = [Path(runtime)] if runtime and Path(runtime).is_dir() else []
    with suppress(FileNotFoundError):  # the folder may not be writable
        folders.append(Path(tempfile.gettempdir()) / f"weft-{os.getuid()}")
    folders.append(Path(f"/tmp/weft-{os.getuid()}"))  # noqa: S108
    return next(folder / name for folder in folders if len(os.fsencode(folder / name)) <= _LONGEST_ADDRESS)


def framed(value: object) -> bytes:
    """A value encoded for the socket."""
    return frames.framed(_encode(value))


class Peer:
    """A connection on the engine's side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.subscribed = False
        self.topic: str | None = None  # the crawl that it has subscribed to; None: all
        self.received = bytearray()
        self.unsent = bytearray()
        self.is_full = False  # the socket's send buffer is full: EPOLLOUT is registered until `unsent` is empty
        self.notice: object = None  # the latest notice, not yet in `unsent`


class ChannelServer:
    """The engine's end. Everything happens in `turn`, on the caller's thread; nothing blocks."""

    def __init__(
        self, path: Path, handle: Callable[[Peer, str, dict[str, Any]], Any], at_once: Collection[str] = ()
    ) -> None:
        """`handle` carries out a verb and returns its result, or raises its error.

        `at_once`: verbs that change nothing; `answer` sends their replies.
        """
        self._path = path
        self._read_only_verbs = at_once
        self._handle = handle
        self._epoll = select.epoll()
        self._listener = _bind_socket(path)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._peers: dict[int, Peer] = {}
        self._replies: list[tuple[Peer, list[object]]] = []  # values: their numbers are known only after the commit
        self._sealed_replies: list[tuple[Peer, bytes]] = []  # sent with the next `reply`
        self._replies_to_reads: list[tuple[Peer, list[object]]] = []

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._epoll.fileno()

    @property
    def subscribers(self) -> list[Peer]:
        """The connections that have subscribed to notices."""
        return [peer for peer in self._peers.values() if peer.subscribed]

    def turn(self) -> bool:
        """Carries out received requests; True if there are replies: `seal` and `reply` send them when all is
        durable.
        """
        for fd, events in self._epoll.poll(0):
            if fd == self._listener.fileno():
                self._accept_peers()
                continue
            peer = self._peers.get(fd)
            if peer is not None and events & select.EPOLLOUT:
                self._send_unsent(peer)
            if peer is not None and events & ~select.EPOLLOUT and fd in self._peers:
                self._receive_requests(peer)
        return bool(self._replies)

    def seal_replies(self) -> None:
        """Called after a commit: the next `reply` sends the replies so far. Later ones need another `seal`."""
        self._sealed_replies += [(peer, framed(reply)) for peer, reply in self._replies]
        self._replies = []

    def send_sealed_replies(self) -> None:
        """Sends the sealed replies."""
        replies, self._sealed_replies = self._sealed_replies, []
        self._send_replies(replies)

    def reply_to_reads(self) -> None:
        """Sends the replies to verbs that change nothing."""
        if self._replies_to_reads:
            answers, self._replies_to_reads = self._replies_to_reads, []
            self._send_replies([(peer, framed(reply)) for peer, reply in answers])

    def _send_replies(self, replies: list[tuple[Peer, bytes]]) -> None:
        for peer, data in replies:
            if peer.sock.fileno() in self._peers:
                peer.unsent += data
                self._send_unsent(peer)

    def notify(self, peer: Peer, value: object) -> None:
        """Sends a notice, or replaces the one that is not sent yet."""
        peer.notice = value
        if not peer.unsent:
            self._send_unsent(peer)

    def close(self) -> None:
        """Closes every connection, and the listening socket."""
        for peer in list(self._peers.values()):
            self._drop_peer(peer)
        self._listener.close()
        self._epoll.close()
        self._path.unlink(missing_ok=True)

    def _accept_peers(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if uid != os.getuid():
            log.warning("refused a connection of another user", uid=uid)
            sock.close()
            return
        self._peers[sock.fileno()] = Peer(sock)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _receive_requests(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop_peer(peer)
            return
        peer.received += data
        try:
            for body in frames.frames(peer.received, LONGEST_FRAME):
                if not self._execute_request(peer, body):
                    return
        except frames.TooLong as error:
            log.warning("a peer sent a frame that is too long", bytes=error.size)
            self._drop_peer(peer)

    def _execute_request(self, peer: Peer, body: bytes) -> bool:
        """Carries out a request; False if it was none, and the peer was disconnected."""
        try:
            number, verb, arguments = msgspec.msgpack.decode(body, type=tuple[int, str, dict[str, Any]])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._drop_peer(peer)
            log.warning("a peer sent what is no request", error=error)
            return False
        reply: list[object]
        try:
            reply = [number, "ok", self._handle(peer, verb, arguments)]
        except WeftError as error:
            reply = [number, "error", error_name(error), str(error)]
        except Exception as error:  # a bug of ours must not end every crawl
            log.error("a command failed", verb=verb, exc_info=True)
            reply = [number, "error", "WeftError", f"{verb}: internal error: {type(error).__name__}: {error}"]
        if verb in self._read_only_verbs:
            self._replies_to_reads.append((peer, reply))
        else:
            self._replies.append((peer, reply))
        return True

    def _send_unsent(self, peer: Peer) -> None:
        try:
            while peer.unsent or peer.notice is not None:
                if not peer.unsent:
                    peer.unsent += framed([0, "notice", peer.notice])
                    peer.notice = None
                del peer.unsent[: peer.sock.send(peer.unsent[:_RECEIVE_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._drop_peer(peer)
            return
        if len(peer.unsent) > UNREAD_BYTES:
            log.warning("a peer does not read its replies: it is disconnected")
            self._drop_peer(peer)
            return
        if peer.is_full is not bool(peer.unsent):
            peer.is_full = bool(peer.unsent)
            self._epoll.modify(peer.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if peer.is_full else 0))

    def _drop_peer(self, peer: Peer) -> None:
        fd = peer.sock.fileno()
        if self._peers.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            peer.sock.close()


class Connection:
    """A connection on the user's side. Calls wait for their reply; one thread at a time."""

    def __init__(self, path: Path, timeout_s: float = 5.0) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._received = bytearray()
        self._count = 0
        try:
            self._sock.settimeout(timeout_s)
            self._sock.connect(os.fspath(path))
            self._sock.settimeout(None)
        except OSError as error:
            self._sock.close()
            raise EngineGone(f"no engine listens at {path}: {error.strerror or error}") from None

    @property
    def pid(self) -> int:
        """The process id of the engine."""
        found = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", found)[0])

    @property
    def is_open(self) -> bool:
        """Whether the engine's side is connected: it has neither hung up nor died."""
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return not poll.poll(0)

    def call(self, verb: str, /, **arguments: object) -> Any:
        """Returns the verb's result; raises the engine's error, or Gone."""
        return self.call_within(None, verb, **arguments)

    def call_within(self, timeout_s: float | None, verb: str, /, **arguments: object) -> Any:
        """Calls a verb with a time limit; TimeoutError if no reply came in time, and the connection must be closed."""
        self._count += 1
        try:
            frame = framed([self._count, verb, arguments])
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise BadInput(f"{verb}: a value cannot be sent: {error}") from None
        if len(frame) > LONGEST_FRAME:
            raise BadInput(f"{verb}: {len(frame):,} bytes are too much for one command")
        try:
            self._sock.sendall(frame)
        except OSError as error:
            raise EngineGone(f"the engine has hung up: {error.strerror or error}") from None
        while True:
            number, word, *rest = self._next_message(timeout_s)
            if number == self._count:
                break
        if word == "ok":
            return rest[0]
        raise ERRORS.get(rest[0], WeftError)(rest[1])

    def notice(self, timeout_s: float) -> Any:
        """The next notice; None after the timeout."""
        try:
            return self._next_message(timeout_s)[2]
        except TimeoutError:
            return None

    def hang_up(self) -> None:
        """Shuts the socket down: a call that blocks on it, in any thread, raises Gone."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is shut down already

    def close(self) -> None:
        """Hangs up and closes the socket."""
        self._sock.close()

    def _next_message(self, timeout_s: float | None) -> list[Any]:
        size = frames.length_of(self._read_exactly(frames.HEAD, timeout_s))
        found: list[Any] = msgspec.msgpack.decode(self._read_exactly(size, None))
        return found

    def _read_exactly(self, count: int, timeout_s: float | None) -> bytes:
        """Reads exactly `count` bytes. The timeout applies to the first byte of a frame: a frame that has begun is read
        to its end.
        """
        while len(self._received) < count:
            self._sock.settimeout(None if self._received else timeout_s)
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except (TimeoutError, BlockingIOError):
                raise TimeoutError from None
            except OSError as error:
                raise EngineGone(f"the engine has hung up: {error.strerror or error}") from None
            if not data:
                raise EngineGone("the engine has hung up")
            self._received += data
        found = bytes(self._received[:count])
        del self._received[:count]
        return found


def _make_raiser(kind: type[WeftError]) -> Callable[[str], WeftError]:
    def make(message: str) -> WeftError:
        error = kind.__new__(kind)
        Exception.__init__(error, message)
        return error

    return make


ERRORS: dict[str, Callable[[str], WeftError]] = {
    kind.__name__: _make_raiser(kind) for kind in (WeftError, BadInput, Busy)
}
ERRORS["BadConfig"] = ERRORS["BadRules"] = ERRORS["Missing"] = ERRORS["BadUrl"] = ERRORS["Damaged"] = ERRORS["BadInput"]


def error_name(error: WeftError) -> str:
    """The name of an error in ERRORS: its own, or that of the nearest base class."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)


def _bind_socket(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise BadInput(f"{path.parent} belongs to another user: choose another data dir")
    path.unlink(missing_ok=True)  # a killed process left it; the caller holds the folder's lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    finally:
        os.umask(before)
    listener.setblocking(False)
    listener.listen(256)
    return listener
