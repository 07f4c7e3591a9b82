"""SIGKILL for Redis servers, by tests of all kinds."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from weft.frontier.redis.connection import connect
from weft.supervise.redis_server import RedisServer

LIMIT_S = 20.0


def wait_written(url: str) -> None:
    """Until a server's file has all that it acknowledged: while it syncs, it keeps writes back for up to 2 s.

    It takes no more writes from then on, whoever sends them: it is about to be killed.
    """
    client: Any = connect(url)
    client.execute_command("CLIENT", "PAUSE", int(2000 * LIMIT_S), "WRITE")
    until = time.monotonic() + LIMIT_S
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
