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
    """Until a server's file has all that it acknowledged: while it syncs, it keeps writes back for up to 2 s.

    It takes no more writes from then on, whoever sends them: it is about to be killed.
    """
    client: Any = connect(url)
    client.execute_command("CLIENT", "PAUSE", int(2000 * patience(LIMIT_S)), "WRITE")
    until = time.monotonic() + patience(LIMIT_S)
    while client.info("persistence")["aof_buffer_length"]:
        assert time.monotonic() < until, "the server does not write"
        time.sleep(0.001)
    client.close()


def kill_written(server: RedisServer) -> None:
    """Kills a server that will have everything again."""
    wait_written(server.url)
    server.kill()


def kill_written_at(url: str) -> None:
    """The same for a server that somebody else brings back."""
    client: Any = connect(url)
    pid = int(client.info("server")["process_id"])
    client.close()
    wait_written(url)
    os.kill(pid, signal.SIGKILL)


class Past:
    """What a server's file held at a moment: `bring_back` kills the server and starts it with that, the rest lost.

    So a kill ends that comes while acknowledged writes are kept back, and a power cut before a sync.
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
