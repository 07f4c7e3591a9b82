"""turbohtml, the default parser: the only module that imports it, so that it can be replaced.

Its classes are used as they are (see dom.py). A replacement must also provide what it has besides the parser: writing
text and Markdown, microdata, character references, the detection of encodings and languages, and the WHATWG decoders
that Python lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import turbohtml
from turbohtml import CData, Comment, DocumentFragment, IncrementalParser, Text, unescape

if TYPE_CHECKING:
    from weft.extract import dom

__all__ = ["LAYOUT", "STYLE", "detect_encoding", "detect_language", "in_a_block", "is_comment", "nodes", "own_texts",
           "parse_at_once", "parse_in_steps", "register_decoders", "unescape"]  # fmt: skip

_BLOCKS = frozenset(("article", "body", "div", "main", "section"))
LAYOUT = turbohtml.PlainText(bullet="- ", table_cell_separator=" ")
STYLE = turbohtml.Markdown(tables=turbohtml.Markdown.Tables(cell_blocks="text"))


def parse_at_once(text: str) -> dom.Document:
    """The tree of a page."""
    return turbohtml.parse(text, positions=False, allow_declarative_shadow_roots=False)


def parse_in_steps(text: str, step: int, is_over: Callable[[], bool]) -> tuple[dom.Document, bool]:
    """The tree of a page as far as it was parsed when `is_over`, and whether it was cut; half again as slow."""
    parser = IncrementalParser(positions=False)
    for start in range(0, len(text), step):
        parser.feed(text[start : start + step])
        if is_over():
            return parser.close(), start + step < len(text)
    return parser.close(), False


def in_a_block(element: dom.Element) -> dom.Element:
    """A copied element, inside a block of its own.

    turbohtml 1.15.4 crashes when it writes Markdown of a copied inline element with emphasis in it: it reads past the
    top of the copy. A block is returned unchanged, for moving a whole page costs as much as copying it; so is another
    parser's element.
    """
    if not isinstance(element, turbohtml.Element) or element.tag in _BLOCKS:
        return element
    block = turbohtml.parse_fragment("", "div", positions=False)
    block.append(element)
    return block


def nodes(element: Any) -> Iterator[tuple[Any, str | None]]:
    """All below an element, in document order: elements (and None), and texts, each behind its parent.

    Another parser's element has a method for it.
    """
    if not isinstance(element, turbohtml.Element):
        yield from element.nodes()
        return
    for node in element.descendants:
        if isinstance(node, Text | CData):
            yield node.parent, node.text
        elif isinstance(node, turbohtml.Element):
            yield node, None


def own_texts(element: Any) -> Iterator[str]:
    """The texts that are children of an element; those of a shadow root in it, too."""
    if not isinstance(element, turbohtml.Element | DocumentFragment):
        yield from element.own_texts()
        return
    for node in element.children:
        if isinstance(node, Text | CData):
            yield node.text
        elif isinstance(node, turbohtml.Element) and node.tag == "template" and node.attr("shadowrootmode") is not None:
            for fragment in node.children:
                yield from own_texts(fragment)


def is_comment(node: object) -> bool:
    """Whether a node is a comment."""
    return isinstance(node, Comment)


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
