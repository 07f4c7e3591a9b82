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
    work, why = _cluster_work(config, refresh)
    if work is None and engine == "celery":
        raise BadInput(f"--engine celery: {why}; or leave --engine out")
    return work


def _cluster_work(config: ServiceConfig, refresh: Refresh) -> tuple[Work | None, str]:
    data_dir = Path(config.server.data_dir)
    state, _ = control.status(data_dir)
    if not any(row.name == "celery_worker" and row.healthy for row in (state.services if state is not None else ())):
        return None, f"no worker is well in {data_dir}: `weft up --cluster` starts one"
    try:
        return cluster_work(with_cluster(config, may_make=False), refresh)
    except Missing as missing:
        return None, str(missing)
