"""The words of a class attribute or an id."""

from __future__ import annotations

import re

MAX_NAME_CHARS = 300
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+").findall


def words_of(names: str) -> list[str]:
    """The words of some names, in lower case: `post-meta postMeta` has post and meta twice."""
    if names.islower():
        return names.replace("-", " ").replace("_", " ").split()
    return [word.lower() for word in _WORDS(names)]
