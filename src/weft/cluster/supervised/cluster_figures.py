"""The figures of a cluster for metrics and the dashboard: queues with the age of their oldest message, hands, counts.

Read from the broker, a bounded amount. Labels are bounded, too: queues are five, hands are counted by their state, and
failures by the machine that they happened on, for the first MOST_HOSTS.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

from msgspec import Struct

from weft.cluster.application import queue_name
from weft.cluster.dispatch import Cluster
from weft.cluster.signing import MAC_CHARS
from weft.cluster.status import cluster_status
from weft.cluster.tasks import KINDS

MOST_HOSTS = 50
OTHER = "other"


class ClusterFigures(Struct, frozen=True):
    """Metrics of the cluster at one moment."""

    queues: dict[str, int]  # messages that wait, by kind
    oldest_s: dict[str, float]  # and how long the first of them has
    hands: dict[str, int]  # by state
    tasks: dict[tuple[str, str], int]  # by queue and outcome, ever
    seconds: dict[str, float]  # that tasks took, by queue, ever
    failures: dict[tuple[str, str], int]  # by queue and host, of the hands that report
    refused: dict[str, int]  # messages, by reason, ever


def cluster_figures(cluster: Cluster) -> ClusterFigures:
    """The current metrics of the cluster; raises ServerAway while the broker does not answer."""
    status = cluster_status(cluster)
    tasks, seconds = _tasks(status["counts"])
    refused: Counter[str] = Counter()
    for name, count in status["refused"].items():
        refused[name.partition(":")[2]] += count
    return ClusterFigures(
        queues=status["queues"], oldest_s=_oldest(cluster, status["queues"]),
        hands=dict(Counter(hand["state"] for hand in status["hands"])), tasks=tasks, seconds=seconds,
        failures=_failures(cluster, status["hands"]), refused=dict(refused),
    )  # fmt: skip


def _tasks(counts: dict[str, int]) -> tuple[dict[tuple[str, str], int], dict[str, float]]:
    tasks: dict[tuple[str, str], int] = {}
    seconds: dict[str, float] = {}
    for name, count in counts.items():
        kind, _, word = name.partition(":")
        if kind in KINDS and word in ("done", "failed"):
            tasks[kind, word] = count
        elif kind in KINDS and word == "ms":
            seconds[kind] = count / 1000
    return tasks, seconds


def _failures(cluster: Cluster, hands: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    failures: Counter[tuple[str, str]] = Counter()
    hosts: set[str] = set()
    for hand in hands:
        if hand["state"] == "refused":
            continue
        host = str(hand.get("host", ""))[:80]
        if host not in hosts and len(hosts) >= MOST_HOSTS:
            host = OTHER
        hosts.add(host)
        for name, count in cluster.broker.counts(hand["hand"]).items():
            kind, _, word = name.partition(":")
            if kind in KINDS and word == "failed":
                failures[kind, host] += count
    return dict(failures)


def _oldest(cluster: Cluster, queues: dict[str, int]) -> dict[str, float]:
    """Of the queues that all hands share; those of one hand are never long."""
    oldest = {}
    now_ms = cluster.broker.now_ms()
    for kind in KINDS.values():
        if kind.own_queue:
            continue
        age_s = 0.0
        if queues.get(kind.name):
            with cluster.broker.asking():
                raw: Any = cluster.broker.client.lindex(queue_name(cluster.key.cluster_id, kind.name), -1)
            age_s = max(0.0, (now_ms - _made_ms(raw, now_ms)) / 1000)
        oldest[kind.name] = age_s
    return oldest


def _made_ms(raw: bytes | None, now_ms: int) -> int:
    """When a message was made, by what it says of itself; it is as good as new if it can be no message of ours."""
    try:
        arguments = json.loads(base64.b64decode(json.loads(raw or b"")["body"]))[0]
        made_ms = json.loads(arguments[-1][MAC_CHARS:])["made_ms"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return now_ms
    return made_ms if isinstance(made_ms, int) and 0 < made_ms <= now_ms else now_ms
