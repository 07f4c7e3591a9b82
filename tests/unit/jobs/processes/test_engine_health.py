"""When the engine of a service is starting, loading and healthy: by its heartbeat, and whether it listens."""

from __future__ import annotations

from pathlib import Path

from weft.engine.loop.parser.suspects import Pulse
from weft.engine.process.engine_process import pulse_folder
from weft.engine.process.host import HostOrder
from weft.jobs.processes.services import engine_health
from weft.supervise.service import ServiceHealth


def test_an_engine_that_restores_its_crawls_has_no_time_limit_while_its_heart_beats(tmp_path: Path) -> None:
    order = HostOrder(str(tmp_path), {})
    pulse = Pulse(pulse_folder(order))
    health = engine_health(order)
    assert health(1).health is ServiceHealth.STARTING, "Python starts: that is limited"
    for _ in range(2):
        pulse.beat()
        assert health(1).health is ServiceHealth.LOADING
    assert health(2).health is ServiceHealth.STARTING, "another process"
