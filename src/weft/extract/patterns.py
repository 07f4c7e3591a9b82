"""Patterns that users give, on RE2: they take time linear in the text, whoever wrote them.

The only module that imports google-re2, an extra: `weft[patterns]`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any

from weft.errors import Missing

MAX_CHARS = 500
MAX_SEARCHED = 500_000  # bytes of one text: finding *all* matches may pass over it once for each
_MAX_MEMORY = 1 << 20


class BadPattern(ValueError):
    """A pattern that cannot be used: its `str` says why."""


class Pattern:
    """A pattern that was checked."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._group = 1 if compiled.groups else 0

    def find(self, text: str, most: int) -> list[str]:
        """What it finds in a text: the first group where there is one, else the whole match."""
        searched = text.encode("utf-8", "replace")[:MAX_SEARCHED]
        found = islice(self._compiled.finditer(searched), most)
        return [(match.group(self._group) or b"").decode("utf-8", "replace") for match in found]


@lru_cache(maxsize=2000)
def compile_pattern(text: str) -> Pattern:
    """BadPattern says what is wrong with it; Missing where RE2 is not installed."""
    if len(text) > MAX_CHARS:
        raise BadPattern(f"a pattern has at most {MAX_CHARS:,} characters, this one has {len(text):,}")
    if not text:
        raise BadPattern("a pattern is missing")
    try:
        import re2
    except ModuleNotFoundError as error:
        if error.name != "re2":
            raise
        raise Missing.of_extra("google-re2", "patterns") from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return Pattern(re2.compile(text.encode("utf-8", "replace"), options))
    except re2.error as error:
        said = error.args[0] if error.args else b""
        raise BadPattern(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
