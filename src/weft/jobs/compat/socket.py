"""Follows a job over a WebSocket: sends every document once, then the end.

catchup    the status, with the documents so far; its state is always `scraping`, because some clients stop reading at
           a terminal one and lose what follows
document   one page, as it is stored
heartbeat  when nothing was sent for a second: clients would otherwise poll the status with all documents
done       everything was sent, and the job is completed; for other ends a catchup that says so, or an error

A watcher is a cursor: it uses no memory for documents that its client has not read, and is closed when the client has
read nothing for `stall_s`. A worker that ends closes its sockets with 1012; clients then continue by polling the
status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task
from weft.jobs.api.problems import Refusal
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.streams import TRANSPORT, StreamSlots
from weft.jobs.compat.wire import document, job_status, state_of, warning_of
from weft.jobs.errors import EngineAway, TaskUnknown
from weft.jobs.reading.hub import Hub
from weft.jobs.service import JobService, TaskSnapshot
from weft.telemetry import Log

HEARTBEAT_S = 1.0
AT_ONCE = 50  # documents that are read at a time
AWAY_S = 0.5
NORMAL, NOT_FOUND, MISTAKE, RESTART, FULL, FORBIDDEN = 1000, 1008, 1011, 1012, 1013, 3003
LONGEST_REASON = 120  # The longest reason in a close frame, in bytes.
log = Log("weft.jobs.compat")


class Watching:
    """Handler of the WebSocket route."""

    def __init__(self, service: JobService, settings: ApiSettings, stream_slots: StreamSlots, hub: Hub) -> None:
        self._service = service
        self._hub = hub
        self._settings = settings
        self._stream_slots = stream_slots

    def route(self, version: int) -> Callable[[WebSocket], Awaitable[None]]:
        """The endpoint for one version of the API."""

        async def endpoint(socket: WebSocket) -> None:
            await self._accept_watcher(socket, version)

        return endpoint

    async def _accept_watcher(self, socket: WebSocket, version: int) -> None:
        offered = socket.scope.get("subprotocols") or [None]
        await socket.accept(subprotocol=offered[0])  # JavaScript clients send their key there, and want it echoed
        try:
            task_id, owner = asked_task(socket, KeyScope.READ)
            await self._service.status(task_id, owner)
            self._stream_slots.reserve(owner)
        except TaskUnknown:
            await socket.close(NOT_FOUND, "Job not found")
            return
        except Refusal as refusal:
            await socket.close(FORBIDDEN if refusal.status == 403 else FULL, refusal.detail[:LONGEST_REASON])
            return
        except EngineAway:
            await socket.close(RESTART, "the engine is being started again")
            return
        try:
            await self._run_watcher(
                socket, _JobWatcher(self._service, self._hub, self._settings, socket, task_id, owner, version)
            )
        finally:
            self._stream_slots.release(owner)

    async def _run_watcher(self, socket: WebSocket, watcher: _JobWatcher) -> None:
        """Runs a watcher until it ends, or its client disconnects."""
        reading = asyncio.ensure_future(_wait_until_gone(socket))
        sending = asyncio.ensure_future(watcher.run())
        try:
            await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except (WebSocketDisconnect, RuntimeError):  # the client disconnected during a send
            pass
        except TimeoutError:
            log.info("watcher cut off", task=watcher.task_id, stalled_s=self._settings.stall_s)
            if (transport := socket.scope.get(TRANSPORT)) is not None:
                transport.abort()  # close() would wait for the client to read the buffered bytes
        finally:
            for one in (reading, sending):
                one.cancel()
            await asyncio.gather(reading, sending, return_exceptions=True)


class _JobWatcher:
    """One client that follows one job."""

    def __init__(
        self, service: JobService, hub: Hub, settings: ApiSettings, socket: WebSocket, task_id: str, owner: str,
        version: int,
    ) -> None:  # fmt: skip
        self._service = service
        self._hub = hub
        self._settings = settings
        self._socket = socket
        self.task_id = task_id
        self._owner = owner
        self._version = version
        self._cursor = 0

    async def run(self) -> None:
        """Sends documents and heartbeats to the end of the job."""
        status = await self._read_status()
        results = await self._service.results(self.task_id, self._owner, limit=AT_ONCE)
        documents = [document(one, status.task) for one in results.results]
        snapshot = job_status(status, self._version, documents, None, self._settings.retention_s)
        await self._send_message({"type": "catchup", "data": snapshot | {"status": "scraping"}})
        self._cursor = results.cursor
        await self._send_documents()
        async with aclosing(self._hub.numbers(self.task_id, self._cursor, HEARTBEAT_S)) as numbers:
            async for number in numbers:
                if number is None:
                    await self._send_message({"type": "heartbeat"})
                elif number > self._cursor:
                    await self._send_documents()
        status = await self._read_status()
        if not status.task.is_terminal:  # the loop ended because this worker ends
            await self._socket.close(RESTART, "this worker ends: ask for the status")
            return
        await self._send_documents()
        await self._end(status)

    async def _read_status(self) -> TaskSnapshot:
        while True:
            try:
                return await self._service.status(self.task_id, self._owner)
            except EngineAway:
                await asyncio.sleep(AWAY_S)

    async def _send_documents(self) -> None:
        """Sends the documents after the cursor."""
        while True:
            results = await self._service.results(self.task_id, self._owner, cursor=self._cursor, limit=AT_ONCE)
            if results.results:
                task = (await self._read_status()).task
                for one in results.results:
                    await self._send_message({"type": "document", "data": document(one, task)})
            self._cursor = results.cursor
            if results.next_cursor is None:
                return

    async def _end(self, status: TaskSnapshot) -> None:
        state = state_of(status.task)
        snapshot = job_status(status, self._version, [], None, self._settings.retention_s)
        reason: dict[str, Any] = {"type": "done"}
        if state == "failed" and self._version == 1:
            reason = {"type": "error", "error": warning_of(status.task)[:60]}
            await self._send_message({"type": "error", "error": warning_of(status.task)})
        elif state == "completed" or self._version == 1:
            await self._send_message({"type": "done", "data": snapshot})
        else:
            await self._send_message({"type": "catchup", "data": snapshot})
        with suppress(RuntimeError):
            await self._socket.close(NORMAL, msgspec.json.encode(reason).decode())

    async def _send_message(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._settings.stall_s):
            await self._socket.send_text(msgspec.json.encode(message).decode())


async def _wait_until_gone(socket: WebSocket) -> None:
    """Returns when the client has disconnected; its messages are discarded."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
