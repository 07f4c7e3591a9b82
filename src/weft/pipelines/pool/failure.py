"""The text of an exception: its last line and its traceback, even where the exception's own `__str__` fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from weft.errors import WeftError
from weft.pipelines.pool.record import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS, cut


def describe(error: BaseException) -> str:
    """The last line of an exception as Python prints it; Weft's own errors without the name of their class."""
    if isinstance(error, WeftError):
        return message(error) or type(error).__name__
    return cut(
        _text_or(lambda: traceback.format_exception_only(error)[-1].strip(), type(error).__name__), MAX_ERROR_CHARS
    )


def message(error: BaseException) -> str:
    """The text of an exception alone."""
    return _text_or(lambda: cut(str(error), MAX_ERROR_CHARS), "")


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of the module that caught the exception."""
    first = error.__traceback__
    if first is not None:
        own, frame = first.tb_frame.f_code.co_filename, first
        while frame.tb_next is not None and frame.tb_frame.f_code.co_filename == own:
            frame = frame.tb_next
        error = error.with_traceback(frame)
    return cut(_text_or(lambda: "".join(traceback.format_exception(error)), ""), MAX_TRACEBACK_CHARS)


def _text_or(text: Callable[[], str], otherwise: str) -> str:
    """The result of `text()`; `otherwise` if it raises, as an exception's own `__str__` may."""
    try:
        return text().encode(errors="backslashreplace").decode()
    except BaseException:
        return otherwise
