"""The report page of `modules`: one HTML file with everything in it, pictures too. It asks the network for nothing.

Texts of strangers are in it: the template escapes everything, links lead to http and https only, and the page's own
policy forbids it to load anything.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

PICTURES_BYTES = 30_000_000  # in the page; those beyond it are linked to, from beside the page
_TEMPLATE = "report.html.j2"


class ReportPage:
    """Collects what the page needs of each row, and renders the page."""

    def __init__(self, title: str, today: date) -> None:
        self._title = title
        self._today = today
        self._cards: list[dict[str, Any]] = []
        self._picture_bytes = 0

    @property
    def total(self) -> int:
        """The number of rows that were added."""
        return len(self._cards)

    def add(self, row: Mapping[str, Any], picture: bytes | None) -> None:
        """Adds a row of the catalogue, with its thumbnail."""
        self._cards.append(_card_of_row(row) | {"picture": self._picture_source(row, picture)})

    def html(self) -> str:
        """Renders the page."""
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template(_TEMPLATE).render(
            title=self._title,
            today=self._today.isoformat(),
            cards=self._cards,
            charts=self._chart_rows(),
            failures=[card for card in self._cards if card["error"]],
        )

    def _picture_source(self, row: Mapping[str, Any], picture: bytes | None) -> str | None:
        if picture is None:
            return None
        self._picture_bytes += len(picture)
        if self._picture_bytes > PICTURES_BYTES:
            return str(row["about"]["thumbnail"])
        return "data:image/webp;base64," + base64.b64encode(picture).decode()

    def _chart_rows(self) -> list[dict[str, Any]]:
        kinds = (("Status", "outcome"), ("Maintenance", "maintained"), ("Licence", "verdict"))
        return [
            {
                "title": title,
                "bars": _bars_of_counts(Counter(card[key] for card in self._cards if card[key] is not None)),
            }
            for title, key in kinds
        ]


def _bars_of_counts(counts: Counter[str]) -> list[tuple[str, int, float]]:
    """The bars of a chart: name, count, and share of the largest count; the most frequent first."""
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(name, count, round(100 * count / ranked[0][1], 1)) for name, count in ranked]


def _card_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    about, repository = row["about"] or {}, row["repository"] or {}
    analysis = row["analysis"] or {}
    licence = about.get("licence") or {}
    url = str(row["url"] or "")
    is_ok = row["status"] == "ok"
    return {
        "id": str(row["id"]),
        "title": row["name"] or about.get("name") or str(row["id"]),
        "by": row["maintainer"] or about.get("author") or "",
        "link": url if url.startswith(("https://", "http://")) else None,
        "url": url,
        "description": about.get("description") or "",
        "tags": about.get("tags") or [],
        "outcome": "ok" if is_ok else f"{row['status']} in {row['failure_phase'] or '?'}",
        "is_ok": is_ok,
        "error": row["error"] if not is_ok else None,
        "maintained": repository.get("maintained"),
        "age_days": repository.get("age_days"),
        "bytes": repository.get("bytes"),
        "files": repository.get("files"),
        "commit": str(repository.get("commit", ""))[:10],
        "licence": licence.get("spdx") or licence.get("stated") or "none",
        "verdict": licence.get("verdict"),
        "problems": _problems_of_row(row, analysis, repository, licence),
    }


def _problems_of_row(
    row: Mapping[str, Any], analysis: Mapping[str, Any], repository: Mapping[str, Any], licence: Mapping[str, Any]
) -> list[str]:
    """Descriptions of what is wrong with an analysed repository, for readers of the report."""
    if not analysis:
        return []
    readme = analysis["readme"]
    problems = [f"README: {problem}" for problem in readme["problems"]] if readme else ["There is no README"]
    if licence.get("differs"):
        problems.append("The manifest and the licence file name different licences")
    for language in ("javascript", "python"):
        facts = analysis[language] or {}
        problems += [
            f"{kind} dependencies: {_join_names(facts[kind])}" for kind in ("missing", "unused") if facts.get(kind)
        ]
        behind = ((row["outdated"] or {}).get(language) or {}).get("outdated")
        if behind:
            problems.append(
                "outdated: "
                + _join_names([f"{entry['package']} {entry['declared']} → {entry['latest']}" for entry in behind])
            )
    eslint = analysis["eslint"] or {}
    if eslint.get("errors"):
        problems.append(f"ESLint: {eslint['errors']} errors, mostly {next(iter(eslint['rules']))}")
    if repository.get("submodules"):
        problems.append(f"Submodules are not fetched: {_join_names(repository['submodules'])}")
    return problems


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
