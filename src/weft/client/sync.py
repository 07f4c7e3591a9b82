"""The blocking client: each call returns when it has its answer."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from weft.client.calls import Blocking, CallRequest, Many, OperationResult, Operations, ReplyHead, ServiceAddress
from weft.client.errors import ClientError, NoAnswer

T = TypeVar("T")


class Weft(Operations, Blocking):
    """A scrape service. While it is unavailable, calls retry for at most `patience` seconds."""

    def __enter__(self) -> Self:
        """Supports `with`; there is nothing to close, because each call opens its own connection."""
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(self, steps: Many[T]) -> Iterator[T]:
        """Runs the steps of an operation, and yields its results."""
        exchange: _BlockingExchange | None = None
        reply: Any = None
        try:
            while True:
                step = steps.throw(reply) if isinstance(reply, ClientError) else steps.send(reply)
                reply = None
                try:
                    if isinstance(step, OperationResult):
                        yield step.value
                    elif isinstance(step, float):
                        time.sleep(step)
                    elif isinstance(step, CallRequest):
                        if exchange is not None:
                            exchange.close()
                        exchange = _BlockingExchange(self.service, step.timeout_s)
                        reply = exchange.begin(step)
                    elif exchange is not None:
                        reply = exchange.read()
                except ClientError as error:
                    reply = error
        except StopIteration:
            return
        finally:
            steps.close()
            if exchange is not None:
                exchange.close()


class _BlockingExchange:
    """One HTTP request and its answer."""

    def __init__(self, service: ServiceAddress, timeout_s: float) -> None:
        kind = http.client.HTTPSConnection if service.is_tls else http.client.HTTPConnection
        self._url = service.url
        self._connection = kind(service.host, service.port, timeout=timeout_s)
        self._response: Any = None

    def begin(self, ask: CallRequest) -> ReplyHead:
        """Sends the request, and reads the head of its answer."""

        def work() -> ReplyHead:
            self._connection.putrequest(ask.method, ask.target, skip_host=True, skip_accept_encoding=True)
            for name, value in ask.headers.items():
                self._connection.putheader(name, value)
            self._connection.endheaders(ask.body)
            self._response = self._connection.getresponse()
            headers = {name.lower(): value for name, value in self._response.getheaders()}
            return ReplyHead(self._response.status, headers)

        return self._run_guarded(work)

    def read(self) -> bytes:
        """The next piece of the body; empty at the end."""
        piece: bytes = self._run_guarded(lambda: self._response.read1(65536))
        if not piece and self._response.length:
            raise NoAnswer(self._url, "the connection broke")
        return piece

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _run_guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswer(self._url, reason) from error
