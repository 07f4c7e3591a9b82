"""Servers that the tests of one process share: started once, emptied by whoever uses them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from weft.supervise import redis_server
from weft.supervise.redis_server import RedisServer

sys.path.insert(0, str(Path(__file__).parent / "workers"))
# Tests kill it again and again: that is no crash loop.
PATIENT = replace(redis_server.POLICY, first_delay_s=0.001, max_failures=1_000_000)
if TYPE_CHECKING:
    from harnesses import Harness
SharedServer = Callable[[str], RedisServer]


@pytest.fixture(scope="session")
def shared_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SharedServer]:
    servers: dict[str, RedisServer] = {}

    def server(kind: str) -> RedisServer:
        if kind not in servers:
            servers[kind] = RedisServer(
                tmp_path_factory.mktemp(kind), program=_program(kind.split()[0]), policy=PATIENT
            )
            servers[kind].start()
        return servers[kind]

    yield server
    for one in servers.values():
        one.kill()
        one.stop()


def _program(kind: str) -> Path:
    found = shutil.which("redis-server") if kind == "redis" else redis_server._bundled()
    if found is None:
        missing = f"no {kind} server is here: scripts/tools fetches it"
        if os.environ.get("WEFT_REQUIRE_TOOLS"):
            pytest.fail(missing)
        pytest.skip(missing)
    return Path(found)


EMBEDDED = ["embedded", "checkpointed", "crowded", "pod"]
REDIS = ["redis", "valkey-killed"]  # both servers, of which one is killed with the process


@pytest.fixture(params=[*EMBEDDED, *REDIS])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, shared_server: Callable[[str], RedisServer]
) -> Iterator[Callable[..., Harness]]:
    yield from _making(request, tmp_path, shared_server)


@pytest.fixture(params=EMBEDDED)
def make_embedded(
    request: pytest.FixtureRequest, tmp_path: Path, shared_server: Callable[[str], RedisServer]
) -> Iterator[Callable[..., Harness]]:
    """For what only an engine does with crawls: they end, and are forgotten."""
    yield from _making(request, tmp_path, shared_server)


def _making(
    request: pytest.FixtureRequest, tmp_path: Path, shared_server: Callable[[str], RedisServer]
) -> Iterator[Callable[..., Harness]]:
    from harnesses import HARNESSES

    made: list[Harness] = []
    kind, program = HARNESSES[request.param]

    def build(**politeness: Any) -> Harness:
        folder = tmp_path / f"f{len(made)}"
        built: Any = kind
        made.append(
            built(folder, shared_server(program), len(made), **politeness) if program else built(folder, **politeness)
        )
        return made[-1]

    yield build
    for harness in made:
        harness.close()
