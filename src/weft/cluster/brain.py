"""The brain's side of a cluster, for one process: sends tasks to hands, receives results, knows which hands are there.

Three threads, so that the process's loop never waits for the broker: one holds the cluster and reads the hands'
reports, one sends, one receives. The broker's clock is known as an offset to this machine's, measured at each renewal,
and rounded so that a task seems to have less time, never more.

The epoch was raised when the constructor returned, or nothing is sent: results of an earlier process of this crawl are
refused, and so are its tasks that no hand has begun.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__
from weft.bodies import ALONE_BYTES, Body, FileBody
from weft.cluster.application import queue_name, queue_of
from weft.cluster.broker import is_private
from weft.cluster.dispatch import Cluster
from weft.cluster.hand_reports import LOST_S
from weft.cluster.pages.kept_bodies import read_kept
from weft.cluster.pages.render_relay import RenderRelay
from weft.cluster.signing import SCHEMA, RefusedMessage, new_id
from weft.cluster.tasks import task_name
from weft.config import ClusterSection
from weft.errors import BadInput, Busy, ServerAway, ServerFull, WeftError
from weft.fetch.remote.contract import HandFacts, RemoteArrival
from weft.fetch.remote.messages import FetchTask, RemoteResult
from weft.telemetry import Log

RENEW_S = 2.0
RECEIVE_S = 1
AGAIN_S = 0.5
STEP_MS = 1000.0  # by which a clock is not set back while it is merely adjusted
TOGETHER = 50
_HAND = re.compile(r"[a-z0-9-]{1,80}")
log = Log("weft.cluster.brain")
Order = tuple[Callable[[str, int], FetchTask], str, float]


class Brain:
    """See `fetch.remote.contract.HandDispatcher`."""

    def __init__(self, section: ClusterSection, folder: Path, slot: str, is_strict: bool) -> None:
        """BadInput without a usable key. With `is_strict` also BadInput or Busy where the broker can not be ours; one
        that is away is waited for by the threads."""
        self._cluster = cluster = Cluster.configured(section)
        self._shared = Path(section.shared_dir) / cluster.key.cluster_id if section.shared_dir else None
        self._section = section
        self.slot = slot
        self._owner = hashlib.sha256(f"{socket.gethostname()}\0{folder.resolve()}".encode()).hexdigest()[:24]
        self._facts = json.dumps({
            "schema": SCHEMA, "version": __version__, "host": socket.gethostname(), "pid": os.getpid(),
            "folder": str(folder.resolve()),
        })  # fmt: skip
        self._is_private = is_private(section.broker or "")
        self._epoch = 0
        self._offset_ms = 0.0  # the broker's time less this machine's
        self._trouble = "the broker was not asked yet"
        self._hands: dict[str, HandFacts] = {}
        self._renderers: dict[str, HandFacts] = {}
        self._relay: RenderRelay | None = None
        self._refused: set[str] = set()  # hands that were logged
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._arrivals: queue.SimpleQueue[RemoteArrival] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_closed = threading.Event()
        try:
            cluster.broker.check()
            self._renew()
        except (ServerAway, ServerFull, BadInput, Busy) as error:
            if is_strict and isinstance(error, BadInput | Busy):
                cluster.close()
                raise
            self._trouble = str(error)
            log.warning("workers cannot be asked", why=self._trouble)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"weft-{work.__name__.strip('_')}", daemon=True)
            for work in (self._hold, self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_private(self) -> bool:
        """Whether the broker is asked over TLS, or on this machine."""
        return self._is_private

    def fileno(self) -> int:
        """Readable when `arrivals` has something."""
        return self._event

    def arrivals(self) -> list[RemoteArrival]:
        """The results that have come since the last call."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        come = list[RemoteArrival]()
        with suppress(queue.Empty):
            while True:
                come.append(self._arrivals.get_nowait())
        return come

    def hands(self) -> Mapping[str, HandFacts]:
        """The hands that are there; the mapping is not changed any more."""
        return self._hands

    def renderers(self) -> Mapping[str, HandFacts]:
        """The hands that render, with their browsers as `concurrency`; the mapping is not changed any more."""
        return self._renderers

    def browsers(self) -> socket.socket:
        """A connection to them, as to a browser process."""
        if self._relay is None:
            section = self._section
            self._relay = RenderRelay(self, lambda: Cluster.configured(section), section.bytes_, self._shared)
        return self._relay.engine_end

    @property
    def epoch(self) -> int:
        """Of this process; 0: none yet."""
        return self._epoch

    def broker_ms(self) -> float:
        """The broker's time, or a little less."""
        return self._offset_ms + 1000 * time.monotonic()

    def trouble(self) -> str:
        """Why nothing can be sent now."""
        return self._trouble

    def task(self, make: Callable[[str, int], FetchTask], hand: str, start_by: float) -> None:
        """Sends a task to a hand, by the thread for that."""
        self._orders.put((make, hand, start_by))

    def count(self, name: str) -> None:
        """Counts something that was refused; a broker that is away does not hear of it."""
        self._orders.put((_counting, name, 0.0))

    def close(self) -> None:
        """Gives the cluster back: hands begin nothing more of what they were sent."""
        self._is_closed.set()
        if self._relay is not None:
            self._relay.close()
        self._orders.put(None)
        for thread in self._threads:
            thread.join(RECEIVE_S + 5.0)
        with suppress(WeftError):
            self._cluster.broker.release(self._owner, self.slot)
        self._cluster.close()
        os.close(self._event)

    # -- the threads

    def _guarded(self, work: Callable[[], None]) -> None:
        """One pass after the other; what goes wrong at the broker is its trouble, and tried again."""
        while not self._is_closed.is_set():
            try:
                work()
            except (ServerAway, ServerFull, BadInput, Busy) as error:
                self._note_trouble(str(error))
                self._is_closed.wait(AGAIN_S)
            except Exception:
                log.error("a thread of the brain failed", exc_info=True)
                self._is_closed.wait(AGAIN_S)

    def _note_trouble(self, why: str) -> None:
        if why != self._trouble:
            log.warning("workers cannot be asked", why=why)
        self._trouble = why

    def _hold(self) -> None:
        self._renew()
        self._is_closed.wait(RENEW_S)

    def _renew(self) -> None:
        broker = self._cluster.broker
        before = time.monotonic()
        hold = broker.hold(self._owner, self._facts, self.slot, self._epoch)
        offset_ms = hold.now_ms - 1000 * time.monotonic()
        if self._epoch and (back_ms := self._offset_ms - (hold.now_ms - 1000 * before)) > STEP_MS:
            # Tasks that no hand has begun would seem to have more time than we wait for them.
            log.warning("the broker's clock was set back: what is out is lost", by_s=round(back_ms / 1000, 1))
            hold = broker.hold(self._owner, self._facts, self.slot)
        self._offset_ms = offset_ms
        if hold.epoch != self._epoch:
            log.info("the cluster is held", cluster=broker.cluster_id, epoch=hold.epoch, before=self._epoch)
            self._epoch = hold.epoch
        self._read_hands()
        if self._trouble:
            log.info("workers can be asked", hands=len(self._hands))
        self._trouble = ""

    def _read_hands(self) -> None:
        broker, present, renderers = self._cluster.broker, dict[str, HandFacts](), dict[str, HandFacts]()
        for name, age_s, text in broker.reports():
            if age_s >= LOST_S:
                continue
            try:
                body = self._cluster.signer.verify(text, "report").body
                if body.get("hand") != name or not _HAND.fullmatch(name):
                    raise RefusedMessage("foreign", "its report is another's")
            except RefusedMessage as error:
                if name not in self._refused:
                    self._refused.add(name)
                    log.warning("a hand is refused", hand=name[:80], why=str(error))
                    broker.refuse_hand(f"hand {name[:80]}: {error}")
                continue
            if "fetch" in body.get("queues", ()):
                present[name] = HandFacts(name, int(body.get("concurrency", 1)))
            if "render" in body.get("queues", ()):
                renderers[name] = HandFacts(name, int(body.get("browsers", 1)))
        for gone in (self._hands.keys() | self._renderers.keys()) - (present.keys() | renderers.keys()):
            log.warning("a hand is gone", hand=gone)
            with broker.asking():
                broker.client.delete(*(queue_name(broker.cluster_id, kind, gone) for kind in ("fetch", "render")))
        self._hands, self._renderers = present, renderers

    def _send(self) -> None:
        try:
            order = self._orders.get(timeout=RECEIVE_S)
        except queue.Empty:
            return
        if order is None:
            return
        make, hand, start_by = order
        if make is _counting:
            self._cluster.broker.count_for("brain", {hand: 1})
            return
        task = make(self.slot, self._epoch)
        until_ms = int(self._offset_ms + 1000 * start_by)
        id_ = new_id()
        text = self._cluster.signer.sign(
            "fetch", msgspec.to_builtins(task), made_ms=int(self._offset_ms + 1000 * time.monotonic()),
            until_ms=until_ms, id_=id_,
        )  # fmt: skip
        while not self._is_closed.is_set() and time.monotonic() < start_by:
            try:
                self.publish("fetch", text, hand, id_)
            except (ServerAway, ServerFull) as error:  # it may have come all the same: a task is claimed once
                self._note_trouble(str(error))
                self._is_closed.wait(AGAIN_S)
            else:
                return

    def publish(self, kind: str, text: str, hand: str, id_: str) -> None:
        """Sends a task to a hand; ServerAway, ServerFull."""
        from kombu.exceptions import OperationalError

        cluster = self._cluster
        try:
            with cluster.broker.asking():
                cluster.application.send_task(
                    task_name(kind), args=(text,), task_id=id_, queue=queue_of(cluster.key.cluster_id, kind, hand),
                    ignore_result=True, retry=False,
                )  # fmt: skip
        except OperationalError as error:
            raise ServerAway(f"{cluster.broker.where}: {error}") from None

    def _receive(self) -> None:
        broker = self._cluster.broker
        with broker.asking():
            key = broker.key(f"results:{self.slot}")
            first: Any = broker.client.blpop([key], timeout=RECEIVE_S)
            more: Any = broker.client.lpop(key, TOGETHER) if first else None
        if not first:
            return
        for text in (first[1], *(more or ())):
            self._received(text.decode("utf-8", "replace"))
        os.eventfd_write(self._event, 1)

    def _received(self, text: str) -> None:
        at = time.monotonic()
        try:
            message = self._cluster.signer.verify(text, "fetch-result")
            result = msgspec.convert(message.body, RemoteResult)
            if (result.slot, result.epoch) != (self.slot, self._epoch):
                raise RefusedMessage("epoch", "it is for a former brain")
            if result.id != message.id:
                raise RefusedMessage("foreign_result", "it is another request's result")
        except (RefusedMessage, msgspec.ValidationError) as error:
            reason = error.reason if isinstance(error, RefusedMessage) else "malformed"
            log.warning("a result was refused", reason=reason, why=str(error)[:300])
            self.count(f"fetch-result:refused:{reason}")
            return
        self._arrivals.put(RemoteArrival(result, self._body(result), at))

    def _body(self, result: RemoteResult) -> Body | None:
        """The body of a result; None if it is gone, or not what was signed."""
        if (large := result.large) is None:
            return result.body
        data = read_kept(self._cluster.broker, self._shared, result.id, large)
        if data is None:
            log.warning("a body is lost", id=result.id, size=large.size)
            self.count("fetch-result:refused:body")
            return None
        return data if len(data) <= ALONE_BYTES else _in_a_file(data)


def connect(section: ClusterSection, folder: Path, slot: str, is_strict: bool) -> Brain:
    """The entry point by which an engine finds its hands."""
    return Brain(section, folder, slot, is_strict)


def _counting(_slot: str, _epoch: int) -> FetchTask:
    raise AssertionError("it marks an order that counts something")


def _in_a_file(data: bytes) -> FileBody:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        return FileBody(os.dup(file.fileno()), 0, len(data))
