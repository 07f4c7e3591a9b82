"""Server-sent events out of the bytes of a stream, as they come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from weft.client.model import TaskEvent

LONGEST_LINE = 4 * 1024 * 1024


class EventParser:
    """`feed(piece)` gives the events that are whole now; a half one at the end of a stream is dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[TaskEvent]:
        """Takes some bytes."""
        whole, mark, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = rest
        if len(rest) > LONGEST_LINE:
            raise ValueError("a line of the stream is too long")
        if not mark:
            return
        for line in whole.split(b"\n"):
            line = line.removesuffix(b"\r")
            if line:
                self._lines.append(line)
                continue
            lines, self._lines = self._lines, []
            if (event := _event(lines)) is not None:
                yield event


def _event(lines: list[bytes]) -> TaskEvent | None:
    kind, number, data = "", "", []
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "id":
            number = value
        elif name == "data":
            data.append(value)
    document = msgspec.json.decode("\n".join(data), type=dict[str, Any]) if data else None
    return None if document is None else TaskEvent(kind, int(number) if number else None, document)
