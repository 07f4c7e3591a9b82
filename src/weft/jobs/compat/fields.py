"""Reads the body of a Firecrawl request. Each field is one of:

accepted    its type and limits are checked
harmless    it changes nothing in what is scraped: any value
lacking     it would change what is scraped, and Weft does not have it: refused, unless its value is the default
unknown     refused, as Firecrawl does
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from weft.jobs.api.problems import Refusal

BAD_REQUEST = "BAD_REQUEST"


class Denied(Refusal):
    """An error in Firecrawl's format."""

    def __init__(self, status: int, message: str, code: str = "", **more: Any) -> None:
        super().__init__(status, message, **more)
        self.code = code


def bad(path: str, problem: str) -> Denied:
    """The error for a field that is not accepted."""
    return Denied(400, f"{path}: {problem}", BAD_REQUEST, errors=[(path, problem)])


class BodyFields:
    """The fields of one object in a body; each is removed as it is read."""

    def __init__(self, given: Any, path: str = "") -> None:
        if not isinstance(given, dict):
            raise bad(path or "body", "must be an object")
        self._given: dict[str, Any] = dict(given)
        self._path = path
        self._known: set[str] = set()

    def at(self, name: str) -> str:
        """The full name of a field, with those of the objects around it."""
        return f"{self._path}.{name}" if self._path else name

    def pop(self, name: str, default: Any = None) -> Any:
        """Removes and returns a field of any type."""
        self._known.add(name)
        value = self._given.pop(name, None)
        return default if value is None else value

    def text(self, name: str, default: str | None = None, among: Collection[str] = ()) -> Any:
        """Reads a text; `among`: the accepted values."""
        value = self.pop(name, default)
        if value is not None and (not isinstance(value, str) or (among and value not in among)):
            raise bad(self.at(name), f"use one of {', '.join(among)}" if among else "must be a text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Reads a boolean."""
        value = self.pop(name, default)
        if not isinstance(value, bool):
            raise bad(self.at(name), "must be true or false")
        return value

    def number(self, name: str, default: Any, least: float, most: float, *, whole: bool = True) -> Any:
        """Reads a number within limits."""
        value = self.pop(name, default)
        if value is None:
            return None
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise bad(self.at(name), f"must be a {'whole ' if whole else ''}number from {least:,} to {most:,}")
        return value

    def texts(self, name: str, most: int, default: Any = ()) -> list[str]:
        """Reads a list of at most `most` texts."""
        value = self.pop(name, list(default))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise bad(self.at(name), "must be a list of texts")
        if len(value) > most:
            raise bad(self.at(name), f"has {len(value):,} entries: at most {most:,}")
        return value

    def harmless(self, *names: str) -> None:
        """Discards fields that change nothing here."""
        for name in names:
            self.pop(name)

    def lacking(self, fields: Mapping[str, str]) -> None:
        """Refuses fields that Weft does not have, with the reason, unless their value asks for nothing."""
        for name, why in fields.items():
            value = self.pop(name)
            if value not in (None, False, 0, "", [], {}):
                raise bad(self.at(name), f"is not available: {why}")

    def end(self) -> None:
        """Refuses the fields that were not read."""
        if self._given:
            from weft.names import nearest

            name = next(iter(self._given))
            near = nearest(name[:100], self._known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise bad(self.at(name)[:200], f"Unrecognized key in body{hint}")
