"""A load generator for HTTP on loopback: requests at fixed times over kept connections, and streams that are read.

Latency counts from the time at which a request was due, not from when it could be sent: a server that stalls is charged
for every request that it kept waiting.
"""

from __future__ import annotations

import asyncio
import re
import statistics
from collections.abc import Callable
from datetime import datetime
from time import perf_counter, time

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_AT = re.compile(rb'^id: (\d+)\r?\nevent: \w+\r?\ndata: \{"at":"([^"]+)"', re.MULTILINE)


class Connection:
    """One kept connection, for one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        return int(head[9:12]), body

    def close(self) -> None:
        """Ends it."""
        if self._streams is not None:
            self._streams[1].close()


def request(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    """The bytes of a request."""
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{kind}\r\n".encode() + body


async def at_rate(
    port: int, per_s: float, seconds: float, make: Callable[[int], bytes], connections: int = 64
) -> tuple[list[float], dict[int, int], list[bytes]]:
    """Sends so many requests a second; their latencies in ms, the statuses, and the bodies."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    every = [Connection(port) for _ in range(connections)]
    for one in every:
        free.put_nowait(one)
    latencies: list[float] = []
    statuses: dict[int, int] = {}
    bodies: list[bytes] = []

    async def send(number: int, due: float) -> None:
        connection = await free.get()
        try:
            status, body = await connection.ask(make(number))
        finally:
            free.put_nowait(connection)
        latencies.append((perf_counter() - due) * 1000)
        statuses[status] = statuses.get(status, 0) + 1
        bodies.append(body)

    began, running = perf_counter(), []
    for number in range(int(per_s * seconds)):
        due = began + number / per_s
        if (wait := due - perf_counter()) > 0:
            await asyncio.sleep(wait)
        running.append(asyncio.create_task(send(number, due)))
    await asyncio.gather(*running)
    for one in every:
        one.close()
    return latencies, statuses, bodies


class Stream(asyncio.Protocol):
    """Reads one event stream: when each numbered event came, and how long after it happened."""

    def __init__(self, port: int, task_id: str) -> None:
        self._request = request(port, "GET", f"/scraping/tasks/{task_id}/events")
        self._rest = b""
        self.numbers: list[int] = []
        self.lags_ms: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now = time()
        whole, mark, rest = (self._rest + data).rpartition(b"\n\n")
        self._rest = rest
        for number, at in _AT.findall(whole + mark):
            self.numbers.append(int(number))
            self.lags_ms.append((now - datetime.fromisoformat(at.decode()).timestamp()) * 1000)
        if rest == b"0\r\n\r\n" or b"\r\n0\r\n\r\n" in data:
            self.connection_lost(None)

    def connection_lost(self, _: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def percentiles(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and the largest."""
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2), "max": round(max(values), 2)}
