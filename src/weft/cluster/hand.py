"""`weft worker`: a Celery worker that serves queues of one cluster, and reports every five seconds.

A hand has a new name at each start, so that no process runs tasks which were sent to its queues before: the brain sees
by their deadline that they are lost. It ends with exit code 2 when the brain speaks another task schema, or when it has
another key than the brain of this broker.

Only `ping` of Celery's remote control is answered: its messages are not signed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft import __version__
from weft.cluster import tolerant
from weft.cluster.application import make_application, queue_name, task_options
from weft.cluster.broker import Broker
from weft.cluster.hand_end import announce_end
from weft.cluster.hand_reports import LOST_S, REPORT_S
from weft.cluster.key import ClusterKey
from weft.cluster.pages.transfer_loop import TransferLoop
from weft.cluster.running import HandSettings, TaskRunner
from weft.cluster.signing import SCHEMA, Signer, new_id
from weft.cluster.tasks import CHOSEN, KINDS, TaskKind, available, profiles_of
from weft.errors import BadInput, Missing, ServerAway, WeftError
from weft.fetch.browser.chromium import sandbox_trouble
from weft.supervise import memory
from weft.supervise.process import die_with_parent, set_name
from weft.telemetry import LineFormatter, Log

try:
    from celery import signals
    from celery.apps.worker import Worker
    from celery.platforms import SecurityWarning
    from celery.worker import state
    from celery.worker.control import Panel
except ImportError:
    raise Missing.of_extra("Celery", "cluster") from None

WAIT_S = 2.0


class HandRefused(BadInput):
    """The brain of this broker cannot use this hand. What else is wrong at a broker may pass, as a password that is
    being changed."""


log = Log("weft.cluster.hand")
Say = Callable[[str], None]


def hand_name() -> str:
    """A name of this start: the machine's, and something that no other has."""
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower()).strip("-")[:40] or "hand"
    return f"{host}-{new_id()[:8]}"


def browsers_of(concurrency: int, queues: Sequence[str]) -> int:
    """How many pages a hand renders at a time: one a core, and one process is left to other queues."""
    most = concurrency if set(queues) <= {"render", "heartbeat"} else concurrency - 1
    return max(1, min(most, len(os.sched_getaffinity(0))))


def chosen_queues(names: Sequence[str], *, browser_sandbox: bool = True) -> tuple[str, ...]:
    """The queues that a hand shall serve: those named, or all that this machine can; BadInput if one cannot be."""
    if unknown := [name for name in names if name not in CHOSEN]:
        raise BadInput(f"--queues: there is no queue {unknown[0]!r}; use some of {', '.join(CHOSEN)}")
    can = available()
    if browser_sandbox and not can["render"] and (why := sandbox_trouble()):
        can["render"] = f"browsers have no sandbox here ({why}); --no-browser-sandbox runs them without"
    for name in names:
        if can[name]:
            raise BadInput(f"--queues: {can[name]}")
    return tuple(names) or tuple(name for name in CHOSEN if not can[name])


