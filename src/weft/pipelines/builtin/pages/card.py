"""The data card: what is in the data set, what was removed and why, and a sample, as Markdown. No times: the same
rows make the same card.

What comes from pages is displayed as code, so that it cannot become markup of the card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from weft.pipelines.stage import ItemResult

MOST_KINDS = 40  # of reasons and languages in a table
SAMPLE_CHARS = 400
ERROR_CHARS = 200
_STATED_PREFERENCES = (
    "ai_training",
    "noai",
    "noimageai",
    "content_usage",
    "content_signal",
    "tdm_reservation",
    "tdm_policy",
)
_FENCE = "~~~~~~~~"


class Card:
    """Counts pages by outcome, in constant memory."""

    def __init__(self, total: int, settings: Mapping[str, Any]) -> None:
        self._total = total
        self._settings = settings
        self._kept = self._words = self._chars = self._truncated = 0
        self._removed: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._errors: list[str] = []
        self._languages: Counter[str] = Counter()
        self._stated: Counter[str] = Counter()
        self._sample: list[Mapping[str, Any]] = []

    def not_read(self, result: ItemResult) -> None:
        """Counts an item that gave no text."""
        if result.status in ("ok", "skipped"):
            reasons = (outcome.reason for outcome in result.stages.values() if outcome.reason)
            self._count_kind(self._skipped, next(reasons, "skipped"))
            return
        self._count_kind(self._failed, f"{result.status} in {result.failure_phase}")
        if len(self._errors) < 5:
            self._errors.append(f"{result.id}: {result.error}"[:ERROR_CHARS])

    def remove(self, reason: str) -> None:
        """Counts a removed page."""
        self._removed[reason] += 1

    def keep(self, row: Mapping[str, Any], position: int) -> None:
        """Counts a kept page, and may add it to the sample, which is spread evenly over the source."""
        self._kept += 1
        self._words += row["words"]
        self._chars += len(row["text"])
        self._truncated += row["truncated"]
        self._count_kind(self._languages, row["language"] or "unknown")
        self._stated.update(
            f"{name}: {_format_setting(row[name])}" for name in _STATED_PREFERENCES if row[name] not in (None, False)
        )
        self._stated["ai_training: no"] += row["ai_training"] is False
        wanted = int(self._settings.get("sample") or 0)
        if len(self._sample) < wanted and position >= len(self._sample) * self._total // wanted:
            self._sample.append(
                {name: row[name] for name in ("id", "url", "title", "language", "words")}
                | {"text": row["text"][:SAMPLE_CHARS]}
            )

    def markdown(self) -> str:
        """The card as Markdown."""
        read = self._kept + self._removed.total()
        parts = [
            "# Pages",
            "Made by Weft's pipeline `pages` (docs/pages.md says what the columns and reasons mean). Each row is a "
            "page; pages that were removed are in `removed.jsonl`, with their reasons.",
            "## Counts",
            _table_lines(("what", "pages"), [
                ("items of the source", self._total), ("could not be read", self._failed.total()),
                ("no page", self._skipped.total()), ("read", read), ("removed", self._removed.total()),
                ("**kept**", self._kept),
            ]),
            f"The kept pages have {self._words:,} words and {self._chars:,} characters; {self._truncated:,} of them "
            "were longer than what is read of a page.",
        ]  # fmt: skip
        parts += _section_lines("Languages", ("language", "pages"), self._languages)
        parts += _section_lines("Removed, by reason", ("reason", "pages"), self._removed)
        parts += _section_lines("No page, by reason", ("reason", "items"), self._skipped)
        parts += _section_lines("Could not be read", ("how", "items"), self._failed)
        parts += [_code_span(error) for error in self._errors]
        parts += _section_lines("Stated usage preferences of the kept pages", ("statement", "pages"), self._stated)
        parts += ["## Settings", *self._shown_settings()]
        if self._sample:
            parts += ["## Sample", *(_code_span(_sample_text(row)) for row in self._sample)]
        return "\n\n".join(parts) + "\n"

    def _shown_settings(self) -> Iterable[str]:
        yield _table_lines(
            ("setting", "value"), [(f"`{name}`", _format_setting(value)) for name, value in self._settings.items()]
        )

    def _count_kind(self, counts: Counter[str], kind: str) -> None:
        """Counts one of a kind; kinds that come after very many others are counted together."""
        counts[kind if kind in counts or len(counts) < MOST_KINDS else "other"] += 1


def _section_lines(title: str, heads: tuple[str, str], counts: Counter[str]) -> list[str]:
    rows = [(f"`{_plain(kind)}`", count) for kind, count in counts.most_common() if count]
    return [f"## {title}", _table_lines(heads, rows)] if rows else []


def _table_lines(heads: tuple[str, str], rows: Iterable[tuple[str, Any]]) -> str:
    lines = [f"| {heads[0]} | {heads[1]} |", "|---|---|"]
    lines += [f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |" for name, value in rows]
    return "\n".join(lines)


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return (
        "none" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)[:80]
    )


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "'").replace("|", "/").split())


def _sample_text(row: Mapping[str, Any]) -> str:
    lines = [f"{name}: {' '.join(str(row[name]).split())}" for name in ("id", "url", "title", "language", "words")]
    return "\n".join([*lines, "", row["text"]])


def _code_span(text: str) -> str:
    return f"{_FENCE}text\n{text.replace(_FENCE[:3], '~ ~')}\n{_FENCE}"
