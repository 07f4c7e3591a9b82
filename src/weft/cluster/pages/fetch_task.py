"""The task of a `fetch` queue: passes its requests to this process's transfers, and sends each result as it ends.

A task is over when its transfers have begun (`transfer_loop`): a page that hangs holds up no other task. The address
guard, the limits of size and time and the types of content hold here as they do in the brain; redirects are results
like any other. What the broker has no room for waits here, on disk, until the task's deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.bodies import chunks_of
from weft.cluster.pages.kept_bodies import BodyStore
from weft.cluster.pages.transfer_loop import TransferLoop
from weft.cluster.tasks import HandSide, hand_clock
from weft.errors import BadInput, ServerAway, ServerFull, WeftError
from weft.fetch.remote.messages import (
    LATE,
    FetchTask,
    LargeBody,
    RemoteRequest,
    RemoteResult,
    section_of,
)
from weft.records import FetchResult
from weft.telemetry import Log

RESULTS_KEPT_S = 600
log = Log("weft.cluster.pages.fetch_task")


def run(body: dict[str, Any], side: HandSide) -> Mapping[str, Any]:
    """Counts of what was begun: the results go their own way."""
    try:
        task = msgspec.convert(body, FetchTask)
        section = section_of(task.section)
    except msgspec.ValidationError as error:
        raise BadInput(f"a task of requests is not as it should be: {error}") from None
    requests = [one for one, granted in zip(task.requests, side.granted, strict=True) if granted]
    fetches = FetchRun(task, side, len(requests))
    if side.is_late:
        fetches.decline(requests)
        return {"begun": 0, "dropped": len(task.requests)}
    TransferLoop.of_process(side.folder).begin(fetches, section, requests)
    return {"begun": len(requests), "dropped": len(task.requests) - len(requests)}


class FetchRun:
    """The requests of one task: until when they may be made, and how a result is sent."""

    def __init__(self, task: FetchTask, side: HandSide, requests: int) -> None:
        self._task = task
        self._side = side
        self._left = requests
        self._began = hand_clock()
        self._deadline = side.deadline + task.run_s
        self._bodies = BodyStore(side, task.most_bytes, is_shared=task.is_shared)

    @property
    def until(self) -> float:
        """When its last transfer must have ended."""
        return self._deadline - self._task.margin_s

    def decline(self, requests: list[RemoteRequest]) -> None:
        """Reports that requests were not made, so that the brain need not wait for their deadline."""
        now = hand_clock()
        for request in requests:
            late = FetchResult(
                request.url, 0, b"", b"", LATE, "it came too late", now, now, "", b"", was_sent=False
            )  # fmt: skip
            self._is_sent(request, late)

    def settle(self, request: RemoteRequest, result: FetchResult) -> bool:
        """Sends a result; True when nothing is left to do for it: it was sent, or its time is over."""
        if not self._is_sent(request, result):
            if hand_clock() < self._deadline:
                return False
            log.warning("a result could not be sent until its deadline", id=request.id)
        self._left -= 1
        if not self._left:
            self._count_time()
        return True

    def _count_time(self) -> None:
        """Adds the time of its transfers to the hand's counts."""
        try:
            self._side.broker.count_for(self._side.hand, {"fetch:ms": int(1000 * (hand_clock() - self._began))})
        except WeftError as error:
            log.warning("a count was lost", queue="fetch", word="ms", why=str(error))

    def _is_sent(self, request: RemoteRequest, result: FetchResult) -> bool:
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
