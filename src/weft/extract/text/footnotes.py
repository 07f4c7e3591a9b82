"""Footnotes, by their structure: a superscript link to a note in a list behind it, which links back.

So do the encyclopedias, the generators of documentation and the roles of digital publishing (doc-noteref, doc-endnotes)
have them. Class names say nothing here. What leads to no such note, or stands in code, is a link like any other.

Invariant: the page itself is never changed; a note inside another one is a part of that.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from weft import urls
from weft.errors import BadUrl
from weft.extract.turbo import Document, Element, Text

_SUPERSCRIPT = "sup a[href*='#'], a[href*='#'] > sup, a[role=doc-noteref][href*='#']"
_ANCHORS = "[id], a[name]"
_NOTE = "li, [role=doc-endnote], [role=doc-footnote]"
_BY_ROLE = "[role=doc-endnotes], [role=doc-endnote], [role=doc-footnote]"
_AROUND = frozenset(("sup", "span", "b", "i"))  # what may have the name of a reference besides its link
_UNREAD = (
    "script, style, template, noscript, iframe, object, svg, button, select, textarea, [hidden], "
    "[style*='display:none' i], [style*='display: none' i]"
)
_SIGNS = " \t\r\n[](),;^*↑↩⏎\N{VARIATION SELECTOR-15}\N{VARIATION SELECTOR-16}\N{NO-BREAK SPACE}"
_PRIVATE = range(0xE000, 0xF900)  # characters that no text means anything by


@dataclass(frozen=True, slots=True)
class Footnotes:
    """The notes that a tree refers to, in the order of their new numbers, from 1."""

    notes: list[Element]
    sign: str  # before and after each number

    def put(self, written: str, form: str) -> str:
        r"""A written tree with its references in a form, where \1 is the number."""
        return re.sub(f"{self.sign}([0-9]+){self.sign}", form, written) if self.sign else written


NONE = Footnotes([], "")


def extract_footnotes(tree: Element, whole: Document | Element, base: str) -> Footnotes:
    """Removes the notes from a copied tree and numbers its references; `whole` is the tree with all notes."""
    if not _references(tree, base):
        return NONE
    notes = _notes(whole, base)
    sign = _sign(tree, *notes.values()) if notes else ""
    if not sign:
        return NONE
    own = _notes_within(tree, notes)
    numbering = _Numbering(notes, sign)
    numbering.put([one for one in _references(tree, base) if own.keys().isdisjoint(one[0].ancestors)])
    for note in numbering.order:  # which grows by the notes that these refer to
        numbering.put(_references(note, base))
    _remove(tree, [element for element, note in own.items() if note in numbering.numbers])
    return Footnotes(numbering.order, sign)


class _Numbering:
    """Numbers notes in the order of the references to them."""

    def __init__(self, notes: dict[str, Element], sign: str) -> None:
        self._notes, self._sign = notes, sign
        self.numbers: dict[Element, int] = {}
        self.order: list[Element] = []

    def put(self, references: list[tuple[Element, str]]) -> None:
        """Replaces references to notes, and the brackets around them, by numbers."""
        around: dict[Element, None] = {}
        for link, name in references:
            if name not in self._notes:
                continue
            if (outer := link.closest("sup")) is not None:
                around[outer] = None
            link.replace_with(Text(f"{self._sign}{self._number(self._notes[name])}{self._sign}"))
        numbers = re.compile(f"{self._sign}[0-9]+{self._sign}")
        for outer in around:
            text = outer.text
            if not numbers.sub("", text).strip(_SIGNS):
                outer.set_text("".join(numbers.findall(text)))

    def _number(self, note: Element) -> int:
        if note not in self.numbers:
            self.order.append(note)
        return self.numbers.setdefault(note, len(self.order))


def _references(root: Document | Element, base: str) -> list[tuple[Element, str]]:
    """The superscript links to an anchor in the page, each with the anchor's name."""
    found: dict[Element, str] = {}
    for element in root.select(_SUPERSCRIPT):
        link = element if element.tag == "a" else element.parent
        if isinstance(link, Element) and (name := _place(link, base)) and link.closest("pre, code") is None:
            found[link] = name
    return list(found.items())


def _place(link: Element, base: str) -> str:
    """The name of the anchor in the same page that a link leads to; empty for other links."""
    page, _, name = (link.attr("href") or "").strip().partition("#")
    if page:
        try:
            if urls.absolute(page, base) != base.partition("#")[0]:
                return ""
        except BadUrl:
            return ""
    return unquote(name)


