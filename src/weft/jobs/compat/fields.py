"""Reads the body of a Firecrawl request: each field is taken, known to change nothing, or refused by name.

taken       its type and limits are checked
harmless    it changes nothing in what is scraped: any value
lacking     it would change what is scraped, and Weft does not have it: refused, unless its value asks for nothing
unknown     refused, as Firecrawl does
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from weft.jobs.api.problems import Refusal

BAD_REQUEST = "BAD_REQUEST"


class Denied(Refusal):
    """An error in Firecrawl's words."""

    def __init__(self, status: int, said: str, code: str = "", **more: Any) -> None:
        super().__init__(status, said, **more)
        self.code = code


def bad(path: str, said: str) -> Denied:
    """A field is not accepted."""
    return Denied(400, f"{path}: {said}", BAD_REQUEST, errors=[(path, said)])


class BodyFields:
    """One object of a body."""

    def __init__(self, given: Any, path: str = "") -> None:
        if not isinstance(given, dict):
            raise bad(path or "body", "must be an object")
        self._given: dict[str, Any] = dict(given)
        self._path = path
        self._known: set[str] = set()

    def at(self, name: str) -> str:
        """A field's whole name."""
        return f"{self._path}.{name}" if self._path else name

    def pop(self, name: str, default: Any = None) -> Any:
        """A field of any type."""
        self._known.add(name)
        found = self._given.pop(name, None)
        return default if found is None else found

    def text(self, name: str, default: str | None = None, among: Collection[str] = ()) -> Any:
        """A text, or one of some."""
        found = self.pop(name, default)
        if found is not None and (not isinstance(found, str) or (among and found not in among)):
            raise bad(self.at(name), f"use one of {', '.join(among)}" if among else "must be a text")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        found = self.pop(name, default)
        if not isinstance(found, bool):
            raise bad(self.at(name), "must be true or false")
        return found

    def number(self, name: str, default: Any, least: float, most: float, *, whole: bool = True) -> Any:
        """A number within limits."""
        found = self.pop(name, default)
        if found is None:
            return None
        kinds = (int,) if whole else (int, float)
        if isinstance(found, bool) or not isinstance(found, kinds) or not least <= found <= most:
            raise bad(self.at(name), f"must be a {'whole ' if whole else ''}number from {least:,} to {most:,}")
        return found

    def texts(self, name: str, most: int, default: Any = ()) -> list[str]:
        """A list of texts."""
        found = self.pop(name, list(default))
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise bad(self.at(name), "must be a list of texts")
        if len(found) > most:
            raise bad(self.at(name), f"has {len(found):,} entries: at most {most:,}")
        return found

    def harmless(self, *names: str) -> None:
        """Fields that change nothing here."""
        for name in names:
            self.pop(name)

    def lacking(self, fields: Mapping[str, str]) -> None:
        """Fields that Weft does not have, with the reason: accepted only where they ask for nothing."""
        for name, why in fields.items():
            found = self.pop(name)
            if found not in (None, False, 0, "", [], {}):
                raise bad(self.at(name), f"is not available: {why}")

    def end(self) -> None:
        """Refuses what is left."""
        if self._given:
            from weft.names import nearest

            name = next(iter(self._given))
            near = nearest(name[:100], self._known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise bad(self.at(name)[:200], f"Unrecognized key in body{hint}")
