"""What a cluster is doing, read from its broker: brain, hands, queues, counts. Reads a bounded amount."""

from __future__ import annotations

import json
from typing import Any

from weft.cluster.application import queue_name
from weft.cluster.dispatch import Cluster
from weft.cluster.hand_reports import LOST_S
from weft.cluster.signing import SCHEMA, RefusedMessage
from weft.cluster.tasks import KINDS

SHOWN_HANDS = 1000


def cluster_status(cluster: Cluster) -> dict[str, Any]:
    """The facts that `weft cluster status --json` prints."""
    broker = cluster.broker
    hands = [_hand(cluster, name, age_s, text) for name, age_s, text in broker.reports()[:SHOWN_HANDS]]
    counts = broker.counts()
    return {
        "cluster": cluster.key.cluster_id,
        "broker": broker.where,
        "brain": _brain(broker.owner_facts()),
        "hands": hands,
        "queues": _queues(cluster, [hand["hand"] for hand in hands]),
        "counts": {name: counts[name] for name in sorted(counts) if ":refused:" not in name},
        "refused": {name.replace(":refused:", ":"): n for name, n in sorted(counts.items()) if ":refused:" in name},
        "refused_hands": [{"age_s": age_s, "why": why} for age_s, why in broker.refused_hands()],
    }


def _brain(text: str) -> dict[str, Any] | None:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _hand(cluster: Cluster, name: str, age_s: float, text: str) -> dict[str, Any]:
    """A hand by its report, if that is signed; its state is up, lost, or refused."""
    facts: dict[str, Any] = {"hand": name, "state": "up" if age_s < LOST_S else "lost", "age_s": round(age_s, 1)}
    try:
        body = cluster.signer.verify(text, "report").body
        if body.get("hand") != name or body.get("schema") != SCHEMA:
            raise RefusedMessage("foreign", "its report is another's")
    except RefusedMessage as error:
        return facts | {"state": "refused", "why": str(error)}
    return facts | {key: value for key, value in body.items() if key not in facts}


def _queues(cluster: Cluster, hands: list[str]) -> dict[str, int]:
    """Messages that wait, by the queue's kind, over all hands."""
    lengths = {}
    for kind in KINDS.values():
        names = hands if kind.own_queue else [""]
        queues = [queue_name(cluster.key.cluster_id, kind.name, one) for one in names]
        lengths[kind.name] = sum(map(cluster.broker.queue_length, queues))
    return lengths
