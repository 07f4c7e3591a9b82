"""Runs a user's code in a parser child: gathers what it prints and logs; what it raises is the error of the result."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import weft
from weft.engine.user_code.calls import CallResult
from weft.errors import BadInput

MOST_PRINTED, MOST_TRACEBACK = 64 * 1024, 20_000  # characters of one call
_FOREIGN_FOLDERS = (
    str(Path(weft.__file__).parent),
    str(Path(os.__file__).parent),
    "<",
)  # files that are not the user's


def run_code(work: Callable[[CallResult], None]) -> CallResult:
    """Has a result filled by the user's code; never raises."""
    result, printed, pid = CallResult(), Printed(), os.getpid()
    with redirect_stdout(printed), redirect_stderr(printed), _logged_to(printed):
        try:
            work(result)
        except BaseException as error:  # also what code raises to end its process: it is this page that ends
            result = failed(error)
    if os.getpid() != pid:
        os._exit(0)  # the code has forked, and this is the copy: it must not answer
    result.printed = printed.getvalue()
    return result


class Printed(io.StringIO):
    """What was printed, up to a bound."""

    def write(self, text: str) -> int:
        if (room := MOST_PRINTED - self.tell()) > 0:
            super().write(text[:room])
        return len(text)

    def fileno(self) -> int:
        """Of a program that the code starts, the output goes where the process's goes."""
        return sys.__stdout__.fileno() if sys.__stdout__ is not None else 1


def failed(error: BaseException) -> CallResult:
    """The result of a call that raised: the user's part of the traceback, and one line."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_FOREIGN_FOLDERS):
        first = first.tb_next
    text = "".join(traceback.format_exception(type(error), error, first))
    return CallResult(error=cause_of(error), traceback=text[-MOST_TRACEBACK:])


def cause_of(error: BaseException) -> str:
    """An exception as a cause to count by: its type, and the last line of the user's own code. What it says may differ
    from page to page, and is in the traceback."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_FOREIGN_FOLDERS) and "site-packages" not in file:
            place = f" at {Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    if not place:  # nothing of the user's ran: what was yielded is wrong, or the callback is missing
        lines = str(error).strip().splitlines()
        return lines[0][:200] if lines else type(error).__name__
    if isinstance(error, BadInput):  # what Weft refuses is named
        return f"{str(error).splitlines()[0][:200]}{place}"
    return f"{type(error).__name__}{place}"


class _logged_to:
    """Sends what the code logs to a text, while it runs."""

    def __init__(self, printed: Printed) -> None:
        self._handler = logging.StreamHandler(printed)
        self._handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def __enter__(self) -> None:
        root = logging.getLogger()
        root.addHandler(self._handler)
        if root.level > logging.INFO or root.level == logging.NOTSET:
            root.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)
