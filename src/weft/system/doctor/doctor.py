"""Checks the requirements of Weft on a machine, each with its result and advice.

Nothing is changed, and nothing is asked of the network but loopback. A *problem* is in the way of `weft up` with these
settings; a *warning* is in the way of something that not everybody needs.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from weft.config import ServiceConfig
from weft.errors import BadInput, Busy, Missing, ServerAway, WeftError, installing
from weft.fetch.browser.chromium import HELP as CHROMIUM_HELP
from weft.fetch.browser.chromium import find_chromium, sandbox_trouble
from weft.frontier.clock import FOLDER_VARIABLE, MachineClock, UnusableClock, default_clock_path
from weft.frontier.redis.connection import RedisSettings, Unreachable, connect, inspect_server
from weft.supervise.redis_server import find_program
from weft.system import control
from weft.system import extras as optional
from weft.system.doctor import cluster_checks, machine_checks
from weft.system.doctor.finding import CheckState, Finding
from weft.system.redis import startable
from weft.system.services import wanted

LEAST_PYTHON = (3, 11)
LEAST_FILES, GOOD_FILES = 1024, 4096
LEAST_BYTES, GOOD_BYTES = 100 << 20, 2 << 30
LEAST_INODES = 10_000
PROGRAM_S = 5.0
_STA_UNSYNC = 0x40
_TIMEX_BYTES, _TIMEX_STATUS = 208, 40  # size of `struct timex` on 64-bit Linux, and the offset of its status


def examine(config: ServiceConfig) -> Iterator[Finding]:
    """Yields the results of all checks, in the order in which they are printed."""
    yield python()
    yield kernel()
    yield from extras(config)
    yield redis(config)
    yield from cluster_checks.broker(config)
    yield from machine_checks.overcommit(_has_redis_here(config))
    yield api_port(config)
    yield from machine_checks.api_keys(config)
    yield open_files()
    yield machine_checks.memory()
    yield disk(Path(config.server.data_dir))
    yield from machine_checks.folders(config)
    yield stored_data(Path(config.server.data_dir))
    yield time_of_day()
    yield politeness_clock()
    yield chromium()


def python() -> Finding:
    """Checks the version of Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= LEAST_PYTHON:
        return Finding("python", CheckState.OK, f"Python {version}")
    least = ".".join(map(str, LEAST_PYTHON))
    return Finding("python", CheckState.PROBLEM, f"Python {version}", f"use Python {least} or newer")


def kernel() -> Finding:
    """Checks that the kernel has pidfd, without which a signal could reach another process that got the same pid."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return Finding(
            "kernel", CheckState.PROBLEM, f"{os.uname().sysname} {os.uname().release}: no pidfd ({error})",
            "use Linux 5.4 or newer; in a container, allow pidfd_open in its seccomp profile",
        )  # fmt: skip
    return Finding("kernel", CheckState.OK, f"{os.uname().sysname} {os.uname().release}")


def extras(config: ServiceConfig) -> Iterator[Finding]:
    """Checks the optional parts: a missing one is a problem if the settings need it, else a warning."""
    needed = optional.needed(config, wanted(config))
    for extra, requirements in sorted(optional.packages().items()):
        missing = optional.missing(requirements)
        if not missing:
            yield Finding(f"extra {extra}", CheckState.OK, ", ".join(requirements))
            continue
        verdict = CheckState.PROBLEM if extra in needed else CheckState.WARNING
        yield Finding(f"extra {extra}", verdict, f"missing: {', '.join(missing)}", installing(f"weft[{extra}]"))


def redis(config: ServiceConfig) -> Finding:
    """Checks the Redis that `redis_url` names, else whether a server program can be started."""
    needed = CheckState.PROBLEM if "redis" in wanted(config) else CheckState.WARNING
    if config.services.redis_url is not None:
        return _check_redis_server(config, needed)
    return redis_program(needed)


def _has_redis_here(config: ServiceConfig) -> bool:
    """Whether a server on this machine is or will be used."""
    url = config.services.redis_url
    if url is None:
        return "redis" in wanted(config)
    return urlsplit(url).hostname in (None, "localhost", "127.0.0.1", "::1")


def redis_program(needed: CheckState) -> Finding:
    """Checks the server program that `weft up` would start."""
    try:
        program = find_program()
    except (Missing, BadInput) as error:
        return Finding("redis", needed, "no redis-server or valkey-server", str(error))
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PROGRAM_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("redis", needed, f"{program} does not run: {error}", "install redis-server, or weft[redis]")
    version = re.search(r"v=([\w.]+)", said.stdout)
    return Finding("redis", CheckState.OK, f"{program} {version[1] if version else said.stdout.strip()[:80]}")


def _check_redis_server(config: ServiceConfig, needed: CheckState) -> Finding:
    url, password = config.services.redis_url or "", config.services.redis_password
    try:
        client = connect(url, RedisSettings(password=password, socket_timeout_s=2.0, connect_timeout_s=2.0))
        try:
            facts = inspect_server(url, client, wait_s=0.0)
        finally:
            client.close()
    except ServerAway as away:
        return Finding("redis", CheckState.WARNING, str(away), "wait until it has loaded its data")
    except Unreachable as away:
        if startable(url) is None:
            return Finding("redis", needed, str(away), "start it, correct redis_url, or leave it out")
        program = redis_program(needed)
        if program.verdict is not CheckState.OK:
            return program
        return Finding("redis", CheckState.OK, f"{away}; `weft up` starts {program.found}")
    except WeftError as wrong:
        return Finding("redis", needed, str(wrong), "correct redis_url or redis_password, or leave them out")
    advice = "; ".join(facts.warnings)
    return Finding(
        "redis", CheckState.WARNING if advice else CheckState.OK, f"{facts.address}, version {facts.version}", advice
    )


def api_port(config: ServiceConfig) -> Finding:
    """Checks that the API's port is free, or used by the running service of this data dir."""
    name, server = "port", config.server
    state, _ = control.status(Path(server.data_dir))
    if state is not None and any(row.name.startswith("api") and row.pid for row in state.services):
        return Finding(name, CheckState.OK, f"{state.urls.get('api', server.port)}: the API of this data dir")
    try:
        from weft.jobs.api.server import listen

        listen(server.host, server.port).close()
    except ImportError:
        return Finding(name, CheckState.WARNING, "not looked at: the extra serve is missing")
    except (Busy, BadInput) as error:
        return Finding(name, CheckState.PROBLEM, str(error), "end what listens there, or choose another --port")
    return Finding(name, CheckState.OK, f"{server.host}:{server.port} is free")


