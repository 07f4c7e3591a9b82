"""A link to an engine that is away: everybody waits as long as they want to, and no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from pace import patience

from weft.engine.process.channel import EngineGone, socket_path
from weft.engine.process.link import EngineLink


def test_who_has_less_patience_does_not_wait_for_who_has_more(tmp_path: Path) -> None:
    async def work() -> None:
        link = EngineLink(tmp_path)
        patient = asyncio.create_task(link.call("standings", patience(60)))
        await asyncio.sleep(0.01)  # it connects, for all
        with pytest.raises(EngineGone):
            await link.call("standings", 0.05)
        assert not patient.done()
        patient.cancel()
        await asyncio.gather(patient, return_exceptions=True)
        await link.close()

    asyncio.run(work())


def test_a_connection_that_is_closed_before_its_end_was_read_is_gone(tmp_path: Path) -> None:
    async def work() -> None:
        path = socket_path(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        server = await asyncio.start_unix_server(lambda _reader, _writer: None, path)
        link = EngineLink(tmp_path)
        wire = await link._connect_until(float("inf"))
        wire._writer.transport.abort()  # as after a kill: nothing has run yet that could have heard of it
        with pytest.raises(EngineGone):
            await asyncio.wait_for(wire.call("standings", {}), patience(10))
        server.close()
        await link.close()

    uvloop.run(work())
