"""Messages between embedded pods: each pod sends its outbox to every other pod over a local socket, between its pages.

A pod listens in its folder, and every other pod connects to it. The connecting pod identifies itself, gets the last
message number that was received from it, and sends what follows. The receiver admits each message to its frontier, and
acknowledges a number once everything up to it is on its disk: only then does the sender delete it. A receiver that has
less than it once acknowledged has lost its frontier: the crawl ends with that error, or URLs would be lost silently. A
connection that breaks is opened again, with the same handshake. Nothing here blocks: what cannot be read or written now
is tried at the next call.

    frame     4 bytes length, then that many bytes
    hello     msgpack [pod, crawl id]                from the connecting pod
    number    8 bytes                                from the listening pod: received (first), safe on disk (later)
    message   8 bytes number, then the message       from the connecting pod
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from weft.errors import Damaged
from weft.frames import TooLong, framed, frames
from weft.frontier.durability.journal import REMEDY
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.embedded.embedded_routing import ReceivedEffects
from weft.telemetry import Log

SEND_EVERY_S = 0.02
CONNECT_EVERY_S = 0.2
READ_BYTES = 256 * 1024
MOST_UNSENT_BYTES = 1024 * 1024
MOST_FRAME_BYTES = 1 << 30
_LONGEST_PATH = 100  # bytes of a Unix socket's path; the kernel accepts 107, the rest is margin
log = Log("weft.crawl.pods.exchange")


class _PodConnection:
    """A connection, with partially read data and data that could not be written yet."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._received = bytearray()
        self.unsent = bytearray()
        self.pod = -1  # the other pod; -1 before its hello
        self.number = 0  # outgoing: sent up to here; incoming: acknowledged up to here

    def frames(self) -> Iterator[bytes]:
        """Yields the received frames; raises OSError when the other side has closed the connection."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the other pod closed the connection")
        self._received += data
        try:
            yield from frames(self._received, MOST_FRAME_BYTES)
        except TooLong:
            raise ConnectionAbortedError(errno.ECONNABORTED, "not a frame") from None

    def send(self, body: bytes = b"") -> None:
        """Writes as much as possible; the rest is buffered."""
        if body:
            self.unsent += framed(body)
        while self.unsent:
            try:
                written = self._socket.send(self.unsent)
            except BlockingIOError:
                return
            del self.unsent[:written]

    def connect(self, path: str) -> None:
        """Connects to a listening pod; a local socket accepts or refuses at once."""
        self._socket.connect(path)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


class Exchange:
    """The exchange of one pod with all others; call it often."""

    def __init__(
        self,
        folder: Callable[[int], Path],
        frontier: EmbeddedFrontier,
        pod: int,
        pods: int,
        crawl_id: str,
        receive: Callable[[ReceivedEffects], None],
        crossed: Callable[[int, float], None] = lambda _links, _seconds: None,
    ) -> None:
        self._folder = folder
        self._frontier = frontier
        self._pod = pod
        self._crawl_id = crawl_id
        self._receive_message = receive
        self._count_crossed = crossed  # called for each acknowledged message: its links, seconds since it was sent
        self._unacknowledged: dict[int, deque[tuple[int, int, float]]] = {}  # by pod: number, links, when it was sent
        self._other_pods = [other for other in range(pods) if other != pod]
        self._outgoing: dict[int, _PodConnection] = {}
        self._greeted_pods: set[int] = set()  # pods whose last received number has arrived: messages may be sent
        self._incoming: list[_PodConnection] = []
        self._next_exchange_at = 0.0
        self._connect_at = dict.fromkeys(self._other_pods, 0.0)
        self._listener = _bind_socket(folder(pod) / "socket")

    def __call__(self, now: float) -> None:
        """Receives, acknowledges and sends without blocking."""
        if now < self._next_exchange_at:
            return
        self._next_exchange_at = now + SEND_EVERY_S
        self._accept_connections()
        for line in self._incoming[:]:
            try:
                self._receive_frames(line)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                line.close()
                self._incoming.remove(line)
        for pod in self._other_pods:
            try:
                self._deliver_outbox(pod, now)
            except OSError:
                self._disconnect(pod)

    def close(self) -> None:
        """Closes all connections."""
        for line in (*self._incoming, *self._outgoing.values()):
            line.close()
        self._listener.close()

    def _accept_connections(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._incoming.append(_PodConnection(connection))

    def _receive_frames(self, line: _PodConnection) -> None:
        for frame in line.frames():
            if line.pod < 0:
                self._handle_handshake(line, frame)
            elif (
                received := self._frontier.inbox.receive(line.pod, int.from_bytes(frame[:8], "big"), frame[8:])
            ) is not None:
                self._receive_message(received)
        safe = self._frontier.pods.durable_numbers.get(line.pod, 0)
        line.send(safe.to_bytes(8, "big") if safe > line.number else b"")
        line.number = max(line.number, safe)

    def _handle_handshake(self, line: _PodConnection, frame: bytes) -> None:
        pod, crawl_id = msgspec.msgpack.decode(frame, type=tuple[int, str])
        if crawl_id != self._crawl_id or pod not in self._connect_at:
            raise ConnectionAbortedError(errno.ECONNABORTED, "another crawl")
        line.pod = pod
        line.send(self._frontier.pods.last_message_from(pod).to_bytes(8, "big"))

    def _deliver_outbox(self, pod: int, now: float) -> None:
        line = self._outgoing.get(pod) or self._connection_to(pod, now)
        if line is None:
            return
        for frame in line.frames():
            number = int.from_bytes(frame, "big")
            if pod in self._greeted_pods:
                self._frontier.pods.outbox.acknowledge_message(pod, number)
                self._report_delivered(pod, number, now)
            elif self._frontier.pods.outbox.has_lost(pod, number):
                journal = self._folder(pod) / "frontier.db"
                raise Damaged(journal, f"lacks URLs of pod {self._pod} that it had acknowledged", REMEDY)
            else:
                self._greeted_pods.add(pod)
                line.number = number
        line.send()
        if pod not in self._greeted_pods:
            return
        while len(line.unsent) < MOST_UNSENT_BYTES:
            message = self._frontier.pods.outbox.next_message(pod, line.number)
            if message is None:
                return
            line.number, body = message
            line.send(line.number.to_bytes(8, "big") + body)
            self._unacknowledged[pod].append((line.number, self._frontier.pods.outbox.links_in(pod, line.number), now))

    def _report_delivered(self, pod: int, number: int, now: float) -> None:
        under_way = self._unacknowledged[pod]
        while under_way and under_way[0][0] <= number:
            _, links, sent_at = under_way.popleft()
            self._count_crossed(links, now - sent_at)

    def _connection_to(self, pod: int, now: float) -> _PodConnection | None:
        if now < self._connect_at[pod]:
            return None
        self._connect_at[pod] = now + CONNECT_EVERY_S
        line = _PodConnection(socket.socket(socket.AF_UNIX))
        try:
            with _ShortPath(self._folder(pod) / "socket") as path:
                line.connect(path)
        except OSError:
            line.close()
            return None  # not started yet, or restarting
        line.send(msgspec.msgpack.encode((self._pod, self._crawl_id)))
        self._outgoing[pod] = line
        self._unacknowledged[pod] = deque()
        return line

    def _disconnect(self, pod: int) -> None:
        self._greeted_pods.discard(pod)
        if (line := self._outgoing.pop(pod, None)) is not None:
            line.close()


class _ShortPath:
    """A path short enough for a socket address: a long one is opened through /proc/self/fd of its folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _LONGEST_PATH:
            return str(self._path)
        self._fd = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._fd}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _bind_socket(path: Path) -> socket.socket:
    """A listening socket of this pod. The folder is locked, so an existing one belongs to a dead process."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    with _ShortPath(path) as name:
        listener.bind(name)
    listener.listen(256)
    return listener
