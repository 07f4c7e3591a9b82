"""Asks the supervisor's own worker how it is: by Celery's ping, and by a heartbeat task that must come back.

The heartbeat goes over the queue that this worker alone reads, so that no other hand answers for it: a worker that is
alive, and consumes nothing since its connection broke, is seen. One whose slots are all taken by tasks cannot run a
heartbeat, and is healthy while it reports that. Everything here waits, within limits: it is asked from a thread.
"""

from __future__ import annotations

import socket
from typing import Any

from weft.cluster.application import queue_name
from weft.cluster.dispatch import Cluster, detach
from weft.cluster.hand_reports import LOST_S
from weft.cluster.key import ClusterKey
from weft.cluster.signing import RefusedMessage
from weft.cluster.supervised.cluster_figures import ClusterFigures, cluster_figures
from weft.cluster.supervised.ticks import WANTED
from weft.cluster.tasks import SYSTEM
from weft.errors import ServerAway, WeftError

PING_S = 2.0
HEARTBEAT_S = 5.0


class NotWell(WeftError):
    """Raised with the reason why the worker is not healthy."""


class HandHealth:
    """Of one worker process after the other; asked from one thread."""

    def __init__(self, broker_url: str, key: ClusterKey) -> None:
        self._url, self._key = broker_url, key
        self._cluster: Cluster | None = None

    def check(self, pid: int) -> None:
        """Returns if the worker with this pid is well; NotWell says why it is not."""
        try:
            self._check(pid, self._opened())
        except BaseException:
            self.close()  # a connection that something was lost on is not used again
            raise

    def cluster_metrics(self) -> ClusterFigures:
        """The metrics of the whole cluster."""
        try:
            return cluster_figures(self._opened())
        except WeftError as error:
            raise NotWell(str(error)) from None

    def wanted(self) -> set[str]:
        """What the scheduler's ticks want of the supervisor, once."""
        broker = self._opened().broker
        try:
            with broker.asking(), broker.client.pipeline() as steps:
                steps.hkeys(broker.key(WANTED))
                steps.delete(broker.key(WANTED))
                names, _ = steps.execute()
        except WeftError as error:
            raise NotWell(str(error)) from None
        return {name.decode("utf-8", "replace") for name in names}

    def close(self) -> None:
        """Closes the connections."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _opened(self) -> Cluster:
        if self._cluster is None:
            self._cluster = cluster = Cluster(self._url, self._key)
            conf = cluster.application.conf
            conf.broker_transport_options = {**conf.broker_transport_options, "socket_timeout": HEARTBEAT_S}
            conf.redis_socket_timeout = HEARTBEAT_S
        return self._cluster

    def _check(self, pid: int, cluster: Cluster) -> None:
        try:
            hand, report = self._hand(pid, cluster)
            self._ping(hand, cluster)
            if not self._heartbeat(cluster) and not _is_busy(report):
                raise NotWell(f"its heartbeat task did not come back in {HEARTBEAT_S:g} s")
        except ServerAway as away:
            raise NotWell(str(away)) from None

    def _hand(self, pid: int, cluster: Cluster) -> tuple[str, dict[str, Any]]:
        """The name that the process has given itself, and its last report."""
        for name, age_s, text in cluster.broker.reports():
            try:
                body = cluster.signer.verify(text, "report").body
            except RefusedMessage:
                continue
            if body.get("pid") == pid and body.get("host") == socket.gethostname():
                return name, body | {"age_s": age_s}
        raise NotWell("it has not reported to the broker yet")

    def _ping(self, hand: str, cluster: Cluster) -> None:
        node = f"weft@{hand}"
        try:
            answers = cluster.application.control.inspect(destination=[node], timeout=PING_S).ping()
        except Exception as error:  # whatever the library raises about its connection
            raise NotWell(f"it could not be pinged: {type(error).__name__}") from None
        if not answers or node not in answers:
            raise NotWell(f"no answer to Celery's ping in {PING_S:g} s")

    def _heartbeat(self, cluster: Cluster) -> bool:
        signature = cluster.signature("heartbeat", {"token": "supervisor"}, HEARTBEAT_S)
        queue = queue_name(self._key.cluster_id, SYSTEM)
        try:
            sent = signature.apply_async(queue=queue, retry=False)
            text = sent.get(timeout=HEARTBEAT_S, disable_sync_subtasks=False)
            sent.forget()
            detach(sent)
            cluster.opened(text, "heartbeat", sent.id)
        except Exception:  # a timeout, a broken connection, a refusal: it has not come back
            return False
        return True


def _is_busy(report: dict[str, Any]) -> bool:
    """Whether all slots of the worker are in use, by its own recent report."""
    running, slots = report.get("running"), report.get("concurrency")
    is_fresh = float(report.get("age_s", LOST_S)) < LOST_S
    return is_fresh and isinstance(running, int) and isinstance(slots, int) and 0 < slots <= running
