"""CSS selectors and XPath on the parser's own engines: checked when rules are loaded, searched in parser processes.

A search has no bound of its own: `//a[.//b[.//c]]` on a deeply nested page takes minutes. So searches with selectors of
untrusted users run in a parser process, which has a time limit (engine/parsing/parsers.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

from weft.extract import turbo
from weft.extract.turbo import Document, Element

MAX_CHARS = 1000
_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")
# What the engine accepts, and what depends on a user or a window: it would match nothing, without a word.
_STATE = re.compile(
    r":(hover|active|focus(?:-within|-visible)?|visited|link|any-link|target(?:-within)?|current|past|future|playing"
    r"|paused|fullscreen|modal|user-(?:in)?valid|autofill)\b",
    re.IGNORECASE,
)
_CALL = re.compile(r"([A-Za-z_][\w.-]*(?::[\w.-]+)?)\s*\(")
_FUNCTIONS = frozenset(
    "last position count id local-name namespace-uri name string concat starts-with contains substring-before "
    "substring-after substring string-length normalize-space translate boolean not true false lang number sum floor "
    "ceiling round text node comment processing-instruction and or div mod".split()
)
_ENDS_IN_TEXT = re.compile(r"(?:@\s*[\w:.*-]+|attribute::[\w:.*-]+|text\(\s*\))[\s)]*(?:\[[^\[\]]*\][\s)]*)*$")


class BadSelector(ValueError):
    """A selector or path that cannot be used: its `str` is the reason."""


class Selector:
    """A CSS selector that was checked."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, scope: Document | Element) -> list[Element]:
        """The elements below `scope` that match, in document order; what is outside it counts for combinators."""
        return scope.select(self._text)


class Path:
    """An XPath that was checked; `gives_texts` if it ends in attributes or texts."""

    __slots__ = ("_path", "gives_texts")

    def __init__(self, path: turbo.XPath, text: str) -> None:
        self._path = path
        self.gives_texts = _ENDS_IN_TEXT.search(text) is not None

    def find(self, scope: Document | Element) -> list[Element | str]:
        """What it leads to from `scope`: elements and texts; a number or truth value as a text."""
        value = self._path(scope)
        if isinstance(value, list):
            return [node if isinstance(node, Element | str) else turbo.text_of(node) for node in value]
        if isinstance(value, bool):
            return ["true" if value else "false"]
        return [f"{value:.15g}" if isinstance(value, float) else value]


@lru_cache(maxsize=2000)
def selector(text: str) -> Selector:
    """Compiles a selector; BadSelector has the error."""
    _check_size(text, "a selector")
    if state := _STATE.search(_STRING.sub("''", text)):
        raise BadSelector(f"{state[0]} is not supported: a stored page has no such state")
    if why := turbo.selector_fault(text):
        raise BadSelector(f"{text!r:.80} is not understood: {why}")
    return Selector(text)


@lru_cache(maxsize=2000)
def path(text: str) -> Path:
    """Compiles a path; BadSelector has the error."""
    _check_size(text, "a path")
    bare = _STRING.sub("''", text)
    if "$" in bare:
        raise BadSelector(f"{text!r:.80}: variables are not supported")
    for name in _CALL.findall(bare):
        if name.rpartition("::")[2] not in _FUNCTIONS:
            raise BadSelector(f"{text!r:.80}: {name}() is not supported; use the functions of XPath 1.0")
    try:
        return Path(turbo.XPath(text), text)
    except (ValueError, RecursionError) as error:
        raise BadSelector(f"{text!r:.80} is not understood: {error}") from None


def _check_size(text: str, what: str) -> None:
    if len(text) > MAX_CHARS:
        raise BadSelector(f"{what} has at most {MAX_CHARS:,} characters, this one has {len(text):,}")
    if not text.strip():
        raise BadSelector(f"{what} is missing")
