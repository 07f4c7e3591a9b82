"""Text to tree, with a bound on the few inputs that are costly to parse.

turbohtml is linear in depth (it stops nesting at 512 levels), but the standard itself lets a page multiply: each block
re-opens every formatting element left open before it (`<p><i a=1><i a=2>…<p>x<p>x`: 510 elements for 4 bytes), with
all its attributes, and each further `<body>` or `<html>` merges its attributes into the first. 2 MiB of that would be
gigabytes. The multiplication needs tags, so a page that has too few of them is parsed at once, and one that has enough
in steps, until it is done or has used up its time: then the part parsed so far is the page. Where a formatting tag
seems to have very many attributes, the steps are small, since one such step can cost as much as a page.

Invariant: a page is cut only for using more than CPU_SECONDS of processor time, 10 times what 2 MiB of the web need.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from time import thread_time

from weft.extract import turbo
from weft.extract.letters import times
from weft.extract.turbo import Document

CPU_SECONDS = 0.1
# Costs at most 0.2 s and 185 MB.
MAX_ELEMENTS = 2_000_000
# How many formatting elements a tag can re-open: as many as the parser nests, and of those without attributes (which
# the standard keeps three of each at a time) this many.
NESTED = 510
NESTED_PLAIN = 42
STEP_CHARS = 16384
SMALL_STEP_CHARS = 128
# A tag that could have too many attributes holds such a stretch without a `>`; so do scripts, and few other things.
STRETCH_CHARS = 4096
MANY_ATTRIBUTES = 500

_SHADOW = re.compile(r"(<template\b[^<>]*?)shadowrootmode", re.IGNORECASE)
_COPIED = re.compile(r"<(?:a|b|big|body|code|em|font|html|i|nobr|s|small|strike|strong|tt|u)[\s/]", re.I)
# The same without `a`, of which one at a time is open, and quick to pass over other tags.
_REOPENED = re.compile(
    r"<(?=[bcefhinstu])(?:b|i|s|u|em|tt|big|body|code|font|html|nobr|small|strike|strong)[\s/]", re.I
)
_ATTRIBUTE = re.compile(r"[^\s/>=]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>]*))?")


def parse(text: str, clock: Callable[[], float] = thread_time) -> tuple[Document, bool]:
    """The tree of a page, and whether it was cut short."""
    if _may_be_stuffed(text):
        return _in_steps(text, SMALL_STEP_CHARS, clock)
    if _may_multiply(text):
        return _in_steps(text, STEP_CHARS, clock)
    return turbo.parse_at_once(text), False


def _may_multiply(text: str) -> bool:
    """Whether a page may become more than MAX_ELEMENTS."""
    tags = times(text, "<")
    if tags * NESTED <= MAX_ELEMENTS:
        return False
    return tags * (NESTED_PLAIN + len(_REOPENED.findall(text))) > MAX_ELEMENTS


def _may_be_stuffed(text: str) -> bool:
    """Whether some tag whose attributes are copied along may have MANY_ATTRIBUTES; for most pages a few searches."""
    find = text.find
    inside = False
    for start in range(0, len(text) - STRETCH_CHARS, STRETCH_CHARS):
        if find(">", start, start + STRETCH_CHARS) >= 0:
            inside = False
        elif not inside:
            inside = True
            if _is_stuffed(text, text.rfind(">", 0, start) + 1, start + STRETCH_CHARS):
                return True
    return False


def _is_stuffed(text: str, start: int, end: int) -> bool:
    """Whether a stretch without `>` begins a tag of MANY_ATTRIBUTES. Words of a script may count as such."""
    tag = _COPIED.search(text, start, end)
    if not tag:
        return False
    close = text.find(">", end)
    attributes = _ATTRIBUTE.finditer(text, tag.end(), close if close >= 0 else len(text))
    return sum(1 for _ in islice(attributes, MANY_ATTRIBUTES)) == MANY_ATTRIBUTES


def _in_steps(text: str, step: int, clock: Callable[[], float]) -> tuple[Document, bool]:
    """The tree of a page, as far as it can be parsed within the time limit."""
    if "shadowrootmode" in text:
        # Such a template would be put into a shadow root, which is not searched; `parse_at_once` has an option for it.
        text = _SHADOW.sub(r"\1data-shadowrootmode", text)
    deadline = clock() + CPU_SECONDS
    return turbo.parse_in_steps(text, step, lambda: clock() > deadline)
