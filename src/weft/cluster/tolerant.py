"""Celery's transport for Redis, except that a message which is none does not end the worker.

A process that may write to the broker can put anything into a queue. What is not JSON, not of Celery's form, too large
or not for a task of ours is dropped here, before it is decoded further or reaches a worker process, and counted.
Whether a message is signed is decided by the process that would run it (`running`).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from queue import Empty
from typing import Any

from weft.cluster.signing import LONGEST_BYTES
from weft.cluster.tasks import KINDS, task_name
from weft.errors import Missing
from weft.telemetry import Log

try:
    from kombu.transport import TRANSPORT_ALIASES, redis
except (ImportError, AttributeError):  # the second is how it fails without the client for Redis
    raise Missing.of_extra("Celery with its client for Redis", "cluster") from None

AGAIN_S = 1.0
log = Log("weft.cluster.tolerant")
REFUSED: Counter[str] = Counter()  # by reason, since the process started
_NAMES = frozenset(map(task_name, KINDS))
# JSON within JSON, in base64: what a message of the largest size has at most.
_LONGEST_BODY = 2 * LONGEST_BYTES


def install() -> None:
    """Has this process's connections to a broker use this transport."""
    for alias in ("redis", "rediss"):
        TRANSPORT_ALIASES[alias] = f"{__name__}:TolerantTransport"


def refusal(message: object) -> str:
    """Why a message of a queue is dropped; empty if it may be one of ours."""
    if not isinstance(message, dict):
        return "malformed"
    body, headers = message.get("body"), message.get("headers")
    if not isinstance(body, str) or not isinstance(headers, dict) or not isinstance(message.get("properties"), dict):
        return "malformed"
    if len(body) > _LONGEST_BODY:
        return "too_large"
    if message.get("content-type") != "application/json" or message.get("content-encoding") != "utf-8":
        return "content_type"
    if headers.get("task") not in _NAMES:
        return "unknown_task"
    return "malformed" if headers.get("eta") or headers.get("expires") else ""


class TolerantChannel(redis.Channel):  # type: ignore[misc]
    """Reads queues; a message that cannot be read is as if it had not been there."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            _refuse("malformed", error)
            raise Empty from None
        except self.ResponseError as error:  # else it ends the worker, also where a broker is read-only for a moment
            if "WRONGTYPE" in str(error):
                self._drop_foreign_keys()
            raise OSError(f"the broker answers: {error}") from None

    def _drop_foreign_keys(self) -> None:
        """Deletes what has the name of a queue and is none: nothing can be sent there until it is gone."""
        names = [self._q_for_pri(queue, step) for queue in self.active_queues for step in self.priority_steps]
        with suppress(self.ResponseError, OSError), self.conn_or_acquire() as client:
            for name in names:
                if client.type(name) not in (b"list", b"none"):
                    client.delete(name)
                    _refuse("wrong_type")


class TolerantTransport(redis.Transport):  # type: ignore[misc]
    """Hands messages on, of which some are dropped."""

    Channel = TolerantChannel
    # What the server refuses, as a read-only one does, is as a lost connection: tried again, and no worker's end.
    connection_errors = (*redis.Transport.connection_errors, *redis.Transport.channel_errors)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """As its base does; what the server refuses is asked for again a second later, which Celery does at once."""
        try:
            super().register_with_event_loop(connection, loop)
        except redis.Transport.channel_errors:
            time.sleep(AGAIN_S)
            raise

    def _deliver(self, message: Any, queue: str) -> None:
        # Of a queue; what goes to all (`ping`) is read by Celery alone, and is JSON as well.
        if queue.startswith("weft:") and (why := refusal(message)):
            _refuse(why)
            return
        super()._deliver(message, queue)


def _refuse(reason: str, error: BaseException | None = None) -> None:
    REFUSED[reason] += 1
    if (times := REFUSED[reason]).bit_count() == 1:  # the 1st, 2nd, 4th, …: a stranger does not fill the log
        why = type(error).__name__ if error else ""
        log.warning("a message of the broker was refused", reason=reason, error=why, times=times)
