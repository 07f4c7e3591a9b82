"""The lines of a text: none of them empty or repeated."""

from __future__ import annotations

import re

# A line of at least this length is kept once: pages repeat blocks for small screens.
REPEATED_CHARS = 20

# Begins with the line feed before the line: that is searched for ten times as fast as `^`.
_EMPTY_ITEMS = re.compile(r"\n[ \t]*(?:[-*•|]|\d+\.)[ \t]*(?=\n|\Z)")
_EMPTY_LINES = re.compile(r"\n[ \t]*\n\s*\n")


def without_repeats(text: str, tolerated: float = 0.0) -> str:
    """A text without repeated lines; unchanged where they are at most the share `tolerated` of it."""
    lines = text.split("\n")
    long = [bare for bare in map(str.strip, lines) if len(bare) >= REPEATED_CHARS]
    if are_few_repeated(long, tolerated * len(text)):
        return without_empty_lines(text)
    seen: set[str] = set()
    kept = []
    for line in lines:
        bare = line.strip()
        if len(bare) >= REPEATED_CHARS:
            if bare in seen:
                continue
            seen.add(bare)
        kept.append(line)
    return without_empty_lines("\n".join(kept))


def are_few_repeated(lines: list[str], chars: float) -> bool:
    """Whether no line is repeated, as on most pages, or only some with at most `chars` characters in all."""
    different = set(lines)
    return len(different) == len(lines) or sum(map(len, lines)) - sum(map(len, different)) <= chars


def without_empty_lines(text: str) -> str:
    """A text without empty list items, and with no more than one empty line at a time."""
    return _EMPTY_LINES.sub("\n\n", _EMPTY_ITEMS.sub("\n", f"\n{text}")).strip()
