"""Functions for pools under test: they do to a worker what items in the wild do, and worse."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from signal import ITIMER_REAL, SIGALRM, setitimer
from signal import signal as set_handler
from typing import Any

import msgspec

from weft.pipelines import Context, Skip

Item = Mapping[str, Any]


def double(item: Item, context: Context) -> Any:
    return item["n"] * 2


def echo(item: Item, context: Context) -> Any:
    return item


def act(item: Item, context: Context) -> Any:
    """Does what the item's `do` says; an item without it is an innocent bystander."""
    time.sleep(item.get("sleep", 0))
    value = ACTIONS[item["do"]](item, context) if "do" in item else "fine"
    if "trace" in item:
        fd = os.open(item["trace"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{item['id']}\n".encode())
        os.close(fd)
    return value


def _raise(item: Item, context: Context) -> Any:
    with context.stage("clone"):
        raise ValueError("no such branch")


def _unprintable(item: Item, context: Context) -> Any:
    class Worse(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    raise Worse


def _exit_0(item: Item, context: Context) -> Any:
    os._exit(0)


def _exit_7(item: Item, context: Context) -> Any:
    os._exit(7)


def _sys_exit(item: Item, context: Context) -> Any:
    sys.exit(3)


def _interrupt(item: Item, context: Context) -> Any:
    raise KeyboardInterrupt


def _kill(item: Item, context: Context) -> Any:
    context.log.info("about to die", item=item["id"])
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault(item: Item, context: Context) -> Any:
    ctypes.string_at(0)


def _kill_parent(item: Item, context: Context) -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(5)


def _kill_parents_parent(item: Item, context: Context) -> Any:
    """Ends the run itself, once: a resumed one finds the mark. `journal` is its journal, as a pattern, and how many
    bytes it must have by then: the run writes down what workers have done when it gets to that."""
    mark = item["trace"] + ".killed"
    if not os.path.exists(mark):  # noqa: PTH110
        os.close(os.open(mark, os.O_CREAT))
        pattern, least_bytes = item["journal"]
        while sum(map(os.path.getsize, glob.glob(pattern))) < least_bytes:  # noqa: PTH207
            time.sleep(0.01)
        with open(f"/proc/{os.getppid()}/stat") as file:  # noqa: PTH123
            os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
        time.sleep(600)
    return "survived"


def _wait_for_file(item: Item, context: Context) -> Any:
    while not os.path.exists(item["file"]):  # noqa: PTH110
        time.sleep(0.01)


def _stop(item: Item, context: Context) -> Any:
    os.kill(os.getpid(), signal.SIGSTOP)


def _stop_once(item: Item, context: Context) -> Any:
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return context.attempt


def _kill_once(item: Item, context: Context) -> Any:
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.attempt


def _unencodable(item: Item, context: Context) -> Any:
    return object()


def _too_big(item: Item, context: Context) -> Any:
    return b"x" * (65 << 20)


def _big(item: Item, context: Context) -> Any:
    return b"x" * (5 << 20)


def _prints(item: Item, context: Context) -> Any:
    line = "x" * 99
    for _ in range(item.get("mb", 100) * 10_000):
        print(line)
    return "printed"


def _prints_past_python(item: Item, context: Context) -> Any:
    subprocess.run(["sh", "-c", f"head -c {item.get('mb', 100)}000000 /dev/zero | tr '\\0' 'y'"], check=True)
    return "printed"


def _forks(item: Item, context: Context) -> Any:
    """Leaves a child, a daemon in its own session, and a copy of the worker that returns into its loop."""
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen("setsid sleep 601 & exit 0", shell=True)
    if os.fork() == 0:
        return "copy"
    return "forked"


def _installs_handler(item: Item, context: Context) -> Any:
    def boom(*_: Any) -> None:
        raise RuntimeError("alarm of an item long gone")

    signal.signal(signal.SIGALRM, boom)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return "installed"


def _installs_handler_by_name(item: Item, context: Context) -> Any:
    def boom(*_: Any) -> None:
        raise RuntimeError("alarm of an item long gone")

    set_handler(SIGALRM, boom)
    setitimer(ITIMER_REAL, 0.05)
    return "installed"


def _scribbles(item: Item, context: Context) -> Any:
    """Native code gone wild, which happens to hit the results: a record with a status that there is not."""
    context._slot.put(msgspec.msgpack.encode([0, "nobody", 7, 1, 0]))  # type: ignore[attr-defined]
    time.sleep(60)


def _recurses(item: Item, context: Context) -> Any:
    return _recurses(item, context)


def _recurses_to_death(item: Item, context: Context) -> Any:
    sys.setrecursionlimit(10**9)

    class Deep:
        def __repr__(self) -> str:
            return repr(self)

    threading.stack_size(1 << 16)
    return [Deep().__repr__() for _ in range(1)]


def _allocates(item: Item, context: Context) -> Any:
    kept = []
    while True:
        kept.append(b"\1" * (4 << 20))
        time.sleep(0.001)


def _native_block(item: Item, context: Context) -> Any:
    """Holds the interpreter's lock inside C for as long as it lasts."""
    ctypes.PyDLL(None).sleep(60)


def _sleeps(item: Item, context: Context) -> Any:
    time.sleep(60)


def _sleeps_once(item: Item, context: Context) -> Any:
    """For ever on its first run, and at once when the run is resumed: it leaves a mark in the working directory."""
    mark = f"slept-{item['id']}"
    if not os.path.exists(mark):  # noqa: PTH110
        os.close(os.open(mark, os.O_CREAT))
        time.sleep(600)
    return "rested"


def _daemon(item: Item, context: Context) -> Any:
    """Leaves a process in a session of its own, with all descriptors that can be inherited."""
    pid = os.spawnvp(os.P_NOWAIT, "setsid", ["setsid", "sleep", "602"])
    with open(item["trace"] + ".daemon", "w") as file:  # noqa: PTH123
        file.write(str(pid))
    while os.getpgid(pid) != pid:
        time.sleep(0.001)
    return "left"


def _closes_everything(item: Item, context: Context) -> Any:
    os.closerange(3, 256)
    return "closed"


def _closes_one(item: Item, context: Context) -> Any:
    """Closes what belongs to its worker: its link to the parent, the file behind its output, its item's log, stdout."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if item["kind"] in os.readlink(f"/proc/self/fd/{name}"):  # noqa: PTH115
                os.close(int(name))
    return "closed"


def _closes_and_opens(item: Item, context: Context) -> Any:
    """Closes everything, and keeps files open under the numbers that became free, as a library it uses may do."""
    os.closerange(3, 256)
    _opened.extend(tempfile.TemporaryFile() for _ in range(20))  # noqa: SIM115
    for number, file in enumerate(_opened):
        file.write(b"kept %d" % number)
        file.flush()
    context.log.info("closed and opened")
    return "opened"


def _replaces_link(item: Item, context: Context) -> Any:
    """Puts a socket of its own in place of the worker's; a process at the other end writes down what comes."""
    ours, theirs = socket.socketpair()
    with open(item["heard"], "wb") as heard:  # noqa: PTH123
        subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=heard)
    links = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]  # noqa: PTH208
    for fd in links:
        with contextlib.suppress(OSError):
            if fd not in (ours.fileno(), theirs.fileno()) and "socket:" in os.readlink(f"/proc/self/fd/{fd}"):  # noqa: PTH115
                os.dup2(ours.fileno(), fd)
    _opened.append(ours)
    ours.send(b"ready")
    while not os.path.getsize(item["heard"]):  # noqa: PTH202
        time.sleep(0.001)
    return "replaced"


def _closes_output(item: Item, context: Context) -> Any:
    os.close(1)
    os.close(2)
    return "closed"


def _uses_files(item: Item, context: Context) -> Any:
    """An innocent item that has files and sockets open while it logs and prints; all that is in them is its own."""
    files = [tempfile.TemporaryFile() for _ in range(10)]  # noqa: SIM115
    pairs = [socket.socketpair() for _ in range(5)]
    for file in files:
        file.write(b"mine")
        file.flush()
    context.log.info("before")
    print("printed", flush=True)
    time.sleep(0.01)
    context.log.error("behind")
    for ours, theirs in pairs:
        ours.send(b"mine")
        theirs.setblocking(False)
        assert theirs.recv(100) == b"mine"
        ours.close()
        theirs.close()
    for file in files:
        file.seek(0)
        assert file.read() == b"mine"
        file.close()
    return os.getpid()


def _skips(item: Item, context: Context) -> Any:
    raise Skip("seen before")


def _logs(item: Item, context: Context) -> Any:
    context.log.info("Starting clone stage", url="https://example.org/a.git", branch="master")
    with context.stage("clone"):
        context.log("cloning")
        subprocess.run(["sh", "-c", "echo from a subprocess"], check=True)
        print("printed line")
        print("to stderr", file=sys.stderr)
        logging.getLogger("some.library").warning("library says %s", "hello")
    context.log.error("bad thing", code=7)
    return "logged"


def _logs_and_dies(item: Item, context: Context) -> Any:
    context.log.error("first error")
    for number in range(item.get("lines", 250)):
        context.log.info("line", number=number)
    print("last words, unflushed")
    os.write(1, b"raw last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _value(item: Item, context: Context) -> Any:
    return item["value"]


def _leaks(item: Item, context: Context) -> Any:
    _kept.append(bytearray(b"\1" * (8 << 20)))
    return os.getpid()


def _pid(item: Item, context: Context) -> Any:
    return os.getpid()


def _deadline(item: Item, context: Context) -> Any:
    assert context.deadline is not None
    return context.deadline - time.monotonic()


def _stages(item: Item, context: Context) -> Any:
    with context.stage("one"):
        time.sleep(0.01)
    context.stage("two")
    return "staged"


_kept: list[bytearray] = []
_opened: list[Any] = []
ACTIONS = {
    name[1:]: function for name, function in list(globals().items()) if name.startswith("_") and callable(function)
}


async def coroutine(item: Item, context: Context) -> None: ...


class Methods:
    @staticmethod
    def static(item: Item, context: Context) -> Any:
        return "static"


def read_config(item: Item, context: Context) -> Any:
    """What the item wants of the shared configuration; `spoil` tries to change it, `kill` dies after reading it."""
    if "spoil" in item:
        context.config["spoilt"] = True  # type: ignore[index]
    found = context.config.get(item.get("key", "key"))
    if "kill" in item and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
