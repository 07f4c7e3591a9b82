"""The task of a `render` queue: has one page rendered by this process's browser, and asks the brain about its parts.

The browser process is the one that an engine has (`fetch.browser.host`); it is kept between tasks, and ends with this
process. When a task's time is over it is killed, so that nothing is requested after that.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import msgspec
from msgspec import Struct

from weft.cluster.pages.kept_bodies import BodyStore, read_kept
from weft.cluster.pages.render_messages import (
    QUESTION,
    RESULT,
    VERDICT,
    PageRendered,
    PartAnswered,
    PartAsked,
    RenderTask,
    results_key,
    verdicts_key,
)
from weft.cluster.pages.result_sender import ResultSender
from weft.cluster.signing import RefusedMessage
from weft.cluster.tasks import HandSide, hand_clock, profiles_of
from weft.errors import BadInput, Missing, ServerAway, ServerFull, WeftError
from weft.fetch.browser.chromium import chromium_path
from weft.fetch.browser.messages import (
    LONGEST,
    CancelRender,
    HostSettings,
    PartQuestion,
    PartVerdict,
    RenderedPage,
    RenderOrder,
    ToHost,
    for_engine,
    packed,
)
from weft.frames import frames
from weft.telemetry import Log

POLL_S = 0.25
ANSWER_S = 1
RESULTS_KEPT_S = 600
LATE = "its worker's time is over"
log = Log("weft.cluster.pages.render_task")


def trouble() -> str:
    """Why this machine renders nothing; empty if it does."""
    try:
        chromium_path()
    except Missing as why:
        return str(why)
    return ""


def run(body: dict[str, Any], side: HandSide) -> Mapping[str, Any]:
    """What became of the page: it goes its own way."""
    try:
        task = msgspec.convert(body, RenderTask)
        order = _order_of(task, side)
    except msgspec.DecodeError as error:  # an invalid value, too
        raise BadInput(f"a task of a page is not as it should be: {error}") from None
    page = RenderRun(task, side, HandBrowser.kept(task, side)).run(order)
    return {"rendered": int(not page.error), "failed": int(bool(page.error))}


def _order_of(task: RenderTask, side: HandSide) -> RenderOrder:
    data: bytes | None = task.order
    if task.large is not None:
        folder = side.shared_dir / side.broker.cluster_id if side.shared_dir is not None else None
        data = read_kept(side.broker, folder, f"{task.claims[0]}-order", task.large)
        if data is None:
            raise BadInput("the page of a task is lost")
    return msgspec.json.decode(data or b"", type=RenderOrder)


class HandBrowser:
    """The browser process of one process of a hand."""

    _kept: HandBrowser | None = None

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        self.sock, there = socket.socketpair()
        argv = [sys.executable, "-m", "weft.fetch.browser.host", str(there.fileno())]
        with there:
            self._process = subprocess.Popen(argv, pass_fds=[there.fileno()], start_new_session=True)  # noqa: S603
        self.received = bytearray()
        self.number = 0
        self.send(settings)

    @classmethod
    def kept(cls, task: RenderTask, side: HandSide) -> HandBrowser:
        """This process's, started if there is none, or one with other settings."""
        settings = HostSettings(
            chromium_path(), str(Path(gettempdir()) / f"{profiles_of(side.hand)}{os.getpid()}"), max_browsers=1,
            pages_per_browser=1,
            sandbox=side.browser_sandbox, dns_servers=task.dns_servers,
        )  # fmt: skip
        known = cls._kept
        if known is None or known.settings != settings or known.has_ended:
            if known is not None:
                known.kill()
            cls._kept = known = cls(settings)
        return known

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def send(self, message: ToHost) -> None:
        """Sends a message; a process that is gone does not get it."""
        with suppress(OSError):
            self.sock.sendall(packed(message))

    def kill(self) -> None:
        """Ends the process, and its browsers with it."""
        self._process.kill()
        self._process.wait()
        self.sock.close()
        if HandBrowser._kept is self:
            HandBrowser._kept = None


class _Sent(Struct):
    """A message for the brain; a page is signed when it is sent, because its age counts."""

    asked: PartAsked | None = None
    page: bytes = b""
    ended: float = 0.0


