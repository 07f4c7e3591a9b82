"""SIGKILL for Redis servers, by tests of all kinds."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from pace import patience

from weft.frontier.redis.connection import connect
from weft.supervise.redis_server import RedisServer

LIMIT_S = 20.0


def wait_written(url: str) -> None:
    """Waits until a server's append-only file has all acknowledged writes: while it syncs, it delays them by up to 2 s.

    Writes of all clients are paused from then on: the server is about to be killed.
    """
    client: Any = connect(url)
    client.execute_command("CLIENT", "PAUSE", int(2000 * patience(LIMIT_S)), "WRITE")
    until = time.monotonic() + patience(LIMIT_S)
    while client.info("persistence")["aof_buffer_length"]:
        assert time.monotonic() < until, "the server does not write"
        time.sleep(0.001)
    client.close()


def kill_written(server: RedisServer) -> None:
    """Kills a server that loses nothing by it."""
    wait_written(server.url)
    server.kill()


def kill_written_at(url: str) -> None:
    """As `kill_written`, for a server that another process restarts."""
    client: Any = connect(url)
    pid = int(client.info("server")["process_id"])
    client.close()
    wait_written(url)
    os.kill(pid, signal.SIGKILL)


class Past:
    """A copy of a server's append-only file: `bring_back` kills the server and starts it with the copy, the rest lost.

    This simulates a kill while acknowledged writes are delayed, and a power cut before a sync.
    """

    def __init__(self, server: RedisServer, copy: Path) -> None:
        client: Any = connect(server.url)
        until = time.monotonic() + patience(LIMIT_S)
        while client.info("persistence")["aof_buffer_length"]:
            assert time.monotonic() < until, "the server does not write"
        client.close()
        self._server = server
        self._file, self._copy = server.folder / "appendonlydir", copy
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._file, copy)

    def bring_back(self, *, start: bool = True) -> None:
        self._server.kill()
        shutil.rmtree(self._file)
        shutil.copytree(self._copy, self._file)
        if start:
            self._server.start()
