"""Real Redis and Valkey servers for every kind of test, each in a folder of its own and gone with the test; and how
the suite is run: its pace, its order and its progress."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from weft.supervise import redis_server
from weft.supervise.redis_server import RedisServer

sys.path.insert(0, str(Path(__file__).parent / "shared"))  # what tests of all kinds import
# A run in the background of a shell is deaf to Ctrl-C, and so would be every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests that run at the same time crawl hosts of the same names: each process of theirs has a machine to itself.
os.environ["WEFT_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="weft-tests-")
# Many webs of the tests have a robots.txt that is never well: three tries are enough where nobody says otherwise.
os.environ.setdefault("WEFT_ROBOTS_PATIENCE_SECONDS", "0")

import failures
import pace
import progress
import schedule

# How long a generated case takes is the machine's affair.
settings.register_profile("weft", deadline=None)
settings.load_profile("weft")

KINDS = ("redis", "valkey")
StartServer = Callable[..., RedisServer]


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "write down how long the files take, for the order of the next runs"
    parser.addoption("--record-durations", action="store_true", help=help_text)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    pace.factor()
    if hasattr(config, "workerinput"):
        atexit.register(_end_at_once, os.getpid())
    if progress.is_wanted(config):
        config.pluginmanager.register(progress.Progress(config), "weft-progress")
        config.pluginmanager.register(failures.Failures(config), "weft-failures")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return schedule.SlowFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    least_s, slower = float(config.getini("timeout")), pace.factor() / pace.LEAST
    for item in items:
        own = item.get_closest_marker("timeout")
        limit_s = max(least_s, own.args[0]) if own else least_s
        item.add_marker(pytest.mark.timeout(limit_s * slower), append=False)
    if hasattr(config, "workerinput"):
        schedule.sort(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # thousands of tests are made, by every worker, and none of them is garbage
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        gc.unfreeze()  # or DuckDB reports, at the end, all that was never released


def _end_at_once(worker: int) -> None:
    """All is told when a worker ends: to take thousands of tests and what they import apart would be a quarter of what
    it has cost to collect them, in each worker. What a test has forked ends as it likes."""
    if os.getpid() == worker:
        os._exit(0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    watched = session.config.pluginmanager.get_plugin("weft-progress")
    if watched and session.config.getoption("--record-durations"):
        schedule.record(watched.seconds_by_file)


def server_program(kind: str) -> Path:
    """The program of that kind; a run that requires its tools fails without it, another one skips."""
    found = shutil.which("redis-server") if kind == "redis" else redis_server._bundled()
    if found is None:
        _is_missing(f"no {kind} server")
    return Path(found)


def _is_missing(what: str) -> NoReturn:
    missing = f"{what} is here: `make test` fetches it"
    if os.environ.get("WEFT_REQUIRE_TOOLS"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def nginx_here() -> None:
    """For tests of nginx; a run that requires its tools fails without it."""
    if shutil.which("nginx") is None:
        _is_missing("no nginx")


@pytest.fixture(scope="session")
def proxies_here() -> None:
    """For tests of real proxies; a run that requires its tools fails without them."""
    for program in ("tinyproxy", "microsocks"):
        if shutil.which(program) is None:
            _is_missing(f"no {program}")


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
