"""What the tests of `weft.Engine` share: settings for a synthetic web, URLs of its hosts, kills, and waiting."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from pace import patience

import weft
from weft.engine.model import CrawlSnapshot
from weft.testing.web import SyntheticWeb

END_S = 30.0


def shared(web: SyntheticWeb) -> dict[str, Any]:
    return {"allow_private": True, "resolve": web.resolve, "delay": 0, "scope": "host"}


def host(web: SyntheticWeb, number: int) -> str:
    return f"http://127.1.0.{number + 1}:{web.port}/"


def nothing(web: SyntheticWeb, number: int, count: int, kind: str = "nothing") -> list[str]:
    """URLs that the host does not have: each is one short request."""
    return [f"{host(web, number)}{kind}/{at}" for at in range(count)]


def asked(web: SyntheticWeb, kind: str) -> int:
    return sum(f"/{kind}/" in arrival.path for arrival in web.arrivals())


def kill(engine: weft.Engine) -> None:
    pid = engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: engine.pid != pid)


def until(holds: Any, timeout_s: float = 10) -> None:
    limit = time.monotonic() + patience(timeout_s)
    while not holds():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.02)


def ended(engine: weft.Engine, name: str) -> CrawlSnapshot:
    standing: CrawlSnapshot = engine.wait(name, patience(END_S))
    return standing
