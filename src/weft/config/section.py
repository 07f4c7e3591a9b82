"""The building blocks of sections: types with bounds, and the help texts of keys.

Modules of sections do not use `from __future__ import annotations`: every process evaluates the types of all keys
several times at its start, and would compile each of them from text each time.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

# Large enough for any use, and exact wherever values go: 64 bits, a double of a Lua script, milliseconds for libcurl.
LARGEST = 10**15
LONGEST_S = 1e9
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Timeout = Annotated[float, Meta(gt=0, le=LONGEST_S)]
SocketTimeout = Annotated[float, Meta(gt=0, le=1e6)]  # poll() accepts at most 2**31 milliseconds
Port = Annotated[int, Meta(ge=0, le=65535)]
Texts = tuple[str, ...]


def Help(text: str) -> Meta:
    """The help text of a key, for `weft config schema` and `weft crawl --help`."""
    return Meta(description=text)


def Tuning(text: str) -> Meta:
    """The help text of a key for special cases: shown by `weft crawl --help-all` only."""
    return Meta(description=text, extra={"tuning": True})


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen group of keys that one component uses."""
