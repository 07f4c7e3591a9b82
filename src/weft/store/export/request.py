"""The request for an export: its format, its columns, and its rows. All validation is here."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from weft.errors import BadInput
from weft.names import nearest
from weft.records import Row

FORMATS = ("jsonl", "json", "csv", "markdown", "parquet", "warc", "cdxj")
LINK_FORMS = ("keep", "text", "drop")
CONTENT_COLUMNS = ("text", "markdown", "main_text", "comments", "html")
# Columns that are extracted from pages, which are read only if `fields` names one of them.
CERTAINTY_COLUMN = "page_kind_certainty"
DESCRIBED_COLUMNS = (
    "page_kind", CERTAINTY_COLUMN, "withheld", "page_title", "author", "published", "modified", "site_name",
    "canonical",
)  # fmt: skip
# The columns of JSONL and CSV (docs/export.md).
DEFAULT_COLUMNS = (
    "url", "final_url", "status", "fetched_at", "content_type", "charset", "language", "title", "depth", "parent",
    "digest", "length", "content_path", "warc_file", "warc_offset", "error",
)  # fmt: skip
RULE_COLUMNS = ("fields", "field_errors")  # fields extracted by rules; columns of every format that has columns
FIELD_PREFIX = "fields."  # in front of the name of a field: the column of that field alone

_match_status = re.compile(r"[1-5]xx|[0-9]{1,3}").fullmatch
_match_duration = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])").fullmatch
_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """An export as requested. All given filters must match."""

    format: str
    fields: tuple[str, ...] = ()  # none: all
    content: str = "none"
    statuses: tuple[str, ...] = ()  # 200, 2xx; 0 is no response
    hosts: tuple[str, ...] = ()  # example.com; *.example.com is the host and all hosts under it
    since: str = ""  # 2026-11-01, 2026-11-01T12:00:00, or 7d: a duration until now
    max_bytes: int | None = None  # of one WARC file
    all_visits: bool = False  # every visit of a URL, not only its current one; gone pages, too
    links: str = "keep"  # in Markdown: keep, only their text (text), or neither (drop)

    def check(self, known: tuple[str, ...] = DEFAULT_COLUMNS + CONTENT_COLUMNS + DESCRIBED_COLUMNS) -> None:
        """BadInput for invalid values; `known` are the columns of the format."""
        _check_known("format", self.format, FORMATS)
        _check_known("content", self.content, (*CONTENT_COLUMNS, "none"))
        _check_known("kind of links", self.links, LINK_FORMS)
        for name in self.fields:
            _check_known(
                "field", name, known + ((name,) if self.format != "parquet" and name.startswith(FIELD_PREFIX) else ())
            )
        for status in self.statuses:
            if not _match_status(status):
                raise BadInput(f"status {status!r}: write a number like 404, or 2xx for all of a kind")
        parse_since(self.since)
        if self.max_bytes is not None and self.format != "warc":
            raise BadInput("only WARC files are split by size: leave `max_bytes` out")
        if self.content != "none" and self.format in ("warc", "cdxj"):
            raise BadInput(f"{self.format} has no column for the {self.content}: leave `content` out")
        if self.fields and self.format in ("warc", "cdxj", "markdown"):
            raise BadInput(f"{self.format} has a fixed layout: leave `fields` out")
        if self.links != "keep" and self.format != "markdown" and "markdown" not in self.columns(()):
            raise BadInput(
                "only Markdown has links: leave `links` out, or ask for the format or the content `markdown`"
            )

    def plain(self) -> dict[str, Any]:
        """The request as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def markdown(self) -> str:
        """The property of a page with the requested form of Markdown."""
        return "markdown" if self.links == "keep" else f"markdown_{self.links}"

    def columns(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        """The columns to write, in order."""
        wanted = dict.fromkeys(self.fields or usual)
        if self.content != "none":
            wanted[self.content] = None
        return tuple(wanted)


class RowSelection:
    """The rows that a request selects; `since` is a time, so that a resumed export uses the same one."""

    def __init__(self, order: ExportRequest, since: float) -> None:
        self._codes = {int(status) for status in order.statuses if status.isdigit()}
        self._classes = {int(status[0]) for status in order.statuses if not status.isdigit()}
        self._any_status = not order.statuses
        self._hosts = {host.lower() for host in order.hosts if not host.startswith("*.")}
        self._under = tuple(host[1:].lower() for host in order.hosts if host.startswith("*."))
        self._any_host = not order.hosts
        self._since = since

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of all wanted rows; none if they are not given by name."""
        return () if self._under else tuple(sorted(self._hosts))

    def matches(self, row: Row) -> bool:
        """Whether a row is wanted."""
        if not (self._any_status or row.status in self._codes or row.status // 100 in self._classes):
            return False
        return row.fetched_at >= self._since and (self._any_host or self._is_wanted_host(row.url))

    def _is_wanted_host(self, url: str) -> bool:
        host = url.split("/", 3)[2]
        host = host if host.endswith("]") else host.partition(":")[0] if "[" not in host else host.rpartition(":")[0]
        return host in self._hosts or ("." + host).endswith(self._under or ("\n",))


def parse_since(since: str, name: str = "since") -> float:
    """The time that a date, a time or a duration until now means; 0 for none."""
    text = since.strip()
    if not text:
        return 0.0
    if match := _match_duration(text):
        return time.time() - float(match[1]) * _SECONDS_PER_UNIT[match[2]]
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"{name} {since!r}: write a date (2026-11-01), a time (2026-11-01T12:00) or 90m, 12h, 7d"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _check_known(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        near = nearest(given, known)
        raise BadInput(
            f"no {what} {given!r}: " + (f"did you mean {near}?" if near else f"choose one of {', '.join(known)}")
        )