def open_files() -> Finding:
    """Checks the hard limit of open files: Weft's processes use all that they may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,} files"
    if hard == resource.RLIM_INFINITY or hard >= GOOD_FILES:
        return Finding("open files", CheckState.OK, limit)
    verdict = CheckState.PROBLEM if hard < LEAST_FILES else CheckState.WARNING
    return Finding(
        "open files", verdict, limit,
        f"raise the hard limit to {GOOD_FILES:,} or more: `ulimit -Hn`, limits.conf, or LimitNOFILE of systemd",
    )  # fmt: skip


def disk(data_dir: Path) -> Finding:
    """Checks the free space and inodes of the data dir's disk, and that the folder is writable."""
    folder = next(path for path in (data_dir.resolve(), *data_dir.resolve().parents) if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Finding("disk", CheckState.PROBLEM, f"{folder}: cannot be written", "choose another --data-dir")
    facts = os.statvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    free_text = f"{free / 1e9:,.1f} GB free at {folder}"
    if facts.f_files and facts.f_favail < LEAST_INODES:
        return Finding("disk", CheckState.PROBLEM, f"{facts.f_favail:,} inodes left at {folder}", "delete files there")
    if free >= GOOD_BYTES:
        return Finding("disk", CheckState.OK, free_text)
    verdict = CheckState.PROBLEM if free < LEAST_BYTES else CheckState.WARNING
    return Finding("disk", verdict, free_text, "make room, or choose another --data-dir")


def stored_data(data_dir: Path) -> Finding:
    """Checks that existing files of an earlier service can be used."""
    from weft.jobs.rebuild import damage_in

    damage = damage_in(data_dir)
    if not damage:
        return Finding("stored data", CheckState.OK, f"nothing is damaged at {data_dir}")
    return Finding("stored data", CheckState.PROBLEM, f"{len(damage)} damaged", "; ".join(damage))


def time_of_day() -> Finding:
    """Checks that the clock is synchronised: schedules, deadlines and signatures depend on it."""
    installed = Path(__file__).stat().st_mtime
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if time.time() < installed - 86_400:
        return Finding("clock", CheckState.PROBLEM, f"{now}: before Weft was installed", "set the clock: `timedatectl`")
    if _is_synchronised() is False:
        advice = "have it synchronised: `timedatectl set-ntp true`, or the host's clock if this is a container"
        return Finding("clock", CheckState.WARNING, f"{now}, not synchronised", advice)
    return Finding("clock", CheckState.OK, now)


def _is_synchronised() -> bool | None:
    """Whether the kernel's clock is synchronised; None if that is unknown."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: nothing is changed
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
            return None
    except (AttributeError, OSError):
        return None
    status = int.from_bytes(buffer.raw[_TIMEX_STATUS : _TIMEX_STATUS + 4], sys.byteorder)
    return not status & _STA_UNSYNC


def politeness_clock() -> Finding:
    """Checks the clock that all crawls of this user share, so that they are polite to a site together."""
    try:
        MachineClock(default_clock_path()).close()
    except UnusableClock as why:
        advice = f"name a folder that can be written in {FOLDER_VARIABLE}, or run one crawl at a time"
        return Finding("politeness clock", CheckState.WARNING, str(why), advice)
    return Finding("politeness clock", CheckState.OK, str(default_clock_path()))


def chromium(find: Callable[[], str | None] = find_chromium) -> Finding:
    """Checks for Chromium, which only pages that need a browser use."""
    path = find()
    if path is not None and (why := sandbox_trouble()):
        advice = "allow user namespaces, or set `browser_sandbox: false`, which protects less"
        return Finding("chromium", CheckState.WARNING, f"{path}; its sandbox cannot be had ({why})", advice)
    if path is not None:
        who = " under a user id that owns nothing" if os.geteuid() == 0 else ""
        return Finding("chromium", CheckState.OK, f"{path}; it runs in its sandbox{who}")
    return Finding(
        "chromium", CheckState.WARNING, "not found", f"for pages that need a browser (`render`), {CHROMIUM_HELP}"
    )
