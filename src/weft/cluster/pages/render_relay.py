"""The brain's side of the `render` queues: to the engine it is a browser process, at the other end of a socket.

One thread reads the engine's orders and answers, gives each page to a hand that has room, and ends what is overdue; one
receives the hands' questions and pages. A page that a hand has lost ends at its task's deadline, because the hand may
load parts until then, and is requested again.
"""

from __future__ import annotations

import hashlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from weft import urls
from weft.cluster.dispatch import Cluster
from weft.cluster.pages.kept_bodies import read_kept
from weft.cluster.pages.render_messages import (
    ANSWERS_KEPT_S,
    QUESTION,
    RESULT,
    TASK,
    VERDICT,
    PageRendered,
    PartAnswered,
    PartAsked,
    RenderTask,
    results_key,
    verdicts_key,
)
from weft.cluster.signing import RefusedMessage, new_id
from weft.errors import BadInput, ServerAway, ServerFull, WeftError
from weft.fetch.browser.messages import (
    LONGEST,
    CancelRender,
    HostSettings,
    PartQuestion,
    PartVerdict,
    RenderedPage,
    RenderOrder,
    ToEngine,
    for_host,
    packed,
)
from weft.fetch.remote.contract import HandFacts
from weft.fetch.remote.messages import INLINE_BYTES, LargeBody
from weft.fetch.remote.routing import Routing
from weft.frames import frames
from weft.telemetry import Log

POLL_S = 0.25
RECEIVE_S = 1
TOGETHER = 50
QUEUED_S = 15.0  # that a task may wait at its hand, which has room for it
LEAST_S = 3.0  # with less time than this left, no hand gets the page
LONGEST_S = 120.0  # of a task
MARGIN = 5  # this part of a task's time is left when its browser must have ended
log = Log("weft.cluster.pages.render_relay")


class RenderBrain(Protocol):
    """What a relay needs of its brain."""

    slot: str

    @property
    def epoch(self) -> int:
        """Of this process; 0: none yet."""

    def broker_ms(self) -> float:
        """The broker's time, or a little less."""

    def renderers(self) -> Mapping[str, HandFacts]:
        """The hands that render; `concurrency` of them are browsers."""

    def publish(self, kind: str, text: str, hand: str, id_: str) -> None:
        """Sends a task to a hand. ServerAway."""


class RenderOut(Struct):
    """A page that a hand has."""

    number: int
    id: str
    hand: str
    host: str
    deadline: float


