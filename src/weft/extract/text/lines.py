"""The lines of a text: none of them empty or repeated."""

from __future__ import annotations

import re

# A line of at least this length is kept once: pages repeat blocks for small screens.
REPEATED_CHARS = 20

# Begins with the line feed before the line: that is searched for ten times as fast as `^`.
_EMPTY_ITEMS = re.compile(r"\n[ \t]*(?:[-*•|]|\d+\.)[ \t]*(?=\n|\Z)")
_EMPTY_LINES = re.compile(r"\n[ \t]*\n\s*\n")


def without_repeats(text: str) -> str:
    """A text without repeated lines."""
    lines = text.split("\n")
    long = [bare for bare in map(str.strip, lines) if len(bare) >= REPEATED_CHARS]
    if len(set(long)) == len(long):  # as on most pages
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


def without_empty_lines(text: str) -> str:
    """A text without empty list items, and with no more than one empty line at a time."""
    return _EMPTY_LINES.sub("\n\n", _EMPTY_ITEMS.sub("\n", f"\n{text}")).strip()