class Hand:
    """One start of a worker."""

    def __init__(
        self,
        broker_url: str,
        key: ClusterKey,
        queues: Sequence[str],
        *,
        concurrency: int,
        accept_code: bool,
        say: Say,
        visibility_s: float = 3600.0,
        shared_dir: Path | None = None,
        browser_sandbox: bool = True,
        waits: bool = False,
    ) -> None:
        """`waits`: a broker that refuses it is asked again, as one that is away is; else its refusal ends `run`."""
        self._queues, self._concurrency = (*queues, "heartbeat"), concurrency
        self._say = say
        self._waits = waits
        self._key = key
        self._settings = HandSettings(
            broker_url, key, hand_name(), Path(tempfile.mkdtemp(prefix="weft-hand-")), accept_code, visibility_s,
            shared_dir, browser_sandbox,
        )  # fmt: skip
        self._broker = Broker(broker_url, key.cluster_id)
        self._signer = Signer(key)
        self._trouble = ""  # what the last report ended with
        self._counted: dict[str, int] = {}
        self._code = 0
        self._is_leaving = False

    @property
    def name(self) -> str:
        """What the cluster knows it by."""
        return self._settings.hand

    def run(self) -> int:
        """Works until it is asked to end; gives the exit code."""
        try:
            self._wait_for_broker()
            self._report_now()
            return self._work()
        finally:
            shutil.rmtree(self._settings.folder, ignore_errors=True)
            for left in Path(tempfile.gettempdir()).glob(f"{profiles_of(self.name)}*"):
                shutil.rmtree(left, ignore_errors=True)

    def _wait_for_broker(self) -> None:
        """A broker that is away may come; one that is none is BadInput."""
        reported = ""
        while True:
            try:
                self._broker.check()
            except (ServerAway, BadInput) as error:
                if isinstance(error, BadInput) and not self._waits:
                    raise
                if reported != str(error):
                    reported = str(error)
                    self._say(f"{reported}; trying again every {WAIT_S:.0f} s")
                time.sleep(WAIT_S)
            else:
                return

    def _work(self) -> int:
        tolerant.install()
        app = make_application(
            self._settings.broker, self._key.cluster_id, hand=self.name, visibility_s=self._settings.visibility_s
        )
        for kind in KINDS.values():
            _register(app, kind, self._settings)
        for verb in set(Panel.data) - {"ping"}:
            del Panel.data[verb]
        main = os.getpid()
        ready, born = self._ready(), _born(main)
        warnings.filterwarnings("ignore", category=SecurityWarning)  # it is about pickle, which is not accepted
        signals.setup_logging.connect(_log_to_stderr)
        signals.worker_ready.connect(ready)
        leaving = self._leaving()
        signals.worker_shutting_down.connect(leaving)
        signals.worker_process_init.connect(born)
        signals.worker_process_shutdown.connect(_ended)
        names = [queue_name(self._key.cluster_id, one, self._hand_of(one)) for one in self._queues]
        worker: Any = Worker(
            app=app, hostname=f"weft@{self.name}", pool_cls="prefork", concurrency=self._concurrency, queues=names,
            without_gossip=True, without_mingle=True, without_heartbeat=True, loglevel="WARNING", quiet=True,
        )  # fmt: skip
        try:
            worker.start()
        finally:
            self._leave()
        return self._code or int(worker.exitcode or 0)

    def _hand_of(self, queue: str) -> str:
        return self.name if KINDS[queue].own_queue else ""

    def _ready(self) -> Callable[..., None]:
        def ready(sender: Any, **_: Any) -> None:
            sender.timer.call_repeatedly(REPORT_S, self._report)
            self._report()
            queues = ", ".join(self._queues[:-1]) or "heartbeats alone"
            self._say(f"hand {self.name} serves {queues} of cluster {self._key.cluster_id}")

        return ready

    def _leaving(self) -> Callable[..., None]:
        def leaving(**_: Any) -> None:
            """No new tasks come while those that run are ended."""
            self._is_leaving = True
            announce_end(self._settings.folder)
            with suppress(WeftError):
                self._broker.report(self.name, "")

        return leaving

    def _report(self) -> None:
        """Called by the worker's loop; nothing that goes wrong here ends it, except a brain that we do not fit."""
        try:
            self._report_now()
            self._trouble = ""
        except HandRefused as error:
            self._say(str(error))
            self._code = state.should_stop = error.exit_code
        except WeftError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("a report failed", why=self._trouble)

    def _report_now(self) -> None:
        if self._is_leaving:
            return
        self._count_refused()
        now_ms = self._broker.now_ms()
        signed = self._signer.sign("report", self._facts(), made_ms=now_ms, until_ms=now_ms + int(1000 * LOST_S))
        _, facts, brains = self._broker.report(self.name, signed)
        if facts:
            self._check_brain(facts)
        elif brains:
            why = (
                f"{self._broker.where}: its brain has another cluster key (here: cluster {self._key.cluster_id}); copy "
                "the brain's key file to this machine, or start this cluster's brain first"
            )
            self._refused(why)

    def _check_brain(self, facts: str) -> None:
        try:
            schema = json.loads(facts).get("schema")
        except (ValueError, AttributeError, RecursionError):
            schema = None
        if schema != SCHEMA:
            self._refused(
                f"{self._broker.where}: the brain speaks task schema {schema}, this hand {SCHEMA} (Weft {__version__})"
                ": install one version of Weft on both machines"
            )

    def _refused(self, why: str) -> None:
        self._broker.report(self.name, "")
        self._broker.refuse_hand(f"hand {self.name}: {why}")
        raise HandRefused(why)

    def _count_refused(self) -> None:
        """What the transport has refused since the last report."""
        new = {f"broker:refused:{why}": n - self._counted.get(why, 0) for why, n in tolerant.REFUSED.items()}
        if new := {name: n for name, n in new.items() if n}:
            self._broker.count_for(self.name, new)
            self._counted = dict(tolerant.REFUSED)

    def _facts(self) -> dict[str, Any]:
        counts = self._broker.counts(self.name)
        return {
            "hand": self.name,
            "schema": SCHEMA,
            "version": __version__,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": list(self._queues[:-1]),
            "concurrency": self._concurrency,
            "running": len(state.active_requests),
            "done": _sum(counts, "done"),
            "failed": _sum(counts, "failed"),
            "refused": sum(n for name, n in counts.items() if ":refused:" in name),
            "load": round(os.getloadavg()[0], 2),
            "browsers": browsers_of(self._concurrency, self._queues) if "render" in self._queues else 0,
            "free_memory_bytes": memory.available_bytes(),
            "accepts_code": self._settings.accept_code,
        }

    def _leave(self) -> None:
        try:
            self._broker.report(self.name, "")
        except WeftError as error:
            log.warning("the end could not be reported", why=str(error))
        self._broker.close()


def _register(app: Any, kind: TaskKind, settings: HandSettings) -> None:
    """The task of a queue; what it needs is made in the process that runs it."""
    made: dict[int, TaskRunner] = {}

    @app.task(**task_options(kind))  # type: ignore[untyped-decorator]
    def run(*arguments: object) -> str | None:
        pid = os.getpid()
        if pid not in made:
            made.clear()
            made[pid] = _RUNNERS.get(pid) or TaskRunner(settings)
            _RUNNERS.clear()
            _RUNNERS[pid] = made[pid]
        return made[pid].run(kind, arguments)


_RUNNERS: dict[int, TaskRunner] = {}  # this process's, by its pid: a fork must not use its parent's


def _born(main: int) -> Callable[..., None]:
    def born(**_: Any) -> None:
        die_with_parent(main)
        set_name("weft-hand")

    return born


def _ended(**_: Any) -> None:
    """A process ends when its transfers have ended: its tasks are over before."""
    TransferLoop.drain()


def _log_to_stderr(**_: Any) -> None:
    """Celery's lines and ours in our form; without a receiver of this signal Celery would use its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("Hand"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.WARNING)


def _sum(counts: dict[str, int], word: str) -> int:
    return sum(n for name, n in counts.items() if name.endswith(f":{word}"))


def say_on_stderr(text: str) -> None:
    """For people who watch a worker."""
    print(f"weft: {text}", file=sys.stderr, flush=True)
