"""The task of a `fetch` queue: makes the requests of one task with the plain client, and sends each result as it ends.

The address guard, the limits of size and time and the types of content hold here as they do in the brain; redirects are
results like any other. Clients are kept between tasks, for their connections. What the broker has no room for waits
here, on disk, until the task's deadline.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.bodies import Spool, chunks_of
from weft.cluster.pages.kept_bodies import BodyStore
from weft.cluster.pages.result_sender import ResultSender
from weft.cluster.tasks import HandSide, hand_clock
from weft.config import FetchSection
from weft.engine.transports.transports import address_refusal
from weft.errors import BadInput, ServerAway, ServerFull
from weft.fetch.curl.client import Client
from weft.fetch.remote.messages import (
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
Ended = tuple[RemoteRequest, FetchResult]
_clients: OrderedDict[bytes, Client] = OrderedDict()  # of this process, the one used last at the end
log = Log("weft.cluster.pages.fetch_task")


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
        client = Client(section, refusal=address_refusal(section), handles=HANDLES, clock=hand_clock, spool=spool)
    _clients[key] = client
    if len(_clients) > CLIENTS:
        _clients.popitem(last=False)[1].close()
    return client


class FetchRun:
    """The requests of one task. Results are sent by a thread: a broker that is silent holds up no transfer, so each is
    ended at its time.
    """

    def __init__(self, task: FetchTask, side: HandSide, client: Client) -> None:
        self._task = task
        self._side = side
        self._client = client
        self._deadline = side.deadline + task.run_s
        self._bodies = BodyStore(side, task.most_bytes, is_shared=task.is_shared)

    def run(self, requests: list[RemoteRequest]) -> None:
        """Makes them, and sends what comes."""
        sender = ResultSender(self._is_sent, self._deadline)
        try:
            self._make(requests, sender)
        finally:
            sender.finish()

    def _make(self, requests: list[RemoteRequest], sender: ResultSender[Ended]) -> None:
        until = self._deadline - self._task.margin_s
        for request in requests:
            self._client.submit(
                request.url, request.headers, request, keep_bytes=request.keep_bytes, until=until,
                filtered=request.filtered, is_first=request.is_first, body=request.body, method=request.method,
                timeout_s=request.timeout_s,
            )  # fmt: skip
        left = len(requests)
        while left:
            for tag, result in self._client.poll(POLL_S):
                left -= 1
                if isinstance(tag, RemoteRequest):
                    sender.put((tag, result))

    def _is_sent(self, ended: Ended) -> bool:
        request, result = ended
        try:
            if (kept := self._bodies.keep(request.id, b"".join(chunks_of(result.body)))) is None:
                return False
            self._push(request, result, *kept)
        except (ServerAway, ServerFull) as error:
            log.warning("a result waits for the broker", id=request.id, why=str(error))
            return False
        return True

    def _push(self, request: RemoteRequest, result: FetchResult, inline: bytes, large: LargeBody | None) -> None:
        side, task, now = self._side, self._task, hand_clock()
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
