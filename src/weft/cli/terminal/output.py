"""What every command shares: the --json and --quiet flags, wherever on the line they stand, and text safe to show.

A page's title, text or URL may contain control codes for a terminal, which could move its cursor, change its title or
keys, or reverse the direction of a line.
"""

from __future__ import annotations

import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from io import RawIOBase
from typing import Any, BinaryIO

import click

SCHEMA = 1  # grows when a field of any command's JSON goes or changes its meaning


def output_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --json and --quiet to a command; the ones given before the command's name count as well."""

    def merge(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
        return value or bool((ctx.find_root().obj or {}).get("json" if param.name == "as_json" else "quiet"))

    as_json = click.option("--json", "as_json", is_flag=True, callback=merge, help="Machine-readable output on stdout.")
    quiet = click.option("-q", "--quiet", is_flag=True, callback=merge, help="Nothing on stderr but errors.")
    return as_json(quiet(command))


# C0 but for newline and tab, DEL, C1, what turns the direction of text, and separators that are line breaks to some.
_CODES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """A text in which no character does anything to a terminal: control codes as `\\x1b`, the others as `\\u202e`."""
    return _CODES.sub(_escaped, text)


def shown(text: str, *, err: bool = False) -> str:
    """A text as it goes to stdout, or stderr: on a terminal it is made visible, elsewhere it stays as it is."""
    return visible(text) if (sys.stderr if err else sys.stdout).isatty() else text


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _json_escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class VisibleStream(RawIOBase):
    """Takes the bytes of UTF-8 lines, and writes them so that no character does anything to a terminal.

    `as_json`: codes are written as JSON does, so that the lines stay what they are.
    """

    def __init__(self, out: BinaryIO, *, as_json: bool) -> None:
        self._out = out
        self._escape = _json_escaped if as_json else _escaped
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def write(self, data: Any) -> int:
        """Writes all of it, but for a carriage return at its end: it may belong to the end of a line."""
        text = self._held + self._decode(bytes(data))
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n")
        self._out.write(_CODES.sub(self._escape, text).encode())
        return len(data)

    def flush(self) -> None:
        """Hands over what was written."""
        self._out.flush()


def columns(rows: Sequence[Sequence[str]], *, is_right: Callable[[int], bool] = lambda _: False) -> list[str]:
    """Rows of cells as lines, two spaces between the columns; `is_right`: whether a column is set flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if is_right(at) else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def print_document(facts: Mapping[str, Any]) -> None:
    """What a command tells programs (docs/json.md): an object that begins with the version of its form."""
    print_json({"schema": SCHEMA} | dict(facts))


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    import msgspec

    document = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # JSON has its own way to write these; what it leaves as they are would reach a terminal.
    click.echo(_CODES.sub(_json_escaped, document) if sys.stdout.isatty() else document)
