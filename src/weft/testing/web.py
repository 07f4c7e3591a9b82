"""The synthetic web for tests: starts a server in a process of its own, and provides the judge.

    with synthetic_web(hosts=30, pages=300, profile="messy") as web:
        crawl(web.seeds)
        verdict = web.judge(delay_s=0.2)
        assert verdict.ok, verdict

The server ends with the block, and also when this process dies.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import Busy
from weft.testing.arrivals import Arrival, read_arrivals
from weft.testing.content.sites import WorldSpec
from weft.testing.judge import CrawlVerdict, Key, judge
from weft.testing.oracle import CrawlPlan, Expectation, expect
from weft.testing.server import ServeOptions
from weft.testing.world import World

STOP_S = 60.0  # a server that is killed loses the end of its log


class SyntheticWeb:
    """A running synthetic web."""

    def __init__(self, world: World, process: subprocess.Popen[bytes], arrivals: Path) -> None:
        self.world = world
        self.arrivals_path = arrivals
        self._process = process
        self._asking = threading.Lock()

    @property
    def port(self) -> int:
        return self.world.spec.port

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def seeds(self) -> list[str]:
        return self.world.seeds()

    @property
    def resolve(self) -> dict[str, str]:
        """Host names and the addresses to resolve them to; empty if hosts are addresses."""
        return self.world.resolve()

    def arrivals(self) -> list[Arrival]:
        """The requests answered so far; after `stop` also those that were never answered."""
        with self._asking:
            self._complete_log()
        return read_arrivals(self.arrivals_path)

    def _complete_log(self) -> None:
        """Makes a running server flush its log."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if self._process.poll() is None and stdin is not None and stdout is not None:
            with suppress(BrokenPipeError):  # it is ending, and writes everything
                stdin.write(b"\n")
                stdin.flush()
                stdout.readline()

    def expect(self, **plan: Any) -> Expectation:
        """The oracle's expectation for a crawl of this web; `plan` as in CrawlPlan, with this web's seeds by
        default."""
        plan.setdefault("seeds", tuple(self.seeds))
        return expect(self.world, CrawlPlan(**plan))

    def judge(self, delay_s: float, key: str | Key = "host", **plan: Any) -> CrawlVerdict:
        """Stops the server, so that the log is complete, and judges the requests in it."""
        self.stop()
        return judge(self.arrivals(), self.expect(**plan), delay_s, key)

    def stop(self) -> int:
        """Stops the server and returns its exit code; a second call does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@contextmanager
def synthetic_web(
    *,
    arrivals: Path | None = None,
    latency_s: float = 0.0,
    gzip: bool = False,
    cache_bytes: int = 256 << 20,
    **spec: Any,
) -> Iterator[SyntheticWeb]:
    """Runs a synthetic web for the duration of a block. `spec` as in WorldSpec; by default on a free port."""
    wanted = WorldSpec(**{"port": 0, **spec})
    with tempfile.TemporaryDirectory(prefix="weft-web-") as scratch:
        log = arrivals or Path(scratch) / "arrivals.jsonl"
        options = ServeOptions(str(log), latency_s=latency_s, gzip=gzip, cache_bytes=cache_bytes, until_eof=True)
        process = start(wanted, options)
        web = SyntheticWeb(World(replace(wanted, port=_port_of(process))), process, log)
        try:
            yield web
        finally:
            web.stop()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()


def start(spec: WorldSpec, options: ServeOptions) -> subprocess.Popen[bytes]:
    """Starts a server process; its first line on stdout has its port."""
    arguments = msgspec.json.encode((spec, options)).decode()
    command = [sys.executable, "-m", "weft.testing.server", arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603


def _port_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    reply = msgspec.json.decode(line or b'{"error": "the server ended before it listened"}')
    if "error" in reply:
        process.wait()
        raise Busy(reply["error"])
    return int(reply["port"])
