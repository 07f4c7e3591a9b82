"""When the engine of a service is starting, loading and healthy: by its heartbeat, and whether it listens."""

from __future__ import annotations

from pathlib import Path

from weft.engine.loop.parser.suspects import Heartbeat
from weft.engine.process.engine_process import heartbeat_folder
from weft.engine.process.host import HostSpec
from weft.jobs.processes.services import engine_health
from weft.supervise.service import ServiceHealth


def test_an_engine_that_restores_its_crawls_has_no_time_limit_while_its_heart_beats(tmp_path: Path) -> None:
    spec = HostSpec(str(tmp_path), {})
    heartbeat = Heartbeat(heartbeat_folder(spec))
    health = engine_health(spec)
    assert health(1).health is ServiceHealth.STARTING, "Python starts: that is limited"
    for _ in range(2):
        heartbeat.send_heartbeat()
        assert health(1).health is ServiceHealth.LOADING
    assert health(2).health is ServiceHealth.STARTING, "another process"
