"""A cluster that cannot be used ends the crawl that is alone, and holds up those of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.config import ClusterSection, FetchSection
from weft.engine.transports.hands import Hands
from weft.errors import BadInput
from weft.fetch.curl.client import Client


def hands(folder: Path, *, is_alone: bool) -> Hands:
    section = ClusterSection(broker="redis://127.0.0.1:1/0", key_file=str(folder / "none.key"))
    return Hands(section, folder, "slot", {}, is_alone=is_alone)


def test_a_key_that_cannot_be_read_ends_a_crawl_and_holds_up_those_of_an_engine(tmp_path: Path) -> None:
    fetch = FetchSection(hands="cluster")
    client = Client(fetch, refusal=lambda _: None, handles=1)
    with pytest.raises(BadInput, match=r"none\.key cannot be read"):
        hands(tmp_path, is_alone=True).around(client, fetch, 1)
    shared = hands(tmp_path, is_alone=False)
    transport = shared.around(client, fetch, 1)
    assert transport.free == 0
    assert "none.key cannot be read" in shared.held_up()
    transport.close()
    shared.close()
