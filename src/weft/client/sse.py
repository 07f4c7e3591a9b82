"""Parses server-sent events from the bytes of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from weft.client.model import TaskEvent

LONGEST_LINE = 4 * 1024 * 1024


class EventParser:
    """An incremental parser: `feed(piece)` yields the events that are complete; an incomplete one at the end of a
    stream is dropped."""

    def __init__(self) -> None:
        self._incomplete = b""
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[TaskEvent]:
        """Adds bytes, and yields the events that they complete."""
        whole, mark, rest = (self._incomplete + piece).rpartition(b"\n")
        self._incomplete = rest
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
            if (event := _parse_event(lines)) is not None:
                yield event


def _parse_event(lines: list[bytes]) -> TaskEvent | None:
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
