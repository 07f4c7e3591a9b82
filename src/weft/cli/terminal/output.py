"""Shared by all commands: the flags --json and --quiet, at any position of the command line, and safe output of text.

A page's title, text or URL may contain terminal control codes, which could move the cursor, change the title or keys of
the terminal, or reverse the direction of a line.
"""

from __future__ import annotations

import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from io import RawIOBase
from typing import Any, BinaryIO

import click

SCHEMA = 1  # incremented when a field of any command's JSON is removed or changes its meaning


def output_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --json and --quiet to a command; those given before the command's name count as well."""

    def merge(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
        return value or bool((ctx.find_root().obj or {}).get("json" if param.name == "as_json" else "quiet"))

    as_json = click.option("--json", "as_json", is_flag=True, callback=merge, help="Machine-readable output on stdout.")
    quiet = click.option("-q", "--quiet", is_flag=True, callback=merge, help="Nothing on stderr but errors.")
    return as_json(quiet(command))


# C0 except newline and tab, DEL, C1, direction marks, and separators that some programs treat as line breaks.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """A text without characters that affect a terminal: control codes as `\\x1b`, others as `\\u202e`."""
    return _CONTROL_CHARACTERS.sub(_escape_match, text)


def printable(text: str, *, err: bool = False) -> str:
    """A text for stdout, or stderr: made visible on a terminal, unchanged elsewhere."""
    return visible(text) if (sys.stderr if err else sys.stdout).isatty() else text


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_for_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


class VisibleStream(RawIOBase):
    """Accepts UTF-8 lines as bytes, and writes them without characters that affect a terminal.

    `as_json`: codes are escaped as in JSON, so that the lines stay valid.
    """

    def __init__(self, out: BinaryIO, *, as_json: bool) -> None:
        self._out = out
        self._escape = _escape_for_json if as_json else _escape_match
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def write(self, data: Any) -> int:
        """Writes everything except a carriage return at the end, which may be part of a line ending."""
        text = self._held + self._decode(bytes(data))
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n")
        self._out.write(_CONTROL_CHARACTERS.sub(self._escape, text).encode())
        return len(data)

    def flush(self) -> None:
        """Flushes the underlying stream."""
        self._out.flush()


def columns(rows: Sequence[Sequence[str]], *, is_right: Callable[[int], bool] = lambda _: False) -> list[str]:
    """Formats rows of cells as lines, with two spaces between columns; `is_right`: whether a column is
    right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if is_right(at) else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def print_document(facts: Mapping[str, Any]) -> None:
    """Prints a command's JSON document (docs/json.md): an object that begins with the version of the schema."""
    print_json({"schema": SCHEMA} | dict(facts))


def print_json(value: Any) -> None:
    """Prints one JSON document on stdout."""
    import msgspec

    document = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # Escapes characters that JSON allows and a terminal would interpret.
    click.echo(_CONTROL_CHARACTERS.sub(_escape_for_json, document) if sys.stdout.isatty() else document)
