"""Where the services of a data dir log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.config import ServiceConfig
from weft.errors import BadInput
from weft.system.background import LOG
from weft.system.services import declared

SUPERVISOR = "supervisor"


def files_of(config: ServiceConfig, service: str) -> Sequence[Path]:
    """The log files of a service, or of one of its processes (`api1`); of the supervisor itself as well."""
    known = declared(config, {})
    if service == SUPERVISOR:
        return [Path(config.log.log_dir) / LOG]
    if service in known:
        return known[service].logs
    for one in known.values():
        if mine := [path for path in one.logs if path.stem == service]:
            return mine
    if service == "proxies":
        raise BadInput(f"proxies are no process: what tests them logs to that of `weft logs {SUPERVISOR}`")
    raise BadInput(f"no service {service!r}; there are {', '.join([*known, SUPERVISOR])}")
