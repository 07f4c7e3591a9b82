"""The Celery processes of a supervisor by themselves, and a proxy of TCP that can fall silent."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from hands import wait_until
from pace import patience

from weft.cluster.key import ClusterKey
from weft.cluster.supervised.children import SCHEDULER_LOG, WORKER_LOG, HandSpec, LogSpec, SchedulerSpec
from weft.cluster.supervised.ticks import TickEntry


class CeleryPart:
    """A worker or scheduler, as a supervisor starts it."""

    def __init__(self, module: str, spec: HandSpec | SchedulerSpec, log: Path) -> None:
        self._module, self._spec, self.log = f"weft.cluster.supervised.{module}", spec, log
        self.popen = self._start()

    @classmethod
    def worker(cls, folder: Path, url: str, key: ClusterKey, concurrency: int = 2) -> CeleryPart:
        """One that serves `proxies` and `system`."""
        spec = HandSpec(
            broker=url, key=key.text, concurrency=concurrency, visibility_s=5.0, logs=LogSpec(folder=str(folder))
        )
        return cls("supervised_hand", spec, folder / WORKER_LOG)

    @classmethod
    def scheduler(cls, folder: Path, url: str, key: ClusterKey, every_s: int = 1) -> CeleryPart:
        """One that sends heartbeats."""
        spec = SchedulerSpec(
            broker=url, key=key.text, entries=((TickEntry("heartbeat", every_s), "heartbeat"),),
            heartbeat=str(folder / "celery_beat.heartbeat"), logs=LogSpec(folder=str(folder)),
        )  # fmt: skip
        return cls("tick_scheduler", spec, folder / SCHEDULER_LOG)

    def _start(self) -> subprocess.Popen[bytes]:
        popen = subprocess.Popen([sys.executable, "-m", self._module], stdin=subprocess.PIPE)
        assert popen.stdin is not None
        popen.stdin.write(self._spec.framed())
        popen.stdin.flush()
        return popen

    def wait_ready(self) -> CeleryPart:
        """Until the worker serves its queues."""
        wait_until(lambda: self.log.exists() and " serves " in self.log.read_text(), "no worker came up")
        return self

    def kill_and_start(self) -> None:
        """As if the machine had killed it; a new one is there at once."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()
        self.popen = self._start()

    def stop(self) -> None:
        """In good order: its pipe is closed."""
        assert self.popen.stdin is not None
        with suppress(OSError):
            self.popen.stdin.close()
        try:
            self.popen.wait(patience(20))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class SilentProxy:
    """Passes connections on to a server. `cut` has those that there are swallow everything, and closes none: neither
    side hears of it. New ones are passed on."""

    def __init__(self, target: str) -> None:
        """`target`: the path of a Unix socket."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._flows: list[threading.Event] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """How many connections were cut."""
        flows, self._flows = self._flows, []
        for is_cut in flows:
            is_cut.set()
        return len(flows)

    def close(self) -> None:
        """Accepts no more."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    server.connect(self._target)
                except OSError:
                    client.close()
                    continue
                is_cut = threading.Event()
                self._flows.append(is_cut)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink, is_cut), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not is_cut.is_set():
                    sink.sendall(data)
        if not is_cut.is_set():
            for one in (source, sink):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
