"""The transfers of one process of a hand: those of all its tasks together, by one thread, so that a task whose page
hangs holds up no other. Results are sent by a second thread: a broker that is silent holds up no transfer, so each is
ended at its time.

Clients are kept between tasks, for their connections. A process has room for HANDLES requests, those included whose
results could not be sent yet; a task for which there is no room waits. When the process ends, it waits for what it has
begun (`drain`). A process whose thread fails ends: its requests are lost, as those of one that is killed.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from weft.bodies import Spool
from weft.cluster.pages.result_sender import ResultSender
from weft.cluster.tasks import hand_clock
from weft.config import FetchSection
from weft.engine.transports.transports import address_refusal
from weft.fetch.curl.client import Client
from weft.fetch.remote.messages import RemoteRequest
from weft.records import FetchResult
from weft.telemetry import Log

HANDLES = 64
CLIENTS = 4
POLL_S = 0.25
log = Log("weft.cluster.pages.transfer_loop")


class TransferOwner(Protocol):
    """Whose requests they are."""

    @property
    def until(self) -> float:
        """When its last transfer must have ended, by `hand_clock`."""

    def settle(self, request: RemoteRequest, result: FetchResult) -> bool:
        """Sends a result; False: try again."""


class _Begun(NamedTuple):
    owner: TransferOwner
    request: RemoteRequest


class _Ended(NamedTuple):
    begun: _Begun
    result: FetchResult


class _Batch(NamedTuple):
    owner: TransferOwner
    section: FetchSection
    requests: list[RemoteRequest]


class TransferLoop:
    """See the module."""

    _of_process: TransferLoop | None = None

    def __init__(self, folder: Path) -> None:
        """`folder`: for bodies that are too large for memory."""
        self._folder = folder
        self._clients: OrderedDict[bytes, Client] = OrderedDict()  # the one used last at the end
        self._new: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._event, select.EPOLLIN)
        self._room = threading.Condition()
        self._held = 0  # requests that were begun, and whose results are not settled
        self._sender: ResultSender[_Ended] = ResultSender(self._is_settled, float("inf"))
        threading.Thread(target=self._run, name="weft-transfers", daemon=True).start()

    @classmethod
    def of_process(cls, folder: Path) -> TransferLoop:
        """This process's."""
        if cls._of_process is None:
            cls._of_process = cls(folder)
        return cls._of_process

    @classmethod
    def drain(cls) -> None:
        """Waits until all that this process has begun is settled."""
        if (one := cls._of_process) is not None:
            with one._room:
                one._room.wait_for(lambda: not one._held)

    def begin(self, owner: TransferOwner, section: FetchSection, requests: list[RemoteRequest]) -> None:
        """Begins the requests of a task when there is room for them."""
        if not requests:
            return
        with self._room:
            self._room.wait_for(lambda: not self._held or self._held + len(requests) <= HANDLES)
            self._held += len(requests)
        self._new.put(_Batch(owner, section, requests))
        os.eventfd_write(self._event, 1)

    def _run(self) -> None:
        try:
            while True:
                self._work()
        except Exception:
            log.error("the transfers of a process failed", exc_info=True)
            os._exit(1)

    def _work(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        with suppress(queue.Empty):
            while True:
                self._submit(self._new.get_nowait())
        wait_s = POLL_S
        for client in self._clients.values():
            for begun, result in client.poll(0.0):
                assert isinstance(begun, _Begun)
                self._sender.put(_Ended(begun, result))
            if (left_s := client.timeout_s()) is not None:
                wait_s = min(wait_s, left_s)
        self._epoll.poll(wait_s)

    def _submit(self, batch: _Batch) -> None:
        client, until = self._client_of(batch.section), batch.owner.until
        for request in batch.requests:
            client.submit(
                request.url, request.headers, _Begun(batch.owner, request), keep_bytes=request.keep_bytes, until=until,
                filtered=request.filtered, is_first=request.is_first, body=request.body, method=request.method,
                timeout_s=request.timeout_s,
            )  # fmt: skip

    def _client_of(self, section: FetchSection) -> Client:
        key = msgspec.msgpack.encode(section, order="deterministic")
        client = self._clients.pop(key, None)
        if client is None:
            spool = Spool(section.body_memory_bytes, self._folder)
            client = Client(section, refusal=address_refusal(section), handles=HANDLES, clock=hand_clock, spool=spool)
            self._epoll.register(client.fileno(), select.EPOLLIN)
        self._clients[key] = client
        self._close_unused()
        return client

    def _close_unused(self) -> None:
        """Closes the clients that were not used lately, and have no transfers."""
        for key, client in list(self._clients.items())[:-CLIENTS]:
            if not client.in_flight and not client.timeout_s():
                del self._clients[key]
                client.close()

    def _is_settled(self, ended: _Ended) -> bool:
        try:
            if not ended.begun.owner.settle(ended.begun.request, ended.result):
                return False
        except Exception:
            log.error("a result is lost", exc_info=True, id=ended.begun.request.id)
        with self._room:
            self._held -= 1
            self._room.notify_all()
        return True
