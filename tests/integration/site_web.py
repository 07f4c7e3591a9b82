"""A site in this process whose pages a test plants, changes, moves and takes away; it answers conditional requests."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Literal
from zlib import crc32


@dataclass
class SiteWeb:
    """`pages`: path → HTML; `moved`: path → where to.

    `validators`: by content (etag, date), another ETag with each answer (changing), one ETag for ever, so that what has
    changed is called unchanged (stubborn), or none at all.
    """

    pages: dict[str, str]
    moved: dict[str, str] = field(default_factory=dict)
    address: str = "127.9.0.1"
    validators: Literal["etag", "date", "changing", "stubborn", "none"] = "etag"
    delay_s: float = 0.0
    status: int = 200  # of every page: a site that blocks answers 403
    asked: list[tuple[float, str, int]] = field(default_factory=list)  # when, path, status
    sent_bytes: int = 0  # of bodies
    waiting: int = 0  # requests that have no answer yet
    most_waiting: int = 0
    url: str = ""
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> SiteWeb:
        self._server = await asyncio.start_server(self._connected, self.address, 0)
        self.url = f"http://{self.address}:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def statuses(self, path: str) -> list[int]:
        return [status for _, asked, status in self.asked if asked == path]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path, at = head.split(b" ")[1].decode(), time.monotonic()
                self.waiting += 1
                self.most_waiting = max(self.most_waiting, self.waiting)
                await asyncio.sleep(self.delay_s)
                self.waiting -= 1
                status, body, headers = self._answer(path, head.decode("latin-1").lower())
                self.asked.append((at, path, status))
                self.sent_bytes += len(body)
                lines = [f"HTTP/1.1 {status} X", "Content-Type: text/html", f"Content-Length: {len(body)}", *headers]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the test is over
            pass
        finally:
            writer.close()

    def _answer(self, path: str, head: str) -> tuple[int, bytes, list[str]]:
        if path in self.moved:
            return 301, b"", [f"Location: {self.moved[path]}"]
        if path not in self.pages:
            return 404, b"", []
        if self.status != 200:
            return self.status, b"no", []
        body = self.pages[path].encode()
        value = {
            "date": formatdate(crc32(body) // 4, usegmt=True), "changing": f'"{len(self.asked)}"', "stubborn": '"1"',
        }.get(self.validators, f'"{crc32(body)}"')  # fmt: skip
        name, asks = ("Last-Modified", "if-modified-since") if self.validators == "date" else ("ETag", "if-none-match")
        headers = [f"{name}: {value}"] if self.validators != "none" else []
        return (304, b"", headers) if f"{asks}: {value}".lower() in head else (200, body, headers)


def linked(*paths: str, text: str = "") -> str:
    """A page with links."""
    return f"<title>x</title><p>{text}</p>" + "".join(f'<a href="{path}">x</a>' for path in paths)
