"""The client for asyncio: the calls of `Weft` as coroutines and async iterators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self, TypeVar

from weft.client.calls import Awaiting, CallRequest, Many, OperationResult, Operations
from weft.client.errors import ClientError
from weft.client.wire import HttpExchange

T = TypeVar("T")


class AsyncWeft(Operations, Awaiting):
    """The asyncio client of the scrape service; see `Weft` for its calls and arguments."""

    async def __aenter__(self) -> Self:
        """Supports `async with`; there is nothing to close, because each call opens its own connection."""
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def run(self, steps: Many[T]) -> AsyncIterator[T]:
        """Runs the steps of an operation, and yields its results."""
        exchange: HttpExchange | None = None
        reply: Any = None
        try:
            while True:
                try:
                    step = steps.throw(reply) if isinstance(reply, ClientError) else steps.send(reply)
                except StopIteration:
                    return
                reply = None
                try:
                    if isinstance(step, OperationResult):
                        yield step.value
                    elif isinstance(step, float):
                        await asyncio.sleep(step)
                    elif isinstance(step, CallRequest):
                        if exchange is not None:
                            exchange.close()
                        exchange = HttpExchange(self.service, step.timeout_s)
                        reply = await exchange.begin(step)
                    elif exchange is not None:
                        reply = await exchange.read()
                except ClientError as error:
                    reply = error
        finally:
            steps.close()
            if exchange is not None:
                exchange.close()
