"""Serves the benchmark's files where there is no nginx: the same answers, at a fraction of its speed.

    python -m harness.files FOLDER FLAVOUR PORT ADDRESS...

What is measured on it is bound by it: such results say so, and are good for nothing but a look.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from weft.testing.nginx import file_name
from weft.testing.server import listen
from weft.testing.tls import server_context


class Files:
    """What all connections share."""

    def __init__(self, folder: Path, flavour: str) -> None:
        self.root = bytes(folder / "www")
        self.flavour = flavour
        self.private = (folder / "private.log").open("a", buffering=1)
        self.requests = 0


class Connection(asyncio.Protocol):
    """One connection; the status page has its own, on 127.0.0.1."""

    def __init__(self, files: Files, status: bool = False) -> None:
        self._files, self._status, self._data = files, status, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._host = transport.get_extra_info("sockname")[0].encode()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head, self._data = self._data[:end], self._data[end + 4 :]
            self._files.requests += 1
            self._answer(head.split(b" ", 2)[1].decode(), b"gzip" in head)

    def _answer(self, path: str, packed: bool) -> None:
        files = self._files
        if self._status:
            body = b"\n server accepts\n 0 0 %d \n" % files.requests
            return self._send(200 if path == "/status" else 404, body, "text/plain", "")
        if path.startswith("/private/"):
            files.private.write(path + "\n")
            return self._send(403, b"", "text/plain", "")
        coding = ".gz" if packed and files.flavour == "gzip" and path != "/robots.txt" else ""
        try:
            with open(files.root + b"/" + self._host + file_name(path) + coding.encode(), "rb") as file:  # noqa: PTH123
                body = file.read()
        except OSError:
            return self._send(404, b"", "text/plain", "")
        kind = "text/plain" if path == "/robots.txt" else "text/html; charset=utf-8"
        return self._send(200, body, kind, "Content-Encoding: gzip\r\n" if coding else "")

    def _send(self, status: int, body: bytes, kind: str, more: str) -> None:
        last = self._files.flavour == "tls" and not self._status
        close = "Connection: close\r\n" if last else ""
        head = f"HTTP/1.1 {status} .\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}{close}\r\n"
        self._transport.write(head.encode() + body)
        if last:
            self._transport.close()


async def serve(folder: Path, flavour: str, port: int, addresses: list[str]) -> None:
    """Until it is ended."""
    files = Files(folder, flavour)
    context = server_context() if flavour == "tls" else None
    loop = asyncio.get_running_loop()

    async def start(where: list[str], make: Callable[[], Connection], ssl: object) -> None:
        for one in listen(where, port)[0]:
            await loop.create_server(make, sock=one, ssl=ssl, backlog=512)  # type: ignore[call-overload]

    await start(addresses, lambda: Connection(files), context)
    await start(["127.0.0.1"], lambda: Connection(files, status=True), None)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