class RenderRun:
    """The rendering of one page."""

    def __init__(self, task: RenderTask, side: HandSide, browser: HandBrowser) -> None:
        self._task, self._side, self._browser = task, side, browser
        self._id = task.claims[0]
        self._deadline = side.deadline + task.run_s
        self._bodies = BodyStore(side, task.most_bytes, is_shared=task.is_shared)
        self._asked: set[int] = set()  # questions without an answer
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        browser.number += 1
        self._number = browser.number

    def run(self, order: RenderOrder) -> RenderedPage:
        """Renders it, and sends the page."""
        sender = ResultSender(self._is_sent, self._deadline)
        answers = threading.Thread(target=self._read_answers, name="weft-verdicts", daemon=True)
        answers.start()
        try:
            left_s = self._deadline - self._task.margin_s - hand_clock()
            self._browser.send(msgspec.structs.replace(order, number=self._number, left_s=left_s))
            page = self._rendered(sender)
            sender.put(_Sent(page=msgspec.json.encode(page), ended=hand_clock()))
        finally:
            self._is_over.set()
            sender.finish()
        answers.join()
        return page

    def _rendered(self, sender: ResultSender[_Sent]) -> RenderedPage:
        """Reads what the browser process says, until the page is there, or its time is over."""
        browser, until = self._browser, self._deadline - self._task.margin_s / 2
        with select.epoll() as epoll:
            epoll.register(browser.sock.fileno(), select.EPOLLIN)
            while hand_clock() < until:
                if not epoll.poll(POLL_S):
                    continue
                data = browser.sock.recv(1 << 20)
                if not data:
                    browser.kill()
                    return RenderedPage(self._number, error="busy", detail="the worker's browser process has ended")
                browser.received += data
                for frame in frames(browser.received, LONGEST):
                    message = for_engine(frame)
                    if isinstance(message, PartQuestion) and message.number == self._number:
                        self._ask(message, sender)
                    elif isinstance(message, RenderedPage) and message.number == self._number:
                        return message
        browser.kill()
        return RenderedPage(self._number, error="timeout", detail="its worker's browser did not end in time")

    def _ask(self, question: PartQuestion, sender: ResultSender[_Sent]) -> None:
        task = self._task
        with self._lock:
            self._asked.add(question.question)
        sender.put(
            _Sent(
                PartAsked(
                    self._id, task.slot, task.epoch, self._side.hand, question.question, question.url, question.kind,
                    question.is_page,
                )
            )
        )  # fmt: skip

    # ── the broker ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_sent(self, sent: _Sent) -> bool:
        try:
            if sent.asked is not None:
                self._push(QUESTION, sent.asked)
                return True
            if (kept := self._bodies.keep(self._id, sent.page)) is None:
                return False
            age_s, task = hand_clock() - sent.ended, self._task
            self._push(RESULT, PageRendered(self._id, task.slot, task.epoch, self._side.hand, age_s, *kept))
        except (ServerAway, ServerFull) as error:
            log.warning("a message about a page waits for the broker", id=self._id, why=str(error))
            return False
        return True

    def _push(self, kind: str, body: Struct) -> None:
        side = self._side
        made_ms = side.message.until_ms - int(1000 * (side.deadline - hand_clock()))
        text = side.signer.sign(
            kind, msgspec.to_builtins(body), made_ms=made_ms, until_ms=made_ms + 1000 * RESULTS_KEPT_S
        )
        key = side.broker.key(results_key(self._task.slot))
        with side.broker.asking(), side.broker.client.pipeline(transaction=False) as steps:
            steps.rpush(key, text)
            steps.expire(key, RESULTS_KEPT_S)
            steps.execute()

    def _read_answers(self) -> None:
        side = self._side
        key = side.broker.key(verdicts_key(self._id))
        while not self._is_over.is_set():
            try:
                with side.broker.asking():
                    come: Any = side.broker.client.blpop([key], timeout=ANSWER_S)
                if come:
                    self._answered(come[1].decode("utf-8", "replace"))
            except RefusedMessage as error:
                log.warning("an answer was refused", reason=error.reason, why=str(error))
            except WeftError as error:
                log.warning("no answers can be read", id=self._id, why=str(error))
                self._is_over.wait(POLL_S)

    def _answered(self, text: str) -> None:
        """Passes an answer on, once, while there is time for the part."""
        body = self._side.signer.verify(text, VERDICT).body
        try:
            answer = msgspec.convert(body, PartAnswered)
        except msgspec.ValidationError as error:
            raise RefusedMessage("malformed", str(error)) from None
        if answer.id != self._id:
            raise RefusedMessage("foreign_result", "it is about another page")
        if answer.is_cancelled:
            self._browser.send(CancelRender(self._number))
            return
        with self._lock:
            if answer.question not in self._asked:
                raise RefusedMessage("replayed", "it was answered before")
            self._asked.remove(answer.question)
        is_late = hand_clock() >= self._deadline - self._task.margin_s
        self._browser.send(PartVerdict(self._number, answer.question, LATE if is_late else answer.refused))
