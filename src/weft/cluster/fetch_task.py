"""The task of a `fetch` queue: makes the requests of one task with the plain client, and sends each result as it ends.

The address guard, the limits of size and time and the types of content hold here as they do in the brain; redirects are
results like any other. Clients are kept between tasks, for their connections. What the broker has no room for waits
here, on disk, until the task's deadline.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.bodies import Body, Spool, chunks_of
from weft.cluster.tasks import HandSide
from weft.config import FetchSection
from weft.engine.transports.transports import address_refusal
from weft.errors import BadInput, ServerAway, ServerFull
from weft.fetch.curl.client import Client
from weft.fetch.remote.messages import (
    INLINE_BYTES,
    FetchTask,
    LargeBody,
    RemoteRequest,
    RemoteResult,
    section_of,
)
from weft.records import FetchResult
from weft.telemetry import Log

HANDLES = 64
CLIENTS = 4
POLL_S = 0.25
RESULTS_KEPT_S = 600
_clients: OrderedDict[bytes, Client] = OrderedDict()  # of this process, the one used last at the end
log = Log("weft.cluster.fetch_task")


def run(body: dict[str, Any], side: HandSide) -> Mapping[str, Any]:
    """Counts of what was done: the results go their own way."""
    try:
        task = msgspec.convert(body, FetchTask)
        section = section_of(task.section)
    except msgspec.ValidationError as error:
        raise BadInput(f"a task of requests is not as it should be: {error}") from None
    client = _client_of(section, side.folder)
    requests = [one for one, granted in zip(task.requests, side.granted, strict=True) if granted]
    FetchRun(task, side, client).run(requests)
    return {"made": len(requests), "dropped": len(task.requests) - len(requests)}


def _client_of(section: FetchSection, folder: Path) -> Client:
    key = msgspec.msgpack.encode(section, order="deterministic")
    client = _clients.pop(key, None)
    if client is None:
        spool = Spool(section.body_memory_bytes, folder)
        client = Client(section, refusal=address_refusal(section), handles=HANDLES, spool=spool)
    _clients[key] = client
    if len(_clients) > CLIENTS:
        _clients.popitem(last=False)[1].close()
    return client


class FetchRun:
    """The requests of one task."""

    def __init__(self, task: FetchTask, side: HandSide, client: Client) -> None:
        self._task = task
        self._side = side
        self._client = client
        self._deadline = side.deadline + task.run_s
        self._unsent: list[tuple[RemoteRequest, FetchResult]] = []

    def run(self, requests: list[RemoteRequest]) -> None:
        """Makes them, and sends what comes."""
        for request in requests:
            self._client.submit(
                request.url, request.headers, request, keep_bytes=request.keep_bytes, until=self._deadline,
                filtered=request.filtered, is_first=request.is_first, body=request.body, method=request.method,
                timeout_s=request.timeout_s,
            )  # fmt: skip
        left = len(requests)
        while left:
            done = self._client.poll(POLL_S)
            left -= len(done)
            self._unsent += [(tag, result) for tag, result in done if isinstance(tag, RemoteRequest)]
            self._send()
        while self._unsent and time.monotonic() < self._deadline:
            time.sleep(POLL_S)
            self._send()
        for request, _ in self._unsent:
            log.warning("a result could not be sent until its deadline", id=request.id)

    def _send(self) -> None:
        """What cannot be sent now is tried again, until the deadline."""
        self._unsent = [one for one in self._unsent if not self._is_sent(*one)]

    def _is_sent(self, request: RemoteRequest, result: FetchResult) -> bool:
        try:
            inline, large = self._placed(request, result.body)
            if inline is None and large is None:
                return False
            self._push(request, result, inline or b"", large)
        except (ServerAway, ServerFull) as error:
            log.warning("a result waits for the broker", id=request.id, why=str(error))
            return False
        return True

    def _placed(self, request: RemoteRequest, body: Body) -> tuple[bytes | None, LargeBody | None]:
        """A body within its result, or where it is beside it; neither where there is no room now."""
        if len(body) <= INLINE_BYTES:
            return b"".join(chunks_of(body)), None
        data = b"".join(chunks_of(body))
        side, sha256 = self._side, hashlib.sha256(data).hexdigest()
        if self._task.is_shared and side.shared_dir is not None:
            _write_shared(side.shared_dir / side.broker.cluster_id, request.id, data)
            return None, LargeBody(len(data), sha256, is_shared=True)
        large = LargeBody(len(data), sha256)
        is_kept = side.broker.put_body(request.id, data, self._task.most_bytes, 0.0)
        return None, large if is_kept else None

    def _push(self, request: RemoteRequest, result: FetchResult, inline: bytes, large: LargeBody | None) -> None:
        side, task, now = self._side, self._task, time.monotonic()
        answer = RemoteResult(
            request.id, task.slot, task.epoch, side.hand, result.status, result.head, result.error, result.detail,
            now - result.ended, result.ended - result.started, result.ip, result.request_head, inline, large,
            result.surplus, result.was_sent,
        )  # fmt: skip
        made_ms = side.message.until_ms - int(1000 * (side.deadline - now))
        text = side.signer.sign(
            "fetch-result", msgspec.to_builtins(answer), made_ms=made_ms, until_ms=made_ms + 1000 * RESULTS_KEPT_S,
            id_=request.id,
        )  # fmt: skip
        broker = side.broker
        key = broker.key(f"results:{task.slot}")
        with broker.asking(), broker.client.pipeline(transaction=False) as steps:
            steps.rpush(key, text)
            steps.expire(key, RESULTS_KEPT_S)
            steps.execute()


def _write_shared(folder: Path, id_: str, data: bytes) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / id_
        with os.fdopen(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        Path(f"{path}.new").replace(path)
    except OSError as error:
        raise ServerFull(f"{folder}: a result cannot be written: {error.strerror}") from None
