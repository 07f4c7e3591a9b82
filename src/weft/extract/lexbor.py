"""lexbor, by selectolax: the alternative to turbohtml (`html_parser: lexbor`), an extra, `weft[lexbor]`.

Slower, but older and widely used. It has no time budget and is quadratic where elements nest deeply or one tag has many
attributes, so `tamed` removes from a page what could cost too much before lexbor parses it.

Must stay true: the invariants of dom.py; a `<template>` that is a declarative shadow root is searched with the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Self

from weft import urls
from weft.errors import BadUrl, Missing
from weft.extract import lexbor_writer

MAX_DEPTH = 400
# Formatting elements left open are reopened in every block that follows: more of them than this are removed.
MAX_FORMATTING = 100
FEW_TAGS = 1000  # too few to be slow
MAX_ROOTS = 10  # each further `<body>` or `<html>` merges its attributes into the first
LONG_TAG_CHARS, MAX_ATTRIBUTES = 4096, 500
NEAR = 20
MAX_ITEM_DEPTH = 20

_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_FORMATTING = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_RAW = frozenset("script style textarea title xmp iframe noembed noframes plaintext".split())
_FLAT = _VOID | _RAW | {"a"}  # kept below MAX_DEPTH too, since they add no depth: an open link is closed by the next
_RAW_ENDS = {name: re.compile(rf"</{name}[\s/>]", re.IGNORECASE) for name in _RAW}
_NAME = re.compile(r"(/?)([a-zA-Z][^\s/>]{0,30})").match
_ATTRIBUTES = re.compile(r"[^\s/>=]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>]*))?").finditer
_ALTERNATIVE = re.compile(r"(\w+)(?::not\(([^)]*)\))?(?:,\s*|$)").findall
_NAMES = re.compile(r"[\w-]+").findall
_ATTRIBUTE_VALUES = {
    "meta": "content", "audio": "src", "embed": "src", "iframe": "src", "img": "src", "source": "src", "track": "src",
    "video": "src", "a": "href", "area": "href", "link": "href", "object": "data", "data": "value", "meter": "value",
    "time": "datetime",
}  # fmt: skip
_URLS = frozenset(("src", "href", "data"))


def parse(text: str) -> tuple[LexborDocument, bool]:
    """The tree of a page, and whether something was removed from it."""
    safe = tamed(text)
    return LexborDocument(engine()(safe)), safe != text


@cache
def engine() -> Any:
    """The parser's class."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ModuleNotFoundError as error:
        if error.name != "selectolax":
            raise
        raise Missing.of_extra("selectolax", "lexbor") from None
    return LexborHTMLParser


def tamed(text: str) -> str:
    """A page without what would make the parser slow: tags nested too deeply, formatting left open, stuffed tags.

    Depth is counted by start and end tags alone. The parser closes some elements by itself, so this errs by counting
    too deep; an end tag whose start is not NEAR closes nothing here.
    """
    if text.count("<") <= FEW_TAGS and not _has_long_tag(text):
        return text
    kept: list[str] = []
    opened: list[str] = []
    formatting = stray = roots = begin = position = 0
    find = text.find
    while (start := find("<", position)) >= 0:
        if find("!--", start + 1, start + 4) > 0:
            position = _after(text, "-->", start + 4)
            continue
        named = _NAME(text, start + 1)
        if named is None:
            position = start + 1
            continue
        end = _after(text, ">", named.end())
        position = end
        name = named[2].lower()
        is_formatting = name in _FORMATTING
        if named[1]:
            if name in opened[-NEAR:]:
                while (last := opened.pop()) != name:
                    formatting -= last in _FORMATTING
                formatting -= is_formatting
            elif is_formatting:  # each stray end tag makes the parser rebuild all open elements
                stray += 1
                if stray > MAX_FORMATTING:
                    kept.append(text[begin:start])
                    begin = end
            continue
        roots += name in ("html", "body")
        keep = (
            (end - start <= LONG_TAG_CHARS or not _is_stuffed(text, named.end(), end))
            and (len(opened) < MAX_DEPTH or name in _FLAT)
            and (not is_formatting or formatting < MAX_FORMATTING)
            and (roots <= MAX_ROOTS or name not in ("html", "body"))
        )
        if not keep:
            kept.append(text[begin:start])
            begin = end
        elif name in _RAW:
            position = _end_of_raw(text, end, name)
        elif name not in _VOID:
            opened.append(name)
            formatting += is_formatting
    kept.append(text[begin:])
    return "".join(kept)


