"""How often a letter is in a text: a question about every page, so it is compiled where it can be (`_letters.c`).

`str.count` looks at one letter at a time in the versions of Python before 3.13, the compiled one at sixteen or more: a
page of 45 KB takes it 15 µs, and this one less than 1.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.compiled import counterpart

_compiled = counterpart("weft.extract._letters")
times: Callable[[str, str], int] = str.count if _compiled is None else _compiled.times
