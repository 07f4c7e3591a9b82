"""Chromium's DevTools protocol over the two pipes that `--remote-debugging-pipe` reads and writes.

A pipe needs no port that others could connect to, and Chromium ends by itself when it is closed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

_LONGEST = 256 << 20
_CHUNK = 1 << 20
Event = Callable[[str, str, dict[str, Any]], None]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class DevtoolsError(Exception):
    """A command failed; usually its target no longer exists."""


class DevtoolsGone(DevtoolsError):
    """The browser has ended."""


class DevtoolsPipe:
    """Sends commands, and calls `on_event(session, method, params)` for each event."""

    def __init__(self, reads: int, writes: int, on_event: Event) -> None:
        """`reads`, `writes`: our ends of the pipes, which this object owns from now on."""
        self._reads, self._writes = reads, writes
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._received = bytearray()
        self._unsent = bytearray()
        self.gone = asyncio.Event()
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)
        self._loop.add_reader(reads, self._read)

    async def call(self, method: str, session: str = "", /, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its result."""
        return await self.begin(method, session, **params)

    def begin(self, method: str, session: str = "", /, **params: Any) -> asyncio.Future[dict[str, Any]]:
        """Sends a command; its result comes in the order of the commands of one session."""
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        if self.gone.is_set():
            answer.set_exception(DevtoolsGone(method))
            return answer
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._answers[self._number] = answer
        self._unsent += _encode(message) + b"\0"
        self._write()
        return answer

    def send(self, method: str, session: str = "", /, **params: Any) -> None:
        """Sends a command and ignores its result: its target may be gone."""
        self.begin(method, session, **params).add_done_callback(lambda answer: answer.cancelled() or answer.exception())

    def close(self) -> None:
        """Closes the pipes, which ends the browser."""
        if self.gone.is_set():
            return
        self.gone.set()
        self._loop.remove_reader(self._reads)
        self._loop.remove_writer(self._writes)
        for end in (self._reads, self._writes):
            with suppress(OSError):
                os.close(end)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(DevtoolsGone("the browser has ended"))
                answer.exception()
        self._answers.clear()

    def _write(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._writes, self._unsent[:_CHUNK])
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.add_writer(self._writes, self._write)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._writes)

    def _read(self) -> None:
        try:
            data = os.read(self._reads, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._received) > _LONGEST:
            self.close()
            return
        start = len(self._received)
        self._received += data
        if b"\0" not in data:
            return
        end = self._received.rindex(b"\0", start)
        messages = bytes(self._received[:end]).split(b"\0")
        del self._received[: end + 1]
        for message in messages:
            self._handle(_decode(message))

    def _handle(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            self._on_event(message.get("sessionId", ""), message["method"], message.get("params", {}))
            return
        answer = self._answers.pop(number, None)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(DevtoolsError(message["error"].get("message", "failed")))
        else:
            answer.set_result(message.get("result", {}))
