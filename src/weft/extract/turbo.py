"""turbohtml, the parser: the only module that imports it, so that it can be replaced.

Its classes are used as they are. A replacement must also provide what it has besides the parser: CSS and XPath, writing
text, Markdown and HTML, microdata, character references, the detection of encodings and languages, and the WHATWG
decoders that Python lacks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import turbohtml
from turbohtml import (
    CData,
    Comment,
    Document,
    Element,
    IncrementalParser,
    MicrodataItem,
    Node,
    Text,
    XPath,
    unescape,
)  # fmt: skip

__all__ = [
    "LAYOUT", "STYLE", "Document", "Element", "MicrodataItem", "Node", "Text", "XPath", "detect_encoding",
    "detect_language", "in_a_block", "is_comment", "is_text", "nodes", "parse_at_once", "parse_in_steps",
    "register_decoders", "selector_fault", "text_of", "unescape", "without_comments", "without_templates",
]  # fmt: skip

_SHADOW = ("shadowrootmode", "data-shadowrootmode")
_BLOCKS = frozenset(("article", "body", "div", "main", "section"))
LAYOUT = turbohtml.PlainText(bullet="- ", table_cell_separator=" ")
STYLE = turbohtml.Markdown(tables=turbohtml.Markdown.Tables(cell_blocks="text"))
_NOTHING = turbohtml.parse("", positions=False)


def parse_at_once(text: str) -> Document:
    """The tree of a page."""
    return turbohtml.parse(text, positions=False, allow_declarative_shadow_roots=False)


def parse_in_steps(text: str, step: int, is_over: Callable[[], bool]) -> tuple[Document, bool]:
    """The tree of a page as far as it was parsed when `is_over`, and whether it was cut; half again as slow."""
    parser = IncrementalParser(positions=False)
    for start in range(0, len(text), step):
        parser.feed(text[start : start + step])
        if is_over():
            return parser.close(), start + step < len(text)
    return parser.close(), False


def in_a_block(element: Element) -> Element:
    """A copied element, inside a block of its own.

    turbohtml 1.15.4 crashes when it writes Markdown of a copied inline element with emphasis in it: it reads past the
    top of the copy. A block is returned unchanged, for moving a whole page costs as much as copying it.
    """
    if element.tag in _BLOCKS:
        return element
    block = turbohtml.parse_fragment("", "div", positions=False)
    block.append(element)
    return block


def nodes(element: Element) -> Iterator[tuple[Element, str | None]]:
    """All below an element, in document order: elements (and None), and texts, each behind its parent."""
    for node in element.descendants:
        if isinstance(node, Text | CData):
            if isinstance(parent := node.parent, Element):
                yield parent, node.text
        elif isinstance(node, Element):
            yield node, None


def text_of(node: Node) -> str:
    """The text of any node."""
    return node.text


def selector_fault(selector: str) -> str:
    """What is wrong with a CSS selector; empty for nothing."""
    try:
        _NOTHING.select(selector)
    except (turbohtml.SelectorSyntaxError, RecursionError) as error:
        return str(error).rpartition(": ")[2]
    return ""


def without_templates(document: Document) -> Document:
    """A document as a reader sees it: the content of a `<template>` is no part of the page, except where it is a
    declarative shadow root, whose content stands in its place. A copy, where there are templates at all."""
    if document.find("template") is None:
        return document
    document = copy.deepcopy(document)
    for template in document.find_all("template"):
        if any(template.attr(name) is not None for name in _SHADOW):
            for node in [node for fragment in template.children for node in fragment.children]:
                template.insert_before(node)  # `unwrap` would leave a fragment there, which is no element's parent
        template.decompose()
    return document


def without_comments(element: Element) -> Element:
    """A copy of an element, without comments."""
    element = copy.deepcopy(element)
    for node in list(element.descendants):
        if isinstance(node, Comment):
            node.decompose()
    return element


def is_comment(node: object) -> bool:
    """Whether a node is a comment."""
    return isinstance(node, Comment)


def is_text(node: object) -> bool:
    """Whether a node is a text."""
    return isinstance(node, Text | CData)


def detect_language(text: str) -> tuple[str | None, float]:
    """The language of a text as three letters of ISO 639-3, and how sure that is."""
    from turbohtml.detect import detect_language as detect

    match = detect(text)
    return match.language, match.confidence


def detect_encoding(sample: bytes, top_level_domain: str | None) -> tuple[str | None, float]:
    """The likeliest encoding of some bytes from a site there, and how sure that is."""
    from turbohtml.detect import Detection, detect

    match = detect(sample, Detection(tld=top_level_domain))
    return match.encoding, match.confidence


def register_decoders() -> None:
    """Makes `whatwg-NAME` a codec, for each encoding of the standard."""
    import turbohtml.detect  # noqa: F401 - importing it registers them
