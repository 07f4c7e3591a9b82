"""What extraction needs from an HTML tree, whichever parser made it.

turbohtml's own classes satisfy these protocols (turbo.py), so that a crawl pays for no layer in between; lexbor's nodes
are wrapped (lexbor.py). Invariant of both: searches return document order; equality means the same node of the same
tree; `copy.deepcopy` of an element copies its subtree and does not change the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, Self


class Searchable(Protocol):
    """A document or an element: its descendants can be searched."""

    def select(self, selector: str, /) -> list[Any]: ...

    def find(self, tag: str, /) -> Any: ...

    def find_all(self, tag: str, /) -> list[Any]: ...

    def iter_elements(self, tags: Iterable[str], /) -> Iterator[Any]: ...


class Document(Searchable, Protocol):
    """A whole page."""

    @property
    def root(self) -> Any: ...

    def microdata(self, base: str, /) -> Sequence[MicrodataItem]: ...


class MicrodataItem(Protocol):
    """An item of HTML microdata: its values are texts or further items."""

    @property
    def type(self) -> Any: ...

    @property
    def id(self) -> str | None: ...

    @property
    def properties(self) -> Mapping[str, Sequence[Any]]: ...


class Element(Searchable, Protocol):
    """One element. `text` is all the text below it, without comments."""

    @property
    def tag(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def attrs(self) -> MutableMapping[str, Any]: ...

    @property
    def parent(self) -> Any: ...

    @property
    def ancestors(self) -> Iterator[Any]: ...

    @property
    def previous_siblings(self) -> Iterator[Any]: ...

    def attr(self, name: str, /) -> str | None: ...

    def select_one(self, selector: str, /) -> Any: ...

    def closest(self, selector: str, /) -> Any: ...

    def remove(self, selector: str, /) -> Self: ...

    def strip_tags(self, selector: str, /) -> Self: ...

    def unwrap(self) -> Any: ...

    def decompose(self) -> None: ...

    def to_text(self, layout: Any, /) -> str: ...

    def to_markdown(self, style: Any, /) -> str: ...
