"""Results of a client that are more than the fields of the service's answers (weft/scraping.py)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from weft.scraping import PageError, TaskState, TaskStatus


class ScrapedPage:
    """One scraped page; `document` is everything that the service returned for it, formats and fields included."""

    __slots__ = ("document",)

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<Page {self.number}: {self.status} {self.url}>"

    @property
    def number(self) -> int:
        """The number of its event."""
        return int(self.document["number"])

    @property
    def url(self) -> str:
        """Its URL, after redirects."""
        return str(self.document["url"])

    @property
    def status(self) -> int:
        """The status of the HTTP answer."""
        return int(self.document["status"])

    @property
    def title(self) -> str:
        """Its title."""
        return str(self.document["title"])

    @property
    def depth(self) -> int:
        """The number of links between it and a submitted URL."""
        return int(self.document["depth"])

    @property
    def markdown(self) -> str | None:
        """Its text as Markdown, if that format was requested."""
        return self.document.get("markdown")

    @property
    def text(self) -> str | None:
        """Its text, if that format was requested."""
        return self.document.get("text")

    @property
    def html(self) -> str | None:
        """Its HTML without navigation and other boilerplate, if that format was requested."""
        return self.document.get("html")

    @property
    def links(self) -> list[Any]:
        """Its links, if that format was requested."""
        return self.document.get("links") or []

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata, if that format was requested."""
        return self.document.get("metadata") or {}

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that the rules of `extract` have read."""
        return self.document.get("fields") or {}

    @property
    def field_errors(self) -> dict[str, Any]:
        """The values that the rules have read but could not convert, by field."""
        return self.document.get("field_errors") or {}


class Results(Struct, frozen=True):
    """A part of a task's results."""

    status: TaskState
    pages: tuple[ScrapedPage, ...]
    errors: tuple[PageError, ...]
    next_cursor: str | None  # None when there is no more now
    cursor: str  # a later request with it continues after this part


class TaskEvent(Struct, frozen=True):
    """An event of a task: state, page, error, or progress, which has no number."""

    kind: str
    number: int | None
    data: dict[str, Any]


class Scrape(list[ScrapedPage]):
    """The pages of a task that has ended, with its status and its errors."""

    def __init__(self, pages: list[ScrapedPage], status: TaskStatus, errors: list[PageError]) -> None:
        super().__init__(pages)
        self.status = status
        self.errors = errors
