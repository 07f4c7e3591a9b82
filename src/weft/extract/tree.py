"""A page's elements in document order, by number: what rules and formats are computed over.

The tree of either parser becomes the same arrays, once for a page: an element's number is its place in document order,
so that all it contains is a range of numbers, and a set of elements is a sorted list. The content of a `<template>` is
no part of the page, except where the template is a declarative shadow root: then it stands in the template's place.

Invariant: both parsers give equal trees of equal pages; every method is linear in what it is asked about.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from weft.extract import turbo
from weft.extract.dom import Element, Searchable

NO_ELEMENT = -1
_SHADOW = ("shadowrootmode", "data-shadowrootmode")
_UNREAD = frozenset(("script", "style", "template"))
# Elements that a reader sees as standing apart: their text is not joined to what is beside them.
_APART = frozenset(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p pre "
    "search section select summary table tbody td tfoot th thead title tr ul".split()
)


class Tree:
    """The elements of a document, or of an element with all it contains."""

    __slots__ = ("_apart", "_by_tag", "_kids", "_numbers", "_ranks", "elements", "ends", "found", "parents", "tags")

    def __init__(self, root: Searchable) -> None:
        self.elements: list[Element] = []
        self.parents: list[int] = []
        self._numbers: dict[Any, int] = {}
        self._fill(([root] if hasattr(root, "tag") else []) + root.select("*"))
        self.tags = [element.tag.lower() for element in self.elements]
        self.ends = self._ends()
        self.found: dict[object, list[int]] = {}  # by selector: each is searched for once
        self._by_tag: dict[str, list[int]] | None = None
        self._kids: dict[int, list[int]] | None = None
        self._ranks: dict[tuple[bool, bool], list[int]] = {}
        self._apart: list[int] | None = None

    def __len__(self) -> int:
        return len(self.elements)

    def _fill(self, elements: list[Any]) -> None:
        numbers = self._numbers
        for element in elements:
            parent = element.parent
            at = numbers.get(parent)
            if at is None and self.elements:
                at = self._in_shadow(parent)
                if at is None:
                    continue  # inside a template
            if element.tag == "template" and any(element.attr(name) is not None for name in _SHADOW):
                continue  # what it contains stands in its place
            numbers[element] = len(self.elements)
            self.elements.append(element)
            self.parents.append(NO_ELEMENT if at is None else at)

    def _in_shadow(self, fragment: Any) -> int | None:
        """The element that holds a shadow root, whose content has `fragment` for a parent; None for any other node."""
        template: Any = getattr(fragment, "parent", None)
        if getattr(template, "tag", "") != "template" or template in self._numbers:
            return None
        host = self._numbers.get(template.parent)
        if host is not None:
            self._numbers[fragment] = host
        return host

    def _ends(self) -> list[int]:
        ends = list(range(1, len(self.elements) + 1))
        for number in range(len(ends) - 1, 0, -1):
            above = self.parents[number]
            if ends[above] < ends[number]:
                ends[above] = ends[number]
        return ends

    # ── where elements are ─────────────────────────────────────────────────────────────────────────────────────────

    def tagged(self, tag: str | None) -> list[int]:
        """The elements of a tag; None: all of them."""
        if tag is None:
            return list(range(len(self.elements)))
        if self._by_tag is None:
            self._by_tag = {}
            for number, one in enumerate(self.tags):
                self._by_tag.setdefault(one, []).append(number)
        return self._by_tag.get(tag, [])

    def within(self, numbers: list[int], number: int) -> list[int]:
        """Those of some elements that are below one; below NO_ELEMENT are all."""
        if number == NO_ELEMENT:
            return numbers
        return numbers[bisect_left(numbers, number + 1) : bisect_left(numbers, self.ends[number])]

    def kids(self, number: int) -> list[int]:
        """An element's child elements; those of NO_ELEMENT are the root."""
        if self._kids is None:
            self._kids = {}
            for one, parent in enumerate(self.parents):
                self._kids.setdefault(parent, []).append(one)
        return self._kids.get(number, [])

    def rank(self, number: int, *, same_tag: bool = False, from_end: bool = False) -> int:
        """The place of an element among its siblings, from 1."""
        ranks = self._ranks.get((same_tag, from_end))
        if ranks is None:
            ranks = self._ranks[same_tag, from_end] = [0] * len(self.elements)
            counts: dict[tuple[int, str], int] = {}
            order = range(len(ranks) - 1, -1, -1) if from_end else range(len(ranks))
            for one in order:
                key = (self.parents[one], self.tags[one] if same_tag else "")
                ranks[one] = counts[key] = counts.get(key, 0) + 1
        return ranks[number]

    # ── what they say ──────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self, number: int) -> Iterator[tuple[int, str | None]]:
        """All below an element in document order: an element's number and None, or a text and whose child it is."""
        for node, text in turbo.nodes(self.elements[number]):
            at = self._numbers.get(node)
            if at is not None:
                yield at, text

    def texts(self, number: int) -> list[str]:
        """The texts that are an element's own children."""
        element = self.elements[number]
        if not self.kids(number):
            return [text] if (text := self.text(number)) else []
        return list(turbo.own_texts(element))

    def text(self, number: int) -> str:
        """All the text below an element, as it is written."""
        if "template" not in self.tags[number : self.ends[number]]:
            return self.elements[number].text
        return "".join(text for _, text in self.nodes(number) if text is not None)

    def words(self, number: int) -> str:
        """The text of an element on one line; scripts and styles in it left out, blocks set apart."""
        if self.tags[number] in _UNREAD or not self._needs_care(number):
            return " ".join(self.text(number).split())
        pieces: list[str] = []
        last = apart = NO_ELEMENT
        blocks = self._blocks()
        for at, text in self.nodes(number):
            if text is None:
                apart = at if self.tags[at] == "br" else apart
            elif self.tags[at] not in _UNREAD:
                pieces.append(text if blocks[at] == last and apart == NO_ELEMENT else " " + text)
                last, apart = blocks[at], NO_ELEMENT
        return " ".join("".join(pieces).split())

    def _needs_care(self, number: int) -> bool:
        inside = self.tags[number + 1 : self.ends[number]]
        return bool(inside) and not (_APART.isdisjoint(inside) and _UNREAD.isdisjoint(inside))

    def _blocks(self) -> list[int]:
        """Of each element the block that its text stands in: itself, or one around it."""
        if self._apart is None:
            self._apart = []
            for number, tag in enumerate(self.tags):
                above = self.parents[number]
                self._apart.append(number if tag in _APART or above == NO_ELEMENT else self._apart[above])
        return self._apart
