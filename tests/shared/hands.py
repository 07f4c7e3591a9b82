"""Real hands for tests: `weft worker` processes of one cluster, and the environment in which a brain finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pace import patience

from weft.cluster.key import make_key


class Hands:
    """The hands of one cluster; all are gone at the end."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.key_file = folder / "cluster.key"
        self.key = make_key(self.key_file)
        self.running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    @property
    def environment(self) -> dict[str, str]:
        """For a brain."""
        return {"WEFT_BROKER": self.broker, "WEFT_CLUSTER_KEY_FILE": str(self.key_file)}

    def start(self, *flags: str, path: Sequence[Path] = (), wait: bool = True) -> subprocess.Popen[bytes]:
        """A hand that imports from these folders, when it serves its queue."""
        self._started += 1
        log = self.folder / f"hand-{self._started}.log"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))} | self.environment
        with log.open("wb") as output:
            hand = subprocess.Popen(
                [sys.executable, "-m", "weft", "worker", "--queues", "batches", *flags],
                cwd=self.folder, env=environment, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self.running.append(hand)
        if wait:
            wait_until_serving(hand, log)
        return hand

    def kill(self, hand: subprocess.Popen[bytes]) -> None:
        """As a power cut would: the hand itself, and with it what it has started."""
        hand.kill()
        hand.wait()
        self.running.remove(hand)

    def end(self) -> None:
        """All hands."""
        for hand in self.running:
            hand.send_signal(signal.SIGKILL)
        for hand in self.running:
            hand.wait()
        self.running.clear()


def wait_until_serving(hand: subprocess.Popen[bytes], log: Path) -> None:
    """Until it takes tasks."""
    until_s = time.monotonic() + patience(30)
    while b"serves" not in log.read_bytes():
        assert hand.poll() is None, log.read_text()
        assert time.monotonic() < until_s, log.read_text()
        time.sleep(0.02)


@contextmanager
def cluster(broker: str, folder: Path) -> Iterator[Hands]:
    """A cluster with a key of its own, which brains in this process find."""
    hands = Hands(broker, folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in hands.environment.items():
            patch.setenv(name, value)
        try:
            yield hands
        finally:
            hands.end()
