"""Reports how the services are, and writes it down after every change (see `state`)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from weft.config import ServiceConfig
from weft.supervise import process
from weft.supervise.graph import Graph, Kept, state_of
from weft.supervise.held import ProcessIdentity
from weft.supervise.service import ServiceHealth
from weft.system import state as kept
from weft.system.state import ProxyRow, RecordedProcess, ServiceRow, SystemState
from weft.telemetry import Log

RECORD_S = 1.0  # a program may change its command line while it starts
log = Log("weft.system.recorder")


def digest(config: ServiceConfig) -> str:
    """Identifies settings without revealing them; folders, which may be written in several forms, are left out."""
    tree = msgspec.to_builtins(config)
    del tree["server"]["data_dir"], tree["log"]["log_dir"]
    return sha256(msgspec.msgpack.encode(tree)).hexdigest()[:16]


class Recorder:
    """Collects the state of one supervisor's services, and writes it down."""

    def __init__(self, data_dir: Path, config: ServiceConfig, *, in_background: bool) -> None:
        self._data_dir = data_dir
        self._in_background = in_background
        self._settings = digest(config)
        self._since: dict[str, tuple[str, str]] = {}  # the state of a service, and when it began
        self._written: SystemState | None = None
        self._seen: list[tuple[int | None, bool]] = []
        self._due_s = 0.0
        self._could_write = True

    def state(
        self, graph: Graph, urls: dict[str, str], idle: Iterable[str], proxies: ProxyRow | None, *, is_up: bool
    ) -> SystemState:
        """The state of all services. `idle`: services that do not run, and were not requested."""
        rows = [self._row_of_service(service) for service in graph]
        rows += [ServiceRow(name=name, state="stopped") for name in idle]
        return SystemState(
            boot=process.boot_id(),
            supervisor=RecordedProcess.of(ProcessIdentity.of(os.getpid())),
            in_background=self._in_background,
            is_up=is_up,
            settings=self._settings,
            urls=urls,
            services=tuple(rows),
            process_by_service={
                one.name: written for one in graph if (written := RecordedProcess.of(one.identity)) is not None
            },
            proxies=proxies and msgspec.structs.replace(proxies, since=self._began_at(proxies)),
        )

    def is_due(self, graph: Graph) -> bool:
        """Whether something may have changed since it was last written."""
        now_s, seen = time.monotonic(), [(service.pid, service.healthy) for service in graph]
        if now_s < self._due_s and seen == self._seen:
            return False
        self._due_s, self._seen = now_s + RECORD_S, seen
        return True

    def write(self, state: SystemState) -> None:
        """Replaces the record if it has changed; on a full disk, when there is room again."""
        if state == self._written:
            return
        try:
            kept.write(self._data_dir, state)
        except OSError as error:
            if self._could_write:
                log.warning("the state of the services cannot be written", error=error)
            self._could_write, self._written = False, None
        else:
            self._could_write, self._written = True, state

    def _row_of_service(self, service: Kept) -> ServiceRow:
        is_failing = not service.healthy and service.report.health in (ServiceHealth.FAILING, ServiceHealth.LOADING)
        error = service.report.reason if is_failing else service.last_error
        at = service.last_error_at if error and not is_failing else 0.0
        row = ServiceRow(
            name=service.name, state=state_of(service), healthy=service.healthy, pid=service.pid,
            restarts=max(0, service.starts - 1), last_error=error or None, last_error_at=_written(at) if at else None,
        )  # fmt: skip
        return msgspec.structs.replace(row, since=self._began_at(row))

    def _began_at(self, row: ServiceRow) -> str:
        """The time at which a service's current state began."""
        before, since = self._since.get(row.name, ("", ""))
        if row.state != before:
            since = _written(time.time())
            self._since[row.name] = row.state, since
            log.info("service", name=row.name, state=row.state, pid=row.pid, last_error=row.last_error)
        return since


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
