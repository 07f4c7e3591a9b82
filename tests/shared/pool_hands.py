"""Hands for a pool's runs: `weft worker` processes of one cluster, and the environment in which a brain finds it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hands import HandProcess

from weft.cluster.key import make_key


class PoolHands:
    """The hands of one cluster; all are gone at the end."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.broker = broker
        self.key_file = folder / "cluster.key"
        self.key = make_key(self.key_file)
        self.running: list[HandProcess] = []
        self._folder = folder / "hands"

    @property
    def environment(self) -> dict[str, str]:
        """For a brain."""
        return {"WEFT_BROKER": self.broker, "WEFT_CLUSTER_KEY_FILE": str(self.key_file)}

    def start(self, *flags: str, path: Sequence[Path] = (), wait: bool = True) -> HandProcess:
        """A hand that imports from these folders, when it serves its queue."""
        environment = {"PYTHONPATH": os.pathsep.join(map(str, path))}
        hand = HandProcess(
            self._folder, self.broker, self.key_file, "--queues", "batches", *flags, environment=environment
        )
        self.running.append(hand)
        return hand.wait_ready() if wait else hand

    def kill(self, hand: HandProcess) -> None:
        """As a power cut would: the hand, and with it what it has started."""
        hand.kill()
        self.running.remove(hand)

    def end(self) -> None:
        """All hands."""
        while self.running:
            self.kill(self.running[-1])


@contextmanager
def cluster(broker: str, folder: Path) -> Iterator[PoolHands]:
    """A cluster with a key of its own, which brains in this process find."""
    hands = PoolHands(broker, folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in hands.environment.items():
            patch.setenv(name, value)
        try:
            yield hands
        finally:
            hands.end()
