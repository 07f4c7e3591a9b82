"""All the text of a page or a feed, boilerplate included."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from weft.extract.dom import Document, Element
from weft.extract.main_text import without_empty_lines
from weft.extract.turbo import LAYOUT, unescape

_UNREAD = "script, style, template, noscript, iframe, object, svg, select, textarea"
_CDATA = "<![CDATA["
_COMMENT = "<!--"


def full_text(document: Document) -> str:
    """The visible text of a page, block by block."""
    body = document.find("body")
    if body is None:
        return ""
    root: Element = copy.deepcopy(body)
    root.remove(_UNREAD)
    return without_empty_lines(root.to_text(LAYOUT))


def without_markup(xml: str) -> str:
    """The character data of an XML document, found without parsing it."""
    return without_empty_lines(" ".join(_character_data(xml)))


def _character_data(xml: str) -> Iterator[str]:
    """The pieces between tags. Whatever is left open ends the document, so that no input is searched twice."""
    position = 0
    while (start := xml.find("<", position)) >= 0:
        yield unescape(xml[position:start])
        opening, closing = _delimiters(xml, start)
        end = xml.find(closing, start + len(opening))
        if end < 0:
            return
        if opening == _CDATA:
            yield xml[start + len(opening) : end]
        position = end + len(closing)
    yield unescape(xml[position:])


def _delimiters(xml: str, start: int) -> tuple[str, str]:
    if xml.startswith(_CDATA, start):
        return _CDATA, "]]>"
    return (_COMMENT, "-->") if xml.startswith(_COMMENT, start) else ("<", ">")
