"""Calls an ASGI application without a network, as uvicorn would: whole answers, and streams read piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass
class Answer:
    """What came back; `pieces` grows while a stream lasts."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    is_whole: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def fields(self) -> dict[str, str]:
        """Of a problem: what is said about each field."""
        return {one["field"]: one["detail"] for one in self.json.get("errors", ())}


class Asgi:
    """One caller of an application."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str] | None = None) -> None:
        self._app = app
        self._headers = {"host": "127.0.0.1:8000", **(headers or {})}

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request, with its whole answer; a body that is no bytes is sent as JSON."""
        call = self.begin(method, path, body, **headers)
        await call.task
        return call.answer

    def begin(self, method: str, path: str, body: Any = None, *, transport: Any = None, **headers: str) -> Call:
        """One request that goes on."""
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        where, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": where,
            "raw_path": where.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items() if value],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "weft.transport": transport,
        }  # fmt: skip
        return Call(self._app, scope, body or b"")


class Call:
    """A request under way."""

    def __init__(self, app: ASGIApp, scope: dict[str, Any], body: bytes) -> None:
        self.answer = Answer()
        self.reads = asyncio.Event()  # cleared: the client takes nothing more
        self.reads.set()
        self._gone = asyncio.Event()
        self._body: bytes | None = body
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def hang_up(self) -> None:
        """The client goes away."""
        self._gone.set()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            self.answer.pieces.append(message.get("body", b""))
            self.answer.is_whole = not message.get("more_body", False)
