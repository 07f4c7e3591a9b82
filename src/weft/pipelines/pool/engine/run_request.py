"""What a run is asked to do, and what an engine shows of its workers."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.pool.values import ValueStore


class RunRequest(msgspec.Struct, frozen=True):
    """The arguments of a run: function, settings, folders and options."""

    target: CallableTarget
    settings: PoolSettings
    directory: RunDirectory | None = None
    logs: str = "off"
    """One of ITEM_LOGS (settings.py)."""
    resume: bool = False
    ordered: bool = False
    max_ahead: int | None = None
    total: int | None = None
    config: bytes = b""
    """What all items share, encoded (shared_config.py)."""
    values: ValueStore | None = None
    """Where the values of results are kept; None: in the journal."""
    callables: list[str] = []
    """What the function imports by name, a pipeline's stages say: an engine elsewhere needs their code."""
    code_files: list[str] = []
    """Other files that are part of it."""
    folders: dict[str, str] = {}
    """Folders that the function reads and writes, by the key under which `config` names them: an engine elsewhere gives
    it others where these are not at hand."""
    engine_options: dict[str, str] = {}
    """What the engine is told beyond that, a broker's address say."""


class WorkerView(NamedTuple):
    """The state of one worker, for a display."""

    number: int
    pid: int | None
    state: str
    item_id: str | int | None
    stage: str | None
    seconds: float
    finished: int
    memory_mb: float
