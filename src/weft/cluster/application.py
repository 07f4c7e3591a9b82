"""The Celery application of a cluster: its settings, queues and tasks, the same for brains and hands.

Nothing but JSON is accepted. `fetch` and `heartbeat` are acknowledged on receipt and never delivered twice
by Celery; `batches` and `proxies` are acknowledged when they have ended, so that another hand has them when one dies.
No wall clock of another machine decides anything: a message's end is in its signed part, not in Celery's `expires`.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.cluster.broker import check_address
from weft.cluster.tasks import KINDS, TaskKind, task_name
from weft.errors import Missing

try:
    from celery import Celery
    from kombu import Exchange, Queue
except ImportError:
    raise Missing.of_extra("Celery", "cluster") from None

VISIBILITY_S = 3600.0
RESULT_S = 3600
_ANONYMOUS = Exchange("", type="direct")


def queue_name(cluster_id: str, kind: str, hand: str = "") -> str:
    """A queue's name, which is its key on the broker."""
    return f"weft:{cluster_id}:{kind}:{hand}" if hand else f"weft:{cluster_id}:{kind}"


def queue_of(cluster_id: str, kind: str, hand: str = "") -> Queue:
    """A queue that needs no declaration: a list on the broker, which is gone when it is empty."""
    name = queue_name(cluster_id, kind, hand)
    return Queue(name, exchange=_ANONYMOUS, routing_key=name, no_declare=True)


def make_application(broker_url: str, cluster_id: str, *, hand: str = "", visibility_s: float = VISIBILITY_S) -> Celery:
    """The application; with a hand's name its own queues are among those that can be consumed."""
    check_address(broker_url)
    url = celery_url(broker_url)
    app = Celery(f"weft-{cluster_id}", broker=url, backend=url, set_as_current=False)
    options = {
        "visibility_timeout": visibility_s,
        "unacked_restore_interval": 2,
        "unacked_restore_throttle": 1,
        "unacked_key": f"weft:{cluster_id}:unacked",
        "unacked_index_key": f"weft:{cluster_id}:unacked_index",
        "unacked_mutex_key": f"weft:{cluster_id}:unacked_mutex",
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
    }
    app.conf.update(
        accept_content=["json"],
        result_accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_default_queue=queue_name(cluster_id, "batches"),
        task_queues=tuple(
            queue_of(cluster_id, kind.name, hand if kind.own_queue else "")
            for kind in KINDS.values()
            if hand or not kind.own_queue
        ),
        task_create_missing_queues=False,
        task_send_sent_event=False,
        task_track_started=False,
        worker_send_task_events=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_proc_alive_timeout=60.0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=options,
        result_backend_transport_options={
            "visibility_timeout": visibility_s,
            "global_keyprefix": f"weft:{cluster_id}:",
        },
        result_expires=RESULT_S,
        enable_utc=True,
    )
    if (tls := _tls(broker_url)) is not None:
        app.conf.update(broker_use_ssl=tls, redis_backend_use_ssl=tls)
    return app


def task_options(kind: TaskKind) -> dict[str, Any]:
    """How Celery runs the tasks of a queue."""
    late = not kind.once
    return {
        "name": task_name(kind.name),
        "acks_late": late,
        "reject_on_worker_lost": late,
        "ignore_result": kind.own_queue,
        "max_retries": 0,
        "soft_time_limit": kind.limit_s,
        "time_limit": kind.limit_s + 15.0,
    }


def celery_url(url: str) -> str:
    """The broker's address as Celery reads it: local sockets have another scheme there."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    db = parse_qs(parts.query).get("db", ["0"])[0]
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return f"redis+socket://{login}{parts.path}?virtual_host={db}"


def _tls(url: str) -> dict[str, Any] | None:
    """Settings of TLS: the broker's certificate is always checked; the address may name the authority's file."""
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return None
    given = parse_qs(parts.query)
    options: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if name in given:
            options[name] = given[name][0]
    return options
