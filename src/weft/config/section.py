"""What sections are made of: the types that bound a value, and what a key says about itself.

The modules of sections do without `from __future__ import annotations`: every process reads the types of all keys at
its start, several times, and would compile each of them from its text each time.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

# Beyond any use, and still exact wherever a value goes: 64 bits, a double of a Lua script, milliseconds for libcurl.
LARGEST = 10**15
LONGEST_S = 1e9
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Timeout = Annotated[float, Meta(gt=0, le=LONGEST_S)]
SocketTimeout = Annotated[float, Meta(gt=0, le=1e6)]  # a poll takes no more than 2**31 milliseconds
Port = Annotated[int, Meta(ge=0, le=65535)]
Texts = tuple[str, ...]


def Help(text: str) -> Meta:
    """What a key means, for `weft config schema` and `weft crawl --help`."""
    return Meta(description=text)


def Tuning(text: str) -> Meta:
    """The same for a key that few crawls need: `weft crawl --help-all` has it."""
    return Meta(description=text, extra={"tuning": True})


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen group of keys that one component reads."""
