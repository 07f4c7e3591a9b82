"""Runs tests on a changed copy of the code; run.py starts it there. One question a line comes in, one answer goes out.

What every test run imports (pytest, the libraries, none of Weft) is imported here once, and each run is a fork of that:
a second saved for each mutant. A run is given up when its time is over. Whatever processes it leaves behind become
children of this one, and are ended before the next begins.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

_PRELOADED = (
    "pytest", "hypothesis", "hypothesis.strategies", "ada_url", "asyncio", "brotli", "click", "ctypes", "isal.igzip",
    "isal.isal_zlib", "msgspec", "prometheus_client", "publicsuffixlist", "pycurl", "redis", "rich.console", "sqlite3",
    "ssl", "turbohtml", "xxhash", "yaml",
)  # fmt: skip
_SET_CHILD_SUBREAPER, _SET_PARENT_DEATH_SIGNAL = 36, 1
_MEMORY_BYTES = 3 * 1024**3  # a loop that appends for ever must not take the machine with it
_RECORDING_LIMIT_S = 1200.0
_NOTHING_COLLECTED = 5
_OUTPUT, _RESULT = Path("output.txt"), Path("result.json")


def main() -> None:
    _prctl(_SET_CHILD_SUBREAPER, 1)
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        question = json.loads(line)
        answer = _record(question) if "record" in question else _attempt(question)
        print(json.dumps(answer), flush=True)


def _record(question: dict[str, Any]) -> dict[str, Any]:
    """Runs the tests of a file on the code as it is, and gives what each has run."""
    from watching import Recorder

    file, without = question["record"], question["without"]
    recorder = Recorder(Path("src/weft").absolute(), question["modules"], _RESULT.absolute())
    status = _run([file, "-k", f"not ({without})", "-rfE", "--tb=short"], recorder, _RECORDING_LIMIT_S)
    if status not in (0, _NOTHING_COLLECTED):
        return {"output": _OUTPUT.read_text(errors="replace")[-4000:]}
    return {"tests": json.loads(_RESULT.read_text())}


def _attempt(question: dict[str, Any]) -> dict[str, Any]:
    """Runs tests on the changed code; gives by which of them the change was found."""
    from watching import Selection

    limits_s = question["limits_s"]
    files = list(dict.fromkeys(test.partition("::")[0] for test in limits_s))
    with _changed(question):
        selection = Selection(limits_s, _RESULT.absolute())
        status = _run([*files, "-x", "--tb=line"], selection, sum(limits_s.values()))
    if status == 0:
        return {"by": ""}
    by = json.loads(_RESULT.read_text())["by"] if _RESULT.exists() else f"pytest ended with {status}"
    return {"by": by}


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


@contextlib.contextmanager
def _changed(question: dict[str, Any]) -> Any:
    """The module with the change in it for as long as a test runs. Compiled code is named by the second in which its
    source was written, so none is kept from one change to the next."""
    if question["module"] is None:
        yield
        return
    path = Path("src/weft") / question["module"]
    text = path.read_text()
    try:
        _forget_compiled(path)
        path.write_text(question["text"])
        yield
    finally:
        path.write_text(text)
        _forget_compiled(path)


def _forget_compiled(path: Path) -> None:
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def _run(arguments: list[str], plugin: object, limit_s: float) -> int | None:
    """Gives the exit code; None if the time is over."""
    _RESULT.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _test(arguments, plugin)
    waiting = os.pidfd_open(child)
    ended, _, _ = select.select([waiting], [], [], limit_s)
    os.close(waiting)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    _end_what_is_left()
    shutil.rmtree(".hypothesis", ignore_errors=True)
    return os.waitstatus_to_exitcode(status) if ended else None


def _test(arguments: list[str], plugin: object) -> None:
    """Never returns: this is the fork."""
    code = 70
    try:
        os.setsid()
        _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        output = os.open(_OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        import pytest

        options = ["-p", "no:cacheprovider", "--hypothesis-seed=0", "--basetemp=basetemp"]
        code = int(pytest.main([*arguments, *options], plugins=[plugin]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_what_is_left() -> None:
    """Ends every process that descends from this one."""
    while left := _descendants():
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in found and process not in found}:
        found |= more
    return list(found - {os.getpid()})


if __name__ == "__main__":
    main()
