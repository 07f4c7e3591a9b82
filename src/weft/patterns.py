"""Regular expressions from users and callers, on RE2: matching takes time linear in the text.

The only module that imports google-re2, an extra: `weft[patterns]`. Length, memory and program size are limited before
a pattern is used, so that neither compiling nor matching a hostile one takes long: RE2 refuses `(a{100}){100}` instead
of expanding it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any

from weft.errors import Missing

MAX_CHARS = 500
MAX_SEARCHED = 500_000  # bytes of one text: finding *all* matches may pass over it once for each
MAX_URL_PATTERN_CHARS = 1000
# Of one list of URL patterns. A URL of 2,000 characters costs at most about 5 µs for each instruction, where RE2's
# automaton has too many states to be built; `/blog/.*` has 12 instructions.
MAX_URL_INSTRUCTIONS = 4000
ON_URL, ON_PATH = "re2:", "re2-path:"  # how URL patterns are written in `include` and `exclude`
_MAX_MEMORY = 256 << 10
_MAX_URL_MEMORY = 32 << 10
_CACHED = 256  # compiled patterns of each kind: each may take all the memory that it is allowed


class BadPattern(ValueError):
    """A pattern that cannot be used: its `str` is the reason."""


class Pattern:
    """A compiled pattern that is searched for in texts."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._group = 1 if compiled.groups else 0

    def find(self, text: str, most: int) -> list[str]:
        """The matches in a text: the first group if there is one, otherwise the whole match."""
        searched = text.encode("utf-8", "replace")[:MAX_SEARCHED]
        found = islice(self._compiled.finditer(searched), most)
        return [(match.group(self._group) or b"").decode("utf-8", "replace") for match in found]


class UrlPattern:
    """A compiled pattern that is searched for in URLs, or in their paths alone."""

    def __init__(self, compiled: Any, is_of_path: bool) -> None:
        self._compiled = compiled
        self._is_of_path = is_of_path
        self.instructions = int(compiled.programsize)

    def matches(self, url: str) -> bool:
        """Whether it occurs in a canonical URL."""
        text = url[url.index("/", 8) :].partition("?")[0] if self._is_of_path else url
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


@lru_cache(maxsize=_CACHED)
def compile_pattern(text: str) -> Pattern:
    """BadPattern has the error; Missing if RE2 is not installed."""
    _check_length(text, MAX_CHARS)
    if not text:
        raise BadPattern("a pattern is missing")
    return Pattern(_compiled(text, _MAX_MEMORY, is_utf8=True))


def is_url_pattern(pattern: str) -> bool:
    """Whether an entry of `include` or `exclude` is a pattern for RE2."""
    return pattern.startswith((ON_URL, ON_PATH))


@lru_cache(maxsize=_CACHED)
def compile_url_pattern(pattern: str) -> UrlPattern:
    """A pattern with its prefix `re2:` or `re2-path:`. Raises as `compile_pattern` does."""
    is_of_path = pattern.startswith(ON_PATH)
    text = pattern.removeprefix(ON_PATH if is_of_path else ON_URL)
    _check_length(text, MAX_URL_PATTERN_CHARS)
    if has_control(text):
        raise BadPattern("a pattern has no control characters")
    # Canonical URLs are ASCII: by bytes, the programs are a quarter as large.
    return UrlPattern(_compiled(text, _MAX_URL_MEMORY, is_utf8=False), is_of_path)


def has_control(text: str) -> bool:
    """Whether there is a control character in it: no URL has one."""
    return any(char < " " or char == "\x7f" for char in text)


def _check_length(text: str, most: int) -> None:
    if len(text) > most:
        raise BadPattern(f"a pattern has at most {most:,} characters, this one has {len(text):,}")


def _compiled(text: str, memory: int, *, is_utf8: bool) -> Any:
    try:
        import re2
    except ModuleNotFoundError as error:
        if error.name != "re2":
            raise
        raise Missing.of_extra("google-re2", "patterns") from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    if not is_utf8:
        options.encoding = re2.Options.Encoding.LATIN1
        options.never_capture = True  # only whether it matches is asked
    try:
        return re2.compile(text.encode("utf-8", "replace"), options)
    except re2.error as error:
        said = error.args[0] if error.args else b""
        raise BadPattern(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
