"""All the text of a page or a feed, boilerplate included."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from weft.extract.text.lines import without_empty_lines
from weft.extract.turbo import LAYOUT, Document, Element, nodes, unescape

_UNREAD = "script, style, template, noscript, iframe, object, svg, select, textarea"
# Elements that a reader sees as standing apart: their text is not joined to what is beside them.
_APART = frozenset(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p pre "
    "search section select summary table tbody td tfoot th thead title tr ul".split()
)
_SILENT = frozenset(("script", "style"))
_NEEDS_CARE = ", ".join(sorted(_APART | _SILENT))
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


def one_line(element: Element) -> str:
    """The text of an element on one line; scripts and styles in it left out, blocks set apart by a space."""
    if element.tag in _SILENT or element.select_one(_NEEDS_CARE) is None:
        return " ".join(element.text.split())
    pieces: list[str] = []
    blocks: dict[Element, Element] = {element: element}  # of each element the block that contains its text
    last: Element | None = None
    for node, text in nodes(element):
        if text is None:
            blocks[node] = node if node.tag in _APART else blocks.get(_parent(node), element)
            if node.tag == "br":
                last = None
        elif node.tag not in _SILENT:
            block = blocks[node]
            pieces.append(text if block == last else " " + text)
            last = block
    return " ".join("".join(pieces).split())


def _parent(element: Element) -> Element:
    parent = element.parent
    assert isinstance(parent, Element)  # it is below another
    return parent


def without_markup(xml: str) -> str:
    """The character data of an XML document, found without parsing it."""
    return without_empty_lines(" ".join(_character_data(xml)))


def _character_data(xml: str) -> Iterator[str]:
    """The pieces between tags. An unclosed construct ends the document, so that no input is searched twice."""
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
