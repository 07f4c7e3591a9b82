"""The panel of a cluster on the dashboard: its workers, what waits for them, and what was refused."""

from __future__ import annotations

from typing import Any

from weft.cluster.dispatch import Cluster
from weft.cluster.status import cluster_status
from weft.config import ServiceConfig
from weft.errors import WeftError
from weft.records import PanelTable

_COLUMNS = ("Worker", "State", "Last report", "Queues", "Running", "Done", "Failed", "Version")


class ClusterPanel:
    """A panel (see jobs/dashboard/panels.py); `config`: of the service, with its broker and key."""

    title = "Workers"

    def __init__(self, config: ServiceConfig) -> None:
        self._section = config.cluster
        self._cluster: Cluster | None = None

    def table(self) -> PanelTable:
        """The workers that have reported within the last hour."""
        try:
            if self._cluster is None:
                self._cluster = Cluster.configured(self._section)
            status = cluster_status(self._cluster)
        except WeftError as why:
            return PanelTable(note=f"The broker cannot be asked: {why}")
        return PanelTable(_COLUMNS, tuple(map(_row, status["hands"])), _note(status))


def _row(hand: dict[str, Any]) -> tuple[str, ...]:
    name, state, age = str(hand["hand"]), str(hand["state"]), f"{hand['age_s']:.0f} s ago"
    if state == "refused":
        return (name, state, age, str(hand["why"]), "", "", "", "")
    running = f"{hand.get('running', 0)} of {hand.get('concurrency', 0)}"
    counts = (f"{hand.get('done', 0):,}", f"{hand.get('failed', 0):,}")
    return (name, state, age, ", ".join(hand.get("queues", ())), running, *counts, str(hand.get("version", "")))


def _note(status: dict[str, Any]) -> str:
    brain = "" if status["brain"] else "No crawl or task has asked for workers yet. "
    workers = "" if status["hands"] else "No workers: `weft worker` starts one. "
    waiting = ", ".join(f"{queue} {count:,}" for queue, count in status["queues"].items() if count)
    refused = sum(status["refused"].values())
    return f"{brain}{workers}Waiting: {waiting or 'nothing'}." + (f" Refused messages: {refused:,}." if refused else "")
