"""Who tests the proxies when somebody asks for it outside of a supervisor: the workers of the folder's service, or the
process itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from weft.config import ServiceConfig
from weft.errors import BadInput, Missing
from weft.fetch.proxies.refresh import Refresh, Work
from weft.system import control
from weft.system.celery import cluster_work, with_cluster

Engine = Literal["auto", "embedded", "celery"]


def chosen_work(engine: Engine, config: ServiceConfig, refresh: Refresh) -> Work | None:
    """The work of a refresh; None: this process does it. With `auto` the workers do, where they are well."""
    if engine == "embedded":
        return None
    data_dir = Path(config.server.data_dir)
    state, _ = control.status(data_dir)
    if not any(row.name == "celery_worker" and row.healthy for row in (state.services if state is not None else ())):
        return _refused(engine, f"no worker is well in {data_dir}: `weft up --cluster` starts one")
    try:
        own = with_cluster(config, may_make=False)
    except Missing as missing:
        return _refused(engine, str(missing))
    work, trouble = cluster_work(own, refresh)
    return work or _refused(engine, trouble)


def _refused(engine: Engine, why: str) -> None:
    if engine == "celery":
        raise BadInput(f"--engine celery: {why}; or leave --engine out")
