"""What a client makes of the service's answers (weft/scraping.py), where that is more than their fields."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from weft.scraping import PageError, TaskState, TaskStatus


class ScrapedPage:
    """One scraped page; `document` is all that the service says about it, formats and fields included."""

    __slots__ = ("document",)

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<Page {self.number}: {self.status} {self.url}>"

    @property
    def number(self) -> int:
        """Its event's."""
        return int(self.document["number"])

    @property
    def url(self) -> str:
        """Where it is."""
        return str(self.document["url"])

    @property
    def status(self) -> int:
        """Of the HTTP answer."""
        return int(self.document["status"])

    @property
    def title(self) -> str:
        """What it calls itself."""
        return str(self.document["title"])

    @property
    def depth(self) -> int:
        """Links from the URL of the order."""
        return int(self.document["depth"])

    @property
    def markdown(self) -> str | None:
        """Its text as Markdown, where the format was ordered."""
        return self.document.get("markdown")

    @property
    def text(self) -> str | None:
        """Its text, where the format was ordered."""
        return self.document.get("text")

    @property
    def html(self) -> str | None:
        """Its HTML without what is not content, where the format was ordered."""
        return self.document.get("html")

    @property
    def links(self) -> list[Any]:
        """Where it leads, where the format was ordered."""
        return self.document.get("links") or []

    @property
    def metadata(self) -> dict[str, Any]:
        """What it says about itself, where the format was ordered."""
        return self.document.get("metadata") or {}

    @property
    def fields(self) -> dict[str, Any]:
        """What the rules of `extract` have found."""
        return self.document.get("fields") or {}

    @property
    def field_errors(self) -> dict[str, Any]:
        """What they have found and could not use."""
        return self.document.get("field_errors") or {}


class Results(Struct, frozen=True):
    """A stretch of what a task has."""

    status: TaskState
    pages: tuple[ScrapedPage, ...]
    errors: tuple[PageError, ...]
    next_cursor: str | None  # None when there is no more now
    cursor: str  # asks later for what comes after this


class TaskEvent(Struct, frozen=True):
    """Something that has happened: state, page, error, or progress, which has no number."""

    kind: str
    number: int | None
    data: dict[str, Any]


class Scrape(list[ScrapedPage]):
    """The pages of a task that has ended, with its status and what failed."""

    def __init__(self, pages: list[ScrapedPage], status: TaskStatus, errors: list[PageError]) -> None:
        super().__init__(pages)
        self.status = status
        self.errors = errors
