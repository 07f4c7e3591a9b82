"""Runs one task in a process of a hand: checks the message, claims it, calls the queue's function, signs the result.

What is refused is counted by its reason and has no result. What fails has one that says so: a chord whose member raises
would never call back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.cluster.broker import Broker, Claim
from weft.cluster.key import ClusterKey
from weft.cluster.signing import LONGEST_BYTES, Message, RefusedMessage, Signer
from weft.cluster.tasks import HandSide, TaskFunction, TaskKind, hand_clock, load
from weft.errors import ServerAway, ServerFull, WeftError
from weft.telemetry import Log

RESULT_KEPT_MS = 3_600_000
CLAIM_WITHIN_S = 30.0
CLAIM_REFUSALS = {"late": "its time is over", "clock": "it is of the future: the broker's clock was set back"}
_AGAIN_S = 0.5
log = Log("weft.cluster.running")


@dataclass(frozen=True, slots=True)
class HandSettings:
    """What a hand was started with."""

    broker: str
    key: ClusterKey
    hand: str
    folder: Path
    accept_code: bool = False
    visibility_s: float = 3600.0
    shared_dir: Path | None = None
    browser_sandbox: bool = True


class TaskRunner:
    """What the tasks of one process share; made in that process, at its first task."""

    def __init__(self, settings: HandSettings) -> None:
        self._settings = settings
        self._broker = Broker(settings.broker, settings.key.cluster_id, visibility_s=settings.visibility_s)
        self._signer = Signer(settings.key)
        self._folder = settings.folder / str(os.getpid())
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._functions: dict[str, TaskFunction] = {}

    def run(self, kind: TaskKind, arguments: Sequence[object]) -> str | None:
        """The signed result of a task, whose last argument is its message; None if it is refused."""
        began = time.monotonic()
        try:
            side = self._accepted(kind, arguments)
            body = self._called(kind, side)
        except RefusedMessage as error:
            log.warning("a task was refused", queue=kind.name, reason=error.reason, why=str(error))
            self._count(kind, f"refused:{error.reason}")
            return None
        self._count(kind, "failed" if "error" in body else "done", int(1000 * (time.monotonic() - began)))
        made_ms = side.message.until_ms - int(1000 * (side.deadline - hand_clock()))
        until_ms = made_ms + RESULT_KEPT_MS
        text = self._signer.sign(
            f"{kind.name}-result", dict(body), made_ms=made_ms, until_ms=until_ms, id_=side.message.id
        )
        if len(text) > LONGEST_BYTES:
            large = {"error": {"kind": "too_large", "message": f"its result has {len(text):,} characters"}}
            text = self._signer.sign(
                f"{kind.name}-result", large, made_ms=made_ms, until_ms=until_ms, id_=side.message.id
            )
        return text

    def _accepted(self, kind: TaskKind, arguments: Sequence[object]) -> HandSide:
        """Everything that the function is given; RefusedMessage if the message is foreign, late, or was here before."""
        message = self._signer.verify(arguments[-1] if arguments else None, kind.name)
        began = hand_clock()
        claim = self._claimed(kind, message)
        deadline = began + claim.left_s
        if claim.word == "late" and kind.hears_late:
            self._called(kind, self._side(message, claim, deadline))
        if claim.word != "ok":
            raise RefusedMessage(claim.word, CLAIM_REFUSALS.get(claim.word, "it is of a brain that is gone"))
        if kind.once and not any(claim.granted):
            raise RefusedMessage("replayed", "it was begun before")
        earlier = self._earlier(kind, arguments[0]) if len(arguments) > 1 else ()
        return self._side(message, claim, deadline, earlier)

    def _side(self, message: Message, claim: Claim, deadline: float, earlier: tuple[Message, ...] = ()) -> HandSide:
        settings = self._settings
        return HandSide(
            self._broker, self._signer, settings.hand, self._folder, settings.accept_code, message, claim.granted,
            deadline, settings.browser_sandbox, settings.shared_dir, earlier, claim.word == "late",
        )  # fmt: skip

    def _claimed(self, kind: TaskKind, message: Message) -> Claim:
        """A broker that is away for a moment does not cost a task."""
        body = message.body
        ids = [str(one) for one in body.get("claims") or [message.id]]
        until = time.monotonic() + CLAIM_WITHIN_S
        while True:
            try:
                return self._broker.claim(
                    ids, made_ms=message.made_ms, until_ms=message.until_ms, slot=str(body.get("slot", "")),
                    epoch=int(body.get("epoch", 0)), most=kind.tries,
                )  # fmt: skip
            except (ServerAway, ServerFull) as error:
                if time.monotonic() > until:
                    raise RefusedMessage("broker", str(error)) from None
                time.sleep(_AGAIN_S)

    def _earlier(self, kind: TaskKind, results: object) -> tuple[Message, ...]:
        """Results that a chain or chord hands on, of those that have one; a foreign one refuses the task."""
        texts = results if isinstance(results, list) else [results]
        kinds = [f"{name}-result" for name in (kind.name, *kind.after)]
        return tuple(self._signer.verify_any(text, kinds) for text in texts if text is not None)

    def _called(self, kind: TaskKind, side: HandSide) -> dict[str, Any]:
        if not all(side.granted) and not kind.once:
            why = f"it has ended its process {kind.tries} times"
            return {"error": {"kind": "tries", "message": why}}
        try:
            if kind.name not in self._functions:
                self._functions[kind.name] = load(kind)
            return dict(self._functions[kind.name](side.message.body, side))
        except WeftError as error:
            return {"error": {"kind": type(error).__name__, "message": str(error)}}
        except Exception as error:
            log.error("a task failed", exc_info=True, queue=kind.name, id=side.message.id)
            return {"error": {"kind": type(error).__name__, "message": str(error)[:1000]}}

    def _count(self, kind: TaskKind, word: str, took_ms: int = 0) -> None:
        counts = {f"{kind.name}:{word}": 1}
        if took_ms:
            counts[f"{kind.name}:ms"] = took_ms
        try:
            self._broker.count_for(self._settings.hand, counts)
        except WeftError as error:
            log.warning("a count was lost", queue=kind.name, word=word, why=str(error))