def _notes(whole: Document | Element, base: str) -> dict[str, Element]:
    """The notes of a page as copies without their links back, by the names of the anchors that lead to them."""
    origins: dict[str, set[str]] = {}
    first: dict[str, Element] = {}
    for link, name in _references(whole, base):
        origins.setdefault(name, set()).update(_names(link))
        first.setdefault(name, link)
    order = {element: number for number, element in enumerate(whole.select(f"a[href], {_ANCHORS}"))}
    found: dict[str, Element] = {}
    for name, element in _anchors(whole).items():
        if name in first and order[first[name]] < order[element]:
            note = element.closest(_NOTE)
            if note is not None and _is_note(note, origins[name], base):
                found[name] = note
    return _copies(found, origins, base)


def _anchors(root: Document | Element) -> dict[str, Element]:
    """The anchors of a page by name; of two with the same name the first, as in browsers."""
    found: dict[str, Element] = {}
    for element in root.select(_ANCHORS):
        found.setdefault(element.attr("id") or element.attr("name") or "", element)
    return found


def _names(link: Element) -> Iterator[str]:
    """The names by which a note can lead back to a reference."""
    around = [link, *(child for child in link.children if isinstance(child, Element))]
    outer = link.parent
    while isinstance(outer, Element) and outer.tag in _AROUND:
        around.append(outer)
        outer = outer.parent
    for element in around:
        yield from filter(None, (element.attr("id"), element.attr("name")))


def _is_note(element: Element, origins: set[str], base: str) -> bool:
    return element.closest(_BY_ROLE) is not None or any(_links_to(element, origins, base))


def _links_to(element: Element, names: set[str], base: str) -> Iterator[Element]:
    return (link for link in element.select("a[href*='#']") if _place(link, base) in names)


def _copies(found: dict[str, Element], origins: dict[str, set[str]], base: str) -> dict[str, Element]:
    every = set(found.values())
    names: dict[Element, set[str]] = {}
    for name, note in found.items():
        if every.isdisjoint(note.ancestors):
            names.setdefault(note, set()).update(origins[name])
    copies = {note: _without_way_back(copy.deepcopy(note), back, base) for note, back in names.items()}
    return {name: copies[note] for name, note in found.items() if note in copies and copies[note].text.strip()}


def _without_way_back(note: Element, origins: set[str], base: str) -> Element:
    """Removes from a note the links back to its references, with the signs beside them, and unreadable content."""
    note.remove(_UNREAD)
    around: dict[Element, None] = {}
    for link in dict.fromkeys((*_links_to(note, origins, base), *note.select("a[role=doc-backlink]"))):
        if isinstance(link.parent, Element) and link.parent != note:
            around[link.parent] = None
        link.decompose()
    for element in around:
        _remove_emptied(element, note, _SIGNS)
    if around or note.text.lstrip().startswith(("^", "↑")):
        _strip_first_sign(note)
    return note


def _strip_first_sign(note: Element) -> None:
    """Removes the sign before the links back if it is in the note itself."""
    for child in note.children:
        if isinstance(child, Text) and child.text.strip():
            if not child.text.strip(_SIGNS):
                child.replace_with(Text(" "))
            return


def _remove_emptied(element: Element, top: Element, signs: str = " \t\r\n") -> None:
    """Removes an element in which nothing but signs is left, and those around it that have nothing else."""
    while element != top and not element.text.strip(signs) and element.find("img") is None:
        outer = element.parent
        element.decompose()
        if not isinstance(outer, Element):
            return
        element = outer


def _notes_within(tree: Element, notes: dict[str, Element]) -> dict[Element, Element]:
    """Those elements of a tree that are notes, each with its copy."""
    found: dict[Element, Element] = {}
    for name, element in _anchors(tree).items():
        if name in notes and (note := element.closest(_NOTE)) is not None and note != tree:
            found[note] = notes[name]
    return found


def _remove(tree: Element, elements: list[Element]) -> None:
    """Removes elements, and the lists and sections that have nothing else."""
    outers = dict.fromkeys(outer for element in elements if isinstance(outer := element.parent, Element))
    for element in elements:
        element.decompose()
    for outer in outers:
        _remove_emptied(outer, tree)


def _sign(*trees: Element) -> str:
    """A character that is in none of the trees; empty where there is none."""
    used: set[str] = set()
    for tree in trees:
        used.update(tree.text)
        for element in tree.select("[alt], [title], [href], [src], [class], [start], [lang]"):
            used.update(*(str(value) for value in element.attrs.values() if value))
    return next((sign for sign in map(chr, _PRIVATE) if sign not in used), "")
