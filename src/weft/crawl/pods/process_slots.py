"""The processes that a node runs, and the core of each if they are bound to cores.

The cores of this node's pods are consecutive, fetchers before parsers; the orchestrator, which needs almost no CPU,
shares the first one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from weft.config import PodsSection
from weft.errors import BadInput
from weft.telemetry import Slot


def slots(section: PodsSection) -> Iterator[Slot]:
    """The processes of this node."""
    for pod in section.here:
        yield from (Slot(pod, "fetcher", index) for index in range(section.fetchers_per_pod))
        yield from (Slot(pod, "parser", index) for index in range(section.parsers_per_pod))


def slots_and_cores(section: PodsSection) -> list[tuple[Slot, int | None]]:
    """The processes of this node with their cores."""
    return [(slot, core if section.affinity else None) for core, slot in enumerate(slots(section))]


def require_cores_for_affinity(section: PodsSection) -> None:
    """With `enable_cpu_affinity`: raises BadInput if there are too few cores for one each."""
    if not section.affinity:
        return
    needed = len(section.here) * (section.fetchers_per_pod + section.parsers_per_pod)
    there = os.sched_getaffinity(0)
    if not set(range(needed)) <= there:
        each = f"{section.fetchers_per_pod} fetchers and {section.parsers_per_pod} parsers"
        raise BadInput(
            f"enable_cpu_affinity: {needed} cores are needed ({len(section.here)} pods with {each} each), this process "
            f"may use {len(there)}: run fewer processes or fewer pods, or leave it off"
        )
