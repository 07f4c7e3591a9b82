"""A selection of a page's elements, as `page.css` and `page.xpath` return it.

A selection is a sequence of the elements that were found, in the order of the page; each element is a selection of one.
`.text` and `.attr` read the first element and are None where nothing was found; `.texts` and `.attrs` read all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import overload

from weft.extract import turbo
from weft.extract.html_writer import written
from weft.extract.rules import selectors
from weft.extract.rules.selectors import BadSelector
from weft.extract.text.full_text import one_line
from weft.extract.turbo import Document, Element

__all__ = ["BadSelector", "Selected"]

_TEXT_OR_ATTR_SUFFIX = re.compile(r"(.*\S)\s*::(?:(text)|attr\(\s*([^\s()]+)\s*\))", re.DOTALL).fullmatch
Node = Element | str


class Selected(Sequence["Selected"]):
    """Elements of a page, or the texts and attributes that an XPath selects."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, at: int) -> Selected: ...
    @overload
    def __getitem__(self, at: slice) -> Selected: ...
    def __getitem__(self, at: int | slice) -> Selected:
        return Selected(self._nodes[at] if isinstance(at, slice) else [self._nodes[at]])

    def __iter__(self) -> Iterator[Selected]:
        return (Selected([node]) for node in self._nodes)

    def __repr__(self) -> str:
        few = [f"{text[:60]!r}" for text in (html_of(node) for node in self._nodes[:3])]
        more = f", … {len(self) - 3} more" if len(self) > 3 else ""
        return f"<{len(self)} selected: {', '.join(few)}{more}>" if few else "<nothing selected>"

    @property
    def first(self) -> Selected | None:
        """The first element; None if there is none."""
        return Selected(self._nodes[:1]) if self._nodes else None

    @property
    def text(self) -> str | None:
        """The text of the first element on one line, with single spaces; None if there is none."""
        return text_of(self._nodes[0]) if self._nodes else None

    @property
    def texts(self) -> list[str]:
        """The text of each element."""
        return [text_of(node) for node in self._nodes]

    @property
    def code(self) -> str | None:
        """The text of the first element with its white space, for source code and poems."""
        if not self._nodes:
            return None
        node = self._nodes[0]
        return node if isinstance(node, str) else turbo.text_of(node)

    @property
    def html(self) -> str | None:
        """The first element as HTML."""
        return html_of(self._nodes[0]) if self._nodes else None

    def attr(self, name: str, default: str | None = None) -> str | None:
        """An attribute of the first element; `default` if there is no element or it has no such attribute."""
        node = self._nodes[0] if self._nodes else None
        value = node.attr(name) if isinstance(node, Element) else None
        return default if value is None else value

    def attrs(self, name: str) -> list[str]:
        """The attribute of each element that has it."""
        values = (node.attr(name) for node in self._nodes if isinstance(node, Element))
        return [value for value in values if value is not None]

    def css(self, selector: str) -> Selected:
        """The elements below these that match a CSS selector, each once; `::text` and `::attr(NAME)` give texts."""
        return found_by_css(self._element_nodes(), selector)

    def xpath(self, path: str) -> Selected:
        """The results of an XPath from each of these elements."""
        return found_by_xpath(self._element_nodes(), path)

    def re(self, pattern: str) -> list[str]:
        """The matches of a regular expression in the texts: its first group, or the whole match."""
        return [match for text in self.texts for match in matches(pattern, text)]

    @property
    def reference(self) -> str:
        """The reference of the first element: its href, src or action, or the selected text; may be empty."""
        node = self._nodes[0] if self._nodes else ""
        if isinstance(node, str):
            return node.strip()
        return node.attr("href") or node.attr("src") or node.attr("action") or ""

    def _element_nodes(self) -> list[Element]:
        return [node for node in self._nodes if isinstance(node, Element)]


def found_by_css(scopes: Sequence[Document | Element], selector: str) -> Selected:
    """The matches of a selector below any of the scopes; BadSelector describes its error."""
    suffix = _TEXT_OR_ATTR_SUFFIX(selector)
    compiled = selectors.selector(suffix[1] if suffix else selector)
    elements = _without_repeats(element for scope in scopes for element in compiled.find(scope))
    if suffix is None:
        return Selected(elements)
    if suffix[2]:
        return Selected([one_line(element) for element in elements])
    return Selected([value for element in elements if (value := element.attr(suffix[3])) is not None])


def found_by_xpath(scopes: Sequence[Document | Element], path: str) -> Selected:
    """The results of a path from each of the scopes; BadSelector describes its error."""
    compiled = selectors.path(path)
    return Selected([node for scope in scopes for node in compiled.find(scope)])


def text_of(node: Node) -> str:
    """A node's text on one line."""
    return " ".join(node.split()) if isinstance(node, str) else one_line(node)


def html_of(node: Node) -> str:
    """A node as HTML."""
    return node if isinstance(node, str) else written(node)


def matches(pattern: str, text: str) -> list[str]:
    """All matches of a regular expression of the user's own code."""
    return [match[1] if match.re.groups else match[0] for match in re.finditer(pattern, text) if match[0] is not None]


def _without_repeats(elements: Iterator[Element]) -> list[Element]:
    return list(dict.fromkeys(elements))
