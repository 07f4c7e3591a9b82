"""What Weft needs of a machine: looked at one by one, each with what was found and what to do about it.

Nothing is changed, and nothing is asked of the network but loopback. A *problem* is in the way of `weft up` with these
settings; a *warning* is in the way of something that not everybody needs.
"""

from __future__ import annotations

import ctypes
import enum
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.config import ServiceConfig
from weft.errors import BadInput, Busy, Missing, ServerAway, WeftError, installing
from weft.frontier.clock import FOLDER, MachineClock, Unusable, default_path
from weft.frontier.redis.connection import RedisSettings, Unreachable, connect, inspect
from weft.supervise.redis_server import find_program
from weft.system import control
from weft.system import extras as optional
from weft.system.redis import startable

LEAST_PYTHON = (3, 11)
LEAST_FILES, GOOD_FILES = 1024, 4096
LEAST_BYTES, GOOD_BYTES = 100 << 20, 2 << 30
LEAST_INODES = 10_000
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM_S = 5.0
_STA_UNSYNC = 0x40
_TIMEX_BYTES, _TIMEX_STATUS = 208, 40  # struct timex on 64-bit Linux, and where its status is


class Verdict(enum.StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` says what to do, if something is to be done."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine(config: ServiceConfig) -> Iterator[Finding]:
    """Everything, in the order of a person's reading."""
    yield python()
    yield kernel()
    yield from extras(config)
    yield redis(config)
    yield api_port(config)
    yield open_files()
    yield disk(Path(config.server.data_dir))
    yield stored_data(Path(config.server.data_dir))
    yield time_of_day()
    yield politeness_clock()
    yield chromium()


def python() -> Finding:
    """Its version."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= LEAST_PYTHON:
        return Finding("python", Verdict.OK, f"Python {found}")
    least = ".".join(map(str, LEAST_PYTHON))
    return Finding("python", Verdict.PROBLEM, f"Python {found}", f"use Python {least} or newer")


def kernel() -> Finding:
    """Whether processes can be watched so that no signal ever reaches another one."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return Finding(
            "kernel", Verdict.PROBLEM, f"{os.uname().sysname} {os.uname().release}: no pidfd ({error})",
            "use Linux 5.4 or newer; in a container, allow pidfd_open in its seccomp profile",
        )  # fmt: skip
    return Finding("kernel", Verdict.OK, f"{os.uname().sysname} {os.uname().release}")


def extras(config: ServiceConfig) -> Iterator[Finding]:
    """The optional parts: those that the settings need are problems where they are missing."""
    needed = optional.needed(config, config.services.services)
    for extra, requirements in sorted(optional.packages().items()):
        missing = optional.missing(requirements)
        if not missing:
            yield Finding(f"extra {extra}", Verdict.OK, ", ".join(requirements))
            continue
        verdict = Verdict.PROBLEM if extra in needed else Verdict.WARNING
        yield Finding(f"extra {extra}", verdict, f"missing: {', '.join(missing)}", installing(f"weft[{extra}]"))


def redis(config: ServiceConfig) -> Finding:
    """A server that is named, else a program that can be started."""
    needed = Verdict.PROBLEM if "redis" in config.services.services else Verdict.WARNING
    if config.services.redis_url is not None:
        return _redis_server(config, needed)
    return redis_program(needed)


def redis_program(needed: Verdict) -> Finding:
    """The server that would be started."""
    try:
        program = find_program()
    except (Missing, BadInput) as error:
        return Finding("redis", needed, "no redis-server or valkey-server", str(error))
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PROGRAM_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("redis", needed, f"{program} does not run: {error}", "install redis-server, or weft[redis]")
    version = re.search(r"v=([\w.]+)", said.stdout)
    return Finding("redis", Verdict.OK, f"{program} {version[1] if version else said.stdout.strip()[:80]}")


def _redis_server(config: ServiceConfig, needed: Verdict) -> Finding:
    url, password = config.services.redis_url or "", config.services.redis_password
    try:
        client = connect(url, RedisSettings(password=password, socket_timeout_s=2.0, connect_timeout_s=2.0))
        try:
            facts = inspect(url, client, wait_s=0.0)
        finally:
            client.close()
    except ServerAway as away:
        return Finding("redis", Verdict.WARNING, str(away), "wait until it has loaded its data")
    except Unreachable as away:
        if startable(url) is None:
            return Finding("redis", needed, str(away), "start it, correct redis_url, or leave it out")
        found = redis_program(needed)
        if found.verdict is not Verdict.OK:
            return found
        return Finding("redis", Verdict.OK, f"{away}; `weft up` starts {found.found}")
    except WeftError as wrong:
        return Finding("redis", needed, str(wrong), "correct redis_url or redis_password, or leave them out")
    advice = "; ".join(facts.warnings)
    return Finding(
        "redis", Verdict.WARNING if advice else Verdict.OK, f"{facts.address}, version {facts.version}", advice
    )


def api_port(config: ServiceConfig) -> Finding:
    """Whether it can be listened at; by a service that runs here already it is taken for good reason."""
    name, server = "port", config.server
    state, _ = control.status(Path(server.data_dir))
    if state is not None and any(row.name.startswith("api") and row.pid for row in state.services):
        return Finding(name, Verdict.OK, f"{state.urls.get('api', server.port)}: the API of this data dir")
    try:
        from weft.jobs.api.server import listen

        listen(server.host, server.port).close()
    except ImportError:
        return Finding(name, Verdict.WARNING, "not looked at: the extra serve is missing")
    except (Busy, BadInput) as error:
        return Finding(name, Verdict.PROBLEM, str(error), "end what listens there, or choose another --port")
    return Finding(name, Verdict.OK, f"{server.host}:{server.port} is free")


def open_files() -> Finding:
    """The hard limit: Weft's processes take all that they are allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,} files"
    if hard == resource.RLIM_INFINITY or hard >= GOOD_FILES:
        return Finding("open files", Verdict.OK, found)
    verdict = Verdict.PROBLEM if hard < LEAST_FILES else Verdict.WARNING
    return Finding(
        "open files", verdict, found,
        f"raise the hard limit to {GOOD_FILES:,} or more: `ulimit -Hn`, limits.conf, or LimitNOFILE of systemd",
    )  # fmt: skip


def disk(data_dir: Path) -> Finding:
    """Room, and whether something can be written there."""
    folder = next(path for path in (data_dir.resolve(), *data_dir.resolve().parents) if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Finding("disk", Verdict.PROBLEM, f"{folder}: cannot be written", "choose another --data-dir")
    facts = os.statvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    found = f"{free / 1e9:,.1f} GB free at {folder}"
    if facts.f_files and facts.f_favail < LEAST_INODES:
        return Finding("disk", Verdict.PROBLEM, f"{facts.f_favail:,} inodes left at {folder}", "delete files there")
    if free >= GOOD_BYTES:
        return Finding("disk", Verdict.OK, found)
    verdict = Verdict.PROBLEM if free < LEAST_BYTES else Verdict.WARNING
    return Finding("disk", verdict, found, "make room, or choose another --data-dir")


def stored_data(data_dir: Path) -> Finding:
    """Whether the files of a service that was there before can be used."""
    from weft.jobs.rebuild import damage_in

    damage = damage_in(data_dir)
    if not damage:
        return Finding("stored data", Verdict.OK, f"nothing is damaged at {data_dir}")
    return Finding("stored data", Verdict.PROBLEM, f"{len(damage)} damaged", "; ".join(damage))


def time_of_day() -> Finding:
    """Schedules, deadlines and signatures go by it."""
    installed = Path(__file__).stat().st_mtime
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if time.time() < installed - 86_400:
        return Finding("clock", Verdict.PROBLEM, f"{now}: before Weft was installed", "set the clock: `timedatectl`")
    if _is_synchronised() is False:
        advice = "have it synchronised: `timedatectl set-ntp true`, or the host's clock if this is a container"
        return Finding("clock", Verdict.WARNING, f"{now}, not synchronised", advice)
    return Finding("clock", Verdict.OK, now)


def _is_synchronised() -> bool | None:
    """What the kernel knows of it; None where it does not say."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: nothing is changed
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
            return None
    except (AttributeError, OSError):
        return None
    status = int.from_bytes(buffer.raw[_TIMEX_STATUS : _TIMEX_STATUS + 4], sys.byteorder)
    return not status & _STA_UNSYNC


def politeness_clock() -> Finding:
    """The clock by which all crawls of this user are polite together."""
    try:
        MachineClock(default_path()).close()
    except Unusable as why:
        advice = f"name a folder that can be written in {FOLDER}, or run one crawl at a time"
        return Finding("politeness clock", Verdict.WARNING, str(why), advice)
    return Finding("politeness clock", Verdict.OK, str(default_path()))


def chromium(which: Callable[[str], str | None] = shutil.which) -> Finding:
    """Only for pages that need a browser."""
    for name in CHROMIUM:
        if (found := which(name)) is not None:
            return Finding("chromium", Verdict.OK, found)
    return Finding(
        "chromium", Verdict.WARNING, "not found", "install chromium for pages that need a browser; others do not"
    )
