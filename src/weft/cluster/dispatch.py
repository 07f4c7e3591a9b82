"""One cluster as its brain and its supervisor use it: sends signed tasks, and opens signed results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.cluster.application import VISIBILITY_S, make_application, queue_name, queue_of
from weft.cluster.broker import Broker
from weft.cluster.key import ClusterKey, configured_broker, configured_key
from weft.cluster.signing import Message, RefusedMessage, Signer, new_id
from weft.cluster.tasks import task_name
from weft.config.cluster import ClusterSection
from weft.errors import Missing

try:
    from celery import Celery
    from celery.canvas import Signature, chain
    from celery.result import AsyncResult
except ImportError:
    raise Missing.of_extra("Celery", "cluster") from None


class Cluster:
    """The broker, the key and the application together. Safe under threads; each process makes its own."""

    def __init__(self, broker_url: str, key: ClusterKey, *, visibility_s: float = VISIBILITY_S) -> None:
        self.key = key
        self.broker = Broker(broker_url, key.cluster_id, visibility_s=visibility_s)
        self.signer = Signer(key)
        self.application: Celery = make_application(broker_url, key.cluster_id, visibility_s=visibility_s)

    @classmethod
    def configured(cls, section: ClusterSection) -> Cluster:
        """The cluster that the settings name; BadInput if they name none."""
        return cls(configured_broker(section), configured_key(section))

    def signature(self, kind: str, body: dict[str, Any], within_s: float, *, hand: str = "") -> Signature:
        """A task that counts for some seconds from now, for `apply_async`, a chain or a chord."""
        id_ = new_id()
        made_ms = self.broker.now_ms()
        text = self.signer.sign(kind, body, made_ms=made_ms, until_ms=made_ms + int(1000 * within_s), id_=id_)
        # By name, as a chain writes its tasks into messages; but a hand's queues are none of this application's.
        queue = queue_of(self.key.cluster_id, kind, hand) if hand else queue_name(self.key.cluster_id, kind)
        return self.application.signature(task_name(kind), args=(text,), options={"queue": queue, "task_id": id_})

    def send(self, kind: str, body: dict[str, Any], within_s: float, *, hand: str = "") -> AsyncResult:
        """Sends a task; `id` of what it gives is the message's id, too."""
        with self.broker.asking():
            return self.signature(kind, body, within_s, hand=hand).apply_async()

    def start(self, steps: Sequence[Signature]) -> str:
        """Sends a chain of tasks, or one; gives the last one's id. It waits for no result."""
        with self.broker.asking():
            result = chain(*steps, app=self.application).apply_async()
        last = str(result.id)
        detach(result)
        return last

    def opened(self, text: object, kind: str, id_: str = "") -> Message:
        """A result that is signed and of the task with this id; RefusedMessage otherwise, also if there is none."""
        if text is None:
            raise RefusedMessage("no_result", "the hand refused the task")
        message = self.signer.verify(text, f"{kind}-result")
        if id_ and message.id != id_:
            raise RefusedMessage("foreign_result", "it is another task's result")
        return message

    def heartbeat(self, timeout_s: float = 5.0, token: str = "") -> str:
        """Has any hand give a token back, and gives that hand's name; celery.exceptions.TimeoutError if none does."""
        token = token or new_id()
        sent = self.send("heartbeat", {"token": token}, timeout_s)
        with self.broker.asking():
            text = sent.get(timeout=timeout_s, disable_sync_subtasks=False)
        message = self.opened(text, "heartbeat", sent.id)
        if message.body.get("token") != token:
            raise RefusedMessage("foreign_result", "the token is not the one that was sent")
        return str(message.body.get("hand", ""))

    def close(self) -> None:
        """Closes all connections."""
        self.broker.close()
        self.application.close()


def detach(result: Any) -> None:
    """Has a result, and those that it knows of, ask the broker for nothing when they are thrown away: it may be gone,
    and Celery would write a traceback to standard error."""
    left = [result]
    while left:
        one = left.pop()
        if one is None:
            continue
        known = getattr(one, "_cache", None) or {}
        left += [one.parent, *getattr(one, "results", ()), *(known.get("children") or ())]
        if isinstance(one, AsyncResult):
            one.backend = None
