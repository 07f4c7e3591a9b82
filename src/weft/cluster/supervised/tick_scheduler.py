"""Celery's scheduler as a process of the supervisor: sends heartbeats and proxy refreshes when they are due, no more.

Its spec comes on standard input, a length and msgpack; the pipe stays open, and its end is the supervisor's end. It
keeps nothing: `ticks` says which times are due, and which have run. The schedules of sites are the runner's.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from celery.beat import Scheduler
from celery.beat import Service as CeleryBeat

from weft import __version__
from weft.cluster.application import make_application, queue_name
from weft.cluster.broker import Broker
from weft.cluster.key import parse_key
from weft.cluster.signing import Signer
from weft.cluster.supervised.children import SCHEDULER_LOG, SchedulerSpec, end_with, log_of
from weft.cluster.supervised.ticks import TickEntry, Ticks
from weft.cluster.tasks import task_name
from weft.errors import WeftError
from weft.frames import read_frame
from weft.supervise.process import set_name
from weft.telemetry import Log, Slot

LOOP_S = 1.0
RESEND_S = 20.0
MOST_WAITING = 20  # in a queue that no hand reads nothing is heaped up
log = Log("weft.cluster.supervised.tick_scheduler")


class TickScheduler(Scheduler):  # type: ignore[misc]
    """Sends each entry at the multiples of its period; of times that were missed the latest."""

    def __init__(self, *args: Any, spec: SchedulerSpec, wall: Callable[[], float] = time.time, **kwargs: Any) -> None:
        key = parse_key(spec.key, "the cluster's key")
        self._spec, self._wall = spec, wall
        self._signer = Signer(key)
        self._broker = Broker(spec.broker, key.cluster_id)
        self._ticks = Ticks(self._broker)
        self._sent: dict[
            str, tuple[int, float]
        ] = {}  # the time that was sent last, and when to look whether it has run
        self._trouble = ""
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Does nothing: `tick` decides what is due, not Celery's schedule."""

    def tick(self, *_: Any, **__: Any) -> float:
        """Sends what is due; how long to wait for the next."""
        for entry, kind in self._spec.entries:
            try:
                self._send(entry, kind)
                self._trouble = ""
            except Exception as error:  # the broker is away: what is due is sent when it is back
                if self._trouble != (text := str(error) if isinstance(error, WeftError) else type(error).__name__):
                    log.warning("a tick could not be sent", entry=entry.name, why=text)
                self._trouble = text
        with suppress(OSError):  # a full disk
            Path(self._spec.heartbeat).touch()
        return LOOP_S - self._wall() % LOOP_S

    def _send(self, entry: TickEntry, kind: str) -> None:
        """A message may be lost on its way: a tick that has not run is sent again, and claimed once."""
        at, now_s = entry.latest(self._wall()), time.monotonic()
        known = self._sent.get(entry.name)
        if known is not None and known[0] == at and now_s < known[1]:
            return
        queue = queue_name(self._broker.cluster_id, kind)
        has_run = self._ticks.has_run(entry.name, at)
        if not has_run and self._broker.queue_length(queue) < MOST_WAITING:
            made_ms = self._broker.now_ms()
            body = {"step": "tick", "tick": at, "entry": entry.name, "every": entry.every_s, "token": f"scheduler-{at}"}
            text = self._signer.sign(kind, body, made_ms=made_ms, until_ms=made_ms + 1000 * max(30, entry.every_s))
            self.app.send_task(task_name(kind), args=[text], queue=queue, retry=False, ignore_result=True)
            log.debug("tick sent", entry=entry.name, at=at)
        self._sent[entry.name] = at, now_s + (entry.every_s if has_run else RESEND_S)


def made_scheduler(spec: SchedulerSpec) -> CeleryBeat:
    """The service, which `start` runs until `stop`."""
    cluster_id = parse_key(spec.key, "the cluster's key").cluster_id

    def scheduler(*args: Any, **kwargs: Any) -> TickScheduler:
        return TickScheduler(*args, spec=spec, **kwargs)

    return CeleryBeat(make_application(spec.broker, cluster_id), max_interval=LOOP_S, scheduler_cls=scheduler)


def main() -> int:
    """Sends until the pipe closes or it is asked to end; returns the exit code."""
    pipe = sys.stdin.fileno()
    try:
        spec = msgspec.msgpack.decode(read_frame(pipe), type=SchedulerSpec)
    except EOFError:
        return 1
    set_name("celery_beat")
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the supervisor's to hear
    try:
        log_of(spec.logs, Slot(0, "scheduler"), SCHEDULER_LOG)
        log.always("process started", pid=os.getpid(), weft=__version__)
        service = made_scheduler(spec)
    except WeftError as error:
        log.error("stopped", error=error)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    signal.signal(signal.SIGTERM, lambda *_: service.stop())

    end_with(pipe)
    service.start()
    log.always("process ended", pid=os.getpid())
    return 0


if __name__ == "__main__":
    sys.exit(main())
