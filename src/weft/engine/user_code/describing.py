"""Describes a user's code in a process of its own: the process that starts a crawl does not import it either."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import msgspec

from weft.engine.user_code.calls import Code, Description, Loading, Runner, decode_loading, encode
from weft.errors import BadInput, WeftError

IMPORT_S = 120.0
_CHILD_MODULE = "weft.engine.user_code.describing"


class _ChildAnswer(msgspec.Struct):
    description: Description | None = None
    error: str = ""


def describe(code: Code) -> Description:
    """The description of the code; BadInput if it cannot be loaded, or is no crawl code."""
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and module; it is the user's own code that it imports)
            [sys.executable, "-m", _CHILD_MODULE], input=encode(Loading(code)), capture_output=True, timeout=IMPORT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadInput(f"{code.source}: its import has not ended after {IMPORT_S:g} s") from None
    try:
        answer = msgspec.msgpack.decode(done.stdout, type=_ChildAnswer)
    except msgspec.DecodeError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        last = said[-1] if said else f"exit code {done.returncode}"
        raise BadInput(f"{code.source}: its import ended the process: {last}") from None
    if answer.description is None:
        raise BadInput(answer.error)
    return answer.description


def runner_of(loading: Loading) -> Runner:
    """The code, loaded in this process."""
    module, _, name = loading.code.maker.partition(":")
    runner: Runner = getattr(import_module(module), name)(loading.code)
    if loading.state:
        runner.restore(loading.state)
    return runner


def _main() -> None:
    """Reads a Loading, and writes the description; output of the code goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    loading = decode_loading(sys.stdin.buffer.read())
    try:
        answer = _ChildAnswer(runner_of(loading).describe())
    except WeftError as error:
        answer = _ChildAnswer(error=str(error))
    except BaseException as error:  # the constructor of a user's class may raise anything
        answer = _ChildAnswer(error=f"{loading.code.source}: {type(error).__name__}: {error}")
    with os.fdopen(out, "wb") as file:
        file.write(encode(answer))


if __name__ == "__main__":
    _main()
    sys.stdout.flush()
    os._exit(0)  # threads of the user's code must not keep the process running
