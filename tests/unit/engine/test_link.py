"""A link to an engine that is away: everybody waits as long as they want to, and no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pace import patience

from weft.engine.channel import Gone
from weft.engine.link import EngineLink


def test_who_has_less_patience_does_not_wait_for_who_has_more(tmp_path: Path) -> None:
    async def work() -> None:
        link = EngineLink(tmp_path)
        patient = asyncio.create_task(link.call("standings", patience(60)))
        await asyncio.sleep(0.01)  # it connects, for all
        with pytest.raises(Gone):
            await link.call("standings", 0.05)
        assert not patient.done()
        patient.cancel()
        await asyncio.gather(patient, return_exceptions=True)
        await link.close()

    asyncio.run(work())