class RenderRelay:
    """All pages that are rendered for one process."""

    def __init__(self, brain: RenderBrain, make: Callable[[], Cluster], most_bytes: int, shared: Path | None) -> None:
        """`make`: opens a connection to the cluster, of its own. `shared`: the shared folder."""
        self._brain, self._cluster, self._clock = brain, make(), time.monotonic
        self._most_bytes, self._shared = most_bytes, shared
        self.engine_end, self._sock = socket.socketpair()
        self._waiting: deque[tuple[RenderOrder, float]] = deque()
        self._out: dict[str, RenderOut] = {}
        self._tasks: dict[int, str] = {}  # by the engine's number
        self._routing = Routing(1)
        self._dns_servers: tuple[str, ...] = ()
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._is_closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"weft-{name}", daemon=True)
            for name, work in (("renders", self._serve), ("rendered", self._receive))
        ]
        self._received = bytearray()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads; what is out is lost."""
        self._is_closed.set()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(RECEIVE_S + 5.0)
        self._sock.close()
        self._cluster.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        while not self._is_closed.is_set():
            try:
                work()
            except (ServerAway, ServerFull) as error:
                log.debug("the broker cannot be asked about pages", why=str(error))
                self._is_closed.wait(POLL_S)
            except Exception:
                log.error("a thread for rendering failed", exc_info=True)
                self._is_closed.wait(POLL_S)

    # ── the engine's side ──────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        readable, _, _ = select.select([self._sock], [], [], POLL_S)
        if readable:
            data = self._sock.recv(1 << 20)
            if not data:  # the engine has closed its end
                self._is_closed.set()
                return
            self._received += data
            for frame in frames(self._received, LONGEST):
                self._handle(for_host(frame))
        self._end_overdue()
        self._dispatch()

    def _handle(self, message: RenderOrder | CancelRender | PartVerdict | HostSettings) -> None:
        match message:
            case HostSettings():
                self._dns_servers = tuple(message.dns_servers)
            case RenderOrder():
                self._waiting.append((message, self._clock() + message.left_s))
            case CancelRender(number):
                self._waiting = deque(one for one in self._waiting if one[0].number != number)
                with self._lock:
                    task = self._tasks.pop(number, "")
                if task:  # its hand stays taken until it has ended
                    self._answer(PartAnswered(task, is_cancelled=True))
            case PartVerdict(number, question, refused):
                with self._lock:
                    task = self._tasks.get(number, "")
                if task:
                    self._answer(PartAnswered(task, question, refused))

    def _tell(self, message: ToEngine) -> None:
        with self._writing, suppress(OSError):
            self._sock.sendall(packed(message))

    # ── hands ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _dispatch(self) -> None:
        while self._waiting:
            order, until = self._waiting[0]
            left_s = min(until - self._clock(), LONGEST_S)
            if left_s < LEAST_S:
                self._waiting.popleft()
                self._tell(RenderedPage(order.number, error="busy", detail="no worker had room for it in time"))
                continue
            hand = self._choose(order)
            if not hand or not self._brain.epoch:
                return
            self._waiting.popleft()
            try:
                self._send(order, hand, left_s)
            except (ServerAway, ServerFull):
                self._waiting.appendleft((order, until))
                raise

    def _choose(self, order: RenderOrder) -> str:
        """A hand with a free browser: the one that has the page's host if it can, always where there are cookies."""
        hands, now = self._brain.renderers(), self._clock()
        free = [name for name, facts in hands.items() if self._routing.out[name] < facts.concurrency]
        has_secrets = bool(order.cookies or order.storage)
        self._routing.limit = max((facts.concurrency for facts in hands.values()), default=1)
        return self._routing.choose(urls.host_of(order.url), free, now, keep=has_secrets)

    def _send(self, order: RenderOrder, hand: str, left_s: float) -> None:
        brain, cluster, now = self._brain, self._cluster, self._clock()
        id_ = new_id()
        begin_s = min(QUEUED_S, left_s / 2)
        data, large = msgspec.json.encode(order), None
        if len(data) > INLINE_BYTES:
            large = LargeBody(len(data), hashlib.sha256(data).hexdigest())
            if not cluster.broker.put_body(f"{id_}-order", data, self._most_bytes, 0.0):
                raise ServerFull(f"{cluster.broker.where}: has no room for a page that is to be rendered")
            data = b""
        task = RenderTask(
            brain.slot, brain.epoch, (id_,), left_s - begin_s, left_s / MARGIN, self._most_bytes, data, large,
            self._shared is not None, self._dns_servers,
        )  # fmt: skip
        made_ms = int(brain.broker_ms())
        text = cluster.signer.sign(
            TASK, msgspec.to_builtins(task), made_ms=made_ms, until_ms=made_ms + int(1000 * begin_s), id_=id_
        )
        with self._lock:
            self._out[id_] = RenderOut(order.number, id_, hand, urls.host_of(order.url), now + left_s)
            self._tasks[order.number] = id_
            self._routing.out[hand] += 1
        try:
            brain.publish(TASK, text, hand, id_)
        except (
            ServerAway,
            ServerFull,
        ):  # it may have come all the same: none of its questions is answered
            with self._lock:
                self._forget(self._out[id_])
            self._tell(RenderedPage(order.number, error="busy", detail="the broker was away"))

    def _forget(self, out: RenderOut) -> None:
        self._out.pop(out.id, None)
        if self._tasks.get(out.number) == out.id:
            del self._tasks[out.number]
        self._routing.out[out.hand] -= 1

    def _end_overdue(self) -> None:
        now = self._clock()
        with self._lock:
            overdue = [one for one in self._out.values() if one.deadline <= now]
            for one in overdue:
                self._forget(one)
                self._routing.failed(one.hand, "lost", now)
        for one in overdue:
            log.warning("a worker has lost a page", hand=one.hand, host=one.host)
            self._tell(RenderedPage(one.number, error="busy", detail=f"worker {one.hand}: no page until its deadline"))

    def _answer(self, answer: PartAnswered) -> None:
        brain, cluster = self._brain, self._cluster
        made_ms = int(brain.broker_ms())
        text = cluster.signer.sign(
            VERDICT, msgspec.to_builtins(answer), made_ms=made_ms, until_ms=made_ms + 1000 * ANSWERS_KEPT_S
        )
        key = cluster.broker.key(verdicts_key(answer.id))
        try:
            with cluster.broker.asking(), cluster.broker.client.pipeline(transaction=False) as steps:
                steps.rpush(key, text)
                steps.expire(key, ANSWERS_KEPT_S)
                steps.execute()
        except WeftError as error:  # the part waits until the page's time is over
            log.warning("an answer about a part is lost", why=str(error))

    # ── what hands say ─────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self) -> None:
        broker = self._cluster.broker
        with broker.asking():
            key = broker.key(results_key(self._brain.slot))
            first: Any = broker.client.blpop([key], timeout=RECEIVE_S)
            more: Any = broker.client.lpop(key, TOGETHER) if first else None
        for text in (*((first[1],) if first else ()), *(more or ())):
            try:
                self._said(text.decode("utf-8", "replace"))
            except (RefusedMessage, msgspec.ValidationError, BadInput) as error:
                reason = error.reason if isinstance(error, RefusedMessage) else "malformed"
                log.warning("a message about a page was refused", reason=reason, why=str(error)[:300])
                with suppress(WeftError):
                    broker.count_for("brain", {f"render-result:refused:{reason}": 1})

    def _said(self, text: str) -> None:
        message = self._cluster.signer.verify_any(text, (QUESTION, RESULT))
        told: PartAsked | PageRendered
        if message.kind == QUESTION:
            told = msgspec.convert(message.body, PartAsked)
        else:
            told = msgspec.convert(message.body, PageRendered)
        if (told.slot, told.epoch) != (self._brain.slot, self._brain.epoch):
            raise RefusedMessage("epoch", "it is for a former brain")
        with self._lock:
            out = self._out.get(told.id)
            if out is None or out.hand != told.hand:
                raise RefusedMessage("unexpected_result", "nobody waits for it")
            is_wanted = self._tasks.get(out.number) == out.id
        if isinstance(told, PartAsked):
            if is_wanted:
                self._tell(PartQuestion(out.number, told.question, told.url, told.kind, told.is_page))
            return
        self._ended(out, told, is_wanted=is_wanted)

    def _ended(self, out: RenderOut, told: PageRendered, *, is_wanted: bool) -> None:
        data: bytes | None = told.page
        if told.large is not None:
            data = read_kept(self._cluster.broker, self._shared, told.id, told.large)
        with self._lock:
            self._forget(out)
            self._routing.reached(out.hand, out.host, self._clock())
        if data is None:
            log.warning("a rendered page is lost", id=told.id)
            page = RenderedPage(out.number, error="busy", detail="its page was lost on the way")
        else:
            page = msgspec.json.decode(data, type=RenderedPage)
            page = msgspec.structs.replace(page, number=out.number, uncounted=False)
        if is_wanted:
            self._tell(page)