def _has_long_tag(text: str) -> bool:
    """Whether there may be a tag of LONG_TAG_CHARS; in most pages no such stretch is without a `>`."""
    find = text.find
    starts = range(0, len(text) - LONG_TAG_CHARS, LONG_TAG_CHARS)
    return any(find(">", start, start + LONG_TAG_CHARS) < 0 for start in starts)


def _after(text: str, mark: str, start: int) -> int:
    """The place after the next mark; the end of the text where there is none."""
    found = text.find(mark, start)
    return found + len(mark) if found >= 0 else len(text)


def _is_stuffed(text: str, start: int, end: int) -> bool:
    """Whether a tag has too many attributes: each is compared with all before it."""
    return sum(1 for _ in islice(_ATTRIBUTES(text, start, end), MAX_ATTRIBUTES)) == MAX_ATTRIBUTES


def _end_of_raw(text: str, start: int, name: str) -> int:
    """Where the content of a script or the like ends: before its end tag."""
    found = _RAW_ENDS[name].search(text, start)
    return found.start() if found else len(text)


class _Searchable:
    """What a document and an element have in common."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def select(self, selector: str, /) -> list[LexborElement]:
        """All that match below, in document order."""
        own = self._own()
        return [LexborElement(node) for node in self.node.css(selector) if node.mem_id != own]

    def select_one(self, selector: str, /) -> LexborElement | None:
        """The first that matches below."""
        return next(iter(self.select(selector)), None)

    def find(self, tag: str, /) -> LexborElement | None:
        """The first element of that tag below."""
        return self.select_one(tag)

    def find_all(self, tag: str, /) -> list[LexborElement]:
        """All elements of that tag below."""
        return self.select(tag)

    def iter_elements(self, tags: Iterable[str], /) -> Iterator[LexborElement]:
        """All elements of those tags below."""
        return iter(self.select(", ".join(tags)))

    def _own(self) -> int:
        return 0


class LexborDocument(_Searchable):
    """A whole page."""

    __slots__ = ()

    def __init__(self, parser: Any) -> None:
        super().__init__(parser)
        for fragment in parser.template_fragments():
            template = fragment.parent
            if template is not None and "shadowrootmode" in template.attributes:
                _put_before(template, fragment)

    @property
    def root(self) -> LexborElement | None:
        """The html element."""
        return LexborElement(self.node.root) if self.node.root is not None else None

    def microdata(self, base: str, /) -> list[Item]:
        """The top-level items."""
        return [_item(one, base, self) for one in self.select("[itemscope]:not([itemprop])")]


def _put_before(template: Any, fragment: Any) -> None:
    """Moves a shadow root's content into the page, where readers see it."""
    child = fragment.first_child
    while child is not None:
        following = child.next
        template.insert_before(child)
        child = following
    template.decompose()


