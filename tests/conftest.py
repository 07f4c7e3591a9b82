"""Real Redis and Valkey servers for every kind of test, each in a folder of its own and gone with the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.supervise import redis_server
from weft.supervise.redis_server import RedisServer

sys.path.insert(0, str(Path(__file__).parent / "shared"))  # what tests of all kinds import
# A run in the background of a shell is deaf to Ctrl-C, and so would be every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

KINDS = ("redis", "valkey")
StartServer = Callable[..., RedisServer]


def server_program(kind: str) -> Path:
    """The program of that kind; a run that requires its tools fails without it, another one skips."""
    found = shutil.which("redis-server") if kind == "redis" else redis_server._bundled()
    if found is None:
        missing = f"no {kind} server is here: `make test` fetches it"
        if os.environ.get("WEFT_REQUIRE_TOOLS"):
            pytest.fail(missing)
        pytest.skip(missing)
    return Path(found)


@pytest.fixture
def mount_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a disk of its own, as small as wanted: `mount_disk("1m")`."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "small-disk"

    def mount(size: str) -> Path:
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "weft", str(folder)]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode:
            pytest.skip(f"mounting a tmpfs is not allowed here: {mounted.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers: `start_server("valkey", settings={...}, folder=path)`; all are stopped at the end."""
    servers: list[RedisServer] = []

    def start(
        kind: str = "redis", *, settings: dict[str, str] | None = None, folder: Path | None = None, wait: bool = True
    ) -> RedisServer:
        place = folder or tmp_path / f"server{len(servers)}"
        server = RedisServer(place, program=server_program(kind), settings=settings)
        servers.append(server)
        if wait:
            server.start()
        return server

    yield start
    for server in servers:
        server.kill()
        server.stop()
