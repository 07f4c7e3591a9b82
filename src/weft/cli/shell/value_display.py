"""Displays the values of expressions at the prompt: selections as numbered elements, what callbacks yield as lists.

On a terminal in colour, without characters that would affect it; elsewhere as plain text.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pprint import pformat
from typing import Any, NamedTuple

from weft.cli.terminal.output import printable
from weft.engine.user_code.calls import DEFAULT_CALLBACK
from weft.engine.user_code.request import Request
from weft.engine.user_code.selected import Selected
from weft.spiders.trying import Tried

MOST_ELEMENTS = 20
LONGEST_ELEMENT = 400
WIDTH = 100


class _Line(NamedTuple):
    text: str
    language: str = ""  # for the colours; empty: none


@contextmanager
def displayed() -> Iterator[None]:
    """Displays the values of expressions in this way."""
    before, sys.displayhook = sys.displayhook, display
    try:
        yield
    finally:
        sys.displayhook = before


def display(value: Any) -> None:
    """Writes a value, and keeps it as `_`."""
    if value is None:
        return
    builtins._ = value  # type: ignore[attr-defined]
    if isinstance(value, Selected):
        _write(_lines_of_selection(value))
    elif isinstance(value, Tried):
        _write(_lines_of_output(value))
    elif isinstance(value, list | dict | tuple | set):
        _write([_Line(pformat(value, width=WIDTH, sort_dicts=False), "python")])
    else:
        _write([_Line(repr(value))])


def _lines_of_selection(selected: Selected) -> Iterator[_Line]:
    if not selected:
        yield _Line("nothing selected")
        return
    for index, one in enumerate(selected[:MOST_ELEMENTS]):
        text = " ".join((one.html or "").split())
        cut = f"{text[:LONGEST_ELEMENT]}…" if len(text) > LONGEST_ELEMENT else text
        yield _Line(f"{index:>3}  {cut}", "html")
    if len(selected) > MOST_ELEMENTS:
        yield _Line(f"     … {len(selected) - MOST_ELEMENTS} more")


def _lines_of_output(output: Tried) -> Iterator[_Line]:
    yield _Line(f"{len(output.items)} items")
    for item in output.items:
        short = json.dumps(item, ensure_ascii=False)
        yield _Line(short if len(short) <= WIDTH else json.dumps(item, ensure_ascii=False, indent=2), "json")
    yield _Line(f"{len(output.requests)} requests")
    for index, request in enumerate(output.requests):
        yield _Line(f"{index:>3}  {_request_text(request)}")


def _request_text(request: Request) -> str:
    body = f", {len(request.body)} bytes" if request.body is not None else ""
    meta = f", meta {request.meta!r}" if request.meta else ""
    return f"{request.method} {request.url} → {request.callback or DEFAULT_CALLBACK}{body}{meta}"


def _write(lines: Iterator[_Line] | list[_Line]) -> None:
    if not sys.stdout.isatty():
        for line in lines:
            print(line.text)
        return
    from rich.console import Console
    from rich.syntax import Syntax
    from rich.text import Text

    console = Console()
    for line in lines:
        text = printable(line.text)
        if not line.language:
            console.print(Text(text))
            continue
        highlighted = Syntax("", line.language, theme="ansi_dark", background_color="default").highlight(text)
        highlighted.rstrip()
        console.print(highlighted)