class LexborElement(_Searchable):
    """One element, or a text between elements."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LexborElement) and self.node.mem_id == other.node.mem_id

    def __hash__(self) -> int:
        return int(self.node.mem_id)

    def __deepcopy__(self, _memo: object) -> LexborElement:
        return LexborElement(self.node.clone())

    @property
    def tag(self) -> str:
        """Its name, in lower case."""
        return self.node.tag or ""

    @property
    def text(self) -> str:
        """All text below."""
        return self.node.text(deep=True) or ""

    @property
    def attrs(self) -> MutableMapping[str, Any]:
        """Its attributes, to be changed."""
        attributes: MutableMapping[str, Any] = self.node.attrs
        return attributes

    @property
    def parent(self) -> LexborElement | None:
        """The element around it."""
        parent = self.node.parent
        return LexborElement(parent) if parent is not None and parent.is_element_node else None

    @property
    def ancestors(self) -> Iterator[LexborElement]:
        """The elements around it, from the inside."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    @property
    def previous_siblings(self) -> Iterator[LexborElement]:
        """What stands before it in its parent, comments left out, nearest first."""
        node = self.node.prev
        while node is not None:
            if not node.is_comment_node:
                yield LexborElement(node)
            node = node.prev

    def attr(self, name: str, /) -> str | None:
        """An attribute's value; empty for one that has none, None for one that is not there."""
        attributes = self.node.attributes
        return (attributes[name] or "") if name in attributes else None

    def closest(self, selector: str, /) -> LexborElement | None:
        """The nearest element that matches, this one included; only `tag` and `tag:not([attribute], …)`, with commas.

        lexbor's own test of a node searches all that is below it, too.
        """
        wanted = _alternatives(selector)
        node = self.node
        while node is not None and node.is_element_node:
            barred = wanted.get(node.tag or "")
            if barred is not None and barred.isdisjoint(node.attributes):
                return LexborElement(node)
            node = node.parent
        return None

    def remove(self, selector: str, /) -> Self:
        """Deletes what matches below."""
        for element in self.select(selector):
            element.decompose()
        return self

    def strip_tags(self, selector: str, /) -> Self:
        """Puts the content of what matches in its place."""
        for element in self.select(selector):
            element.unwrap()
        return self

    def unwrap(self) -> Self:
        """Puts its content in its place."""
        self.node.unwrap(delete_empty=True)
        return self

    def decompose(self) -> None:
        """Removes it from its tree."""
        self.node.remove(recursive=True)

    def nodes(self) -> Iterator[tuple[LexborElement, str | None]]:
        """All below in document order: elements, and texts behind their parents."""
        node, top = self.node.first_child, self.node.mem_id
        while node is not None:
            if node.is_element_node:
                yield LexborElement(node), None
            elif node.is_text_node:
                yield LexborElement(node.parent), node.text_content or ""
            following = node.first_child
            while following is None and node is not None and node.mem_id != top:
                following = node.next
                node = node.parent
            node = following

    def own_texts(self) -> Iterator[str]:
        """The texts that are its children."""
        node = self.node.first_child
        while node is not None:
            if node.is_text_node:
                yield node.text_content or ""
            node = node.next

    def to_text(self, _layout: Any, /) -> str:
        """As plain lines."""
        return lexbor_writer.text(self.node)

    def to_markdown(self, _style: Any, /) -> str:
        """As Markdown."""
        return lexbor_writer.markdown(self.node)

    def _own(self) -> int:
        return int(self.node.mem_id)


@cache
def _alternatives(selector: str) -> dict[str, frozenset[str]]:
    """The tags that a selector of `closest` names, each with the attributes that it must not have."""
    return {tag: frozenset(_NAMES(barred)) for tag, barred in _ALTERNATIVE(selector)}


@dataclass(slots=True)
class Item:
    """An item of microdata."""

    type: str | None
    id: str | None
    properties: dict[str, list[str | Item]] = field(default_factory=dict)


def _item(element: LexborElement, base: str, document: LexborDocument, depth: int = 0) -> Item:
    item = Item(element.attr("itemtype"), element.attr("itemid"))
    roots = [element]
    for name in (element.attr("itemref") or "").split():
        roots += [one for one in document.select("[id]") if one.attr("id") == name][:1]
    for root in roots:
        for one in _properties(root, element):
            value: str | Item
            if one.attr("itemscope") is not None:
                if depth >= MAX_ITEM_DEPTH:
                    continue
                value = _item(one, base, document, depth + 1)
            else:
                value = _value(one, base)
            for name in (one.attr("itemprop") or "").split():
                item.properties.setdefault(name, []).append(value)
    return item


def _properties(root: LexborElement, owner: LexborElement) -> Iterator[LexborElement]:
    """The properties below an element that are its own, not those of an item inside."""
    if root != owner and root.attr("itemprop") is not None:
        yield root
    if root != owner and root.attr("itemscope") is not None:
        return
    for one in root.select("[itemprop]"):
        inner = next((above for above in one.ancestors if above == root or above.attr("itemscope") is not None), None)
        if inner is None or inner == root:
            yield one


def _value(element: LexborElement, base: str) -> str:
    name = _ATTRIBUTE_VALUES.get(element.tag)
    if name is None or (element.tag == "time" and element.attr(name) is None):
        return element.text
    raw = element.attr(name) or ""
    if name not in _URLS:
        return raw
    try:
        return urls.join(base, raw)
    except BadUrl:
        return raw
