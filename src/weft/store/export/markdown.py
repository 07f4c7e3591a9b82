"""A folder of Markdown files, one for each page: `host/words-of-the-path-0123456789abcdef.md`.

Must stay true: no character of a URL reaches a file name but letters, digits, `-`, `_` and `.`; two URLs never share a
file, for the hash of the URL is in its name; a URL that was visited twice has its latest page.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from weft import urls
from weft.records import Row
from weft.store.errors import convert_write_errors
from weft.store.export.facts import extracted_fields, iso_time
from weft.store.export.pages_ahead import ExportPages, ReadablePage
from weft.store.export.part import ExportPart, PartState
from weft.store.export.request import RULE_COLUMNS
from weft.store.text import sync_file_system

READABLE_NAME_CHARS = 60
_replace_unfit = re.compile(r"[^a-z0-9]+").sub
_replace_unfit_in_host = re.compile(r"[^a-z0-9.-]+").sub


class MarkdownFolder:
    """Writes pages into PATH.part/."""

    def __init__(self, part: ExportPart, pages: ExportPages) -> None:
        self._part, self._pages = part, pages

    def add(self, row: Row) -> bool:
        """Writes a page, if it is readable."""
        page = self._pages.get(row)
        if page is None or page.mime is None:
            return False
        path = self._part.path / file_name(row.url)
        with convert_write_errors(path):
            path.parent.mkdir(exist_ok=True)
            temporary = path.with_suffix(".half")
            temporary.write_bytes(
                markdown_document(row, page, self._pages.content(page, "markdown")).encode("utf-8", "replace")
            )
            temporary.rename(path)
        return True

    def save(self, state: PartState) -> bool:  # noqa: ARG002
        """Files are complete as soon as they exist."""
        return True

    def finish(self) -> Path | None:
        """Renames the folder to its final name."""
        for path in self._part.path.glob("*/*.half"):
            path.unlink()
        sync_file_system(self._part.path)
        self._part.finish()
        return self._part.final

    def close(self) -> None:
        """Closes nothing: the files are kept for the next run."""


def file_name(url: str) -> str:
    """A page's file within the folder: a readable part, and a hash that makes it unique."""
    mark = sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    host = _replace_unfit_in_host("_", urls.host_of(url)).strip(".") or "_"
    words = _replace_unfit("-", unquote(url[url.index("/", 8) :]).lower())[:READABLE_NAME_CHARS].strip("-")
    return f"{host}/{words}-{mark}.md" if words else f"{host}/{mark}.md"


def markdown_document(row: Row, page: ReadablePage, markdown: str) -> str:
    """Front matter (YAML, whose texts are written as JSON) and the page."""
    facts: dict[str, object] = {
        "url": row.url,
        "title": row.title,
        "fetched_at": iso_time(row.fetched_at),
        "language": row.language or page.language or "",
    }
    if row.fields:
        facts |= extracted_fields(row, RULE_COLUMNS)
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items()]
    return "\n".join(["---", *lines, "---", "", markdown.strip(), ""])
