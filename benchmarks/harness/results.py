"""Keeps what was measured in .bench/results.json, and makes figures of it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from harness.measure import machine

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".bench" / "results.json"


def load(path: Path = RESULTS) -> dict[str, Any]:
    """All that was measured."""
    return json.loads(path.read_text()) if path.exists() else {"machine": machine(), "sections": {}}


def section(name: str) -> dict[str, Any]:
    """What was measured under a name before."""
    return load()["sections"].get(name, {})


def keep(name: str, record: dict[str, Any]) -> None:
    """Writes one section and leaves the others."""
    everything = load()
    everything["machine"] = machine()
    everything["sections"][name] = record
    RESULTS.parent.mkdir(exist_ok=True)
    scratch = RESULTS.with_suffix(".new")
    scratch.write_text(json.dumps(everything, indent=1) + "\n")
    scratch.replace(RESULTS)


def figures(record: dict[str, Any]) -> dict[str, float] | None:
    """The medians of a crawler: without its start and end, which its runs on one page tell; None if it has not run."""
    if not record.get("rounds"):
        return None
    pages = record["pages"]
    start_s = median(one["wall_s"] for one in record["starts"])
    start_cpu_s = median(one["cpu_s"] for one in record["starts"])
    runs = [(one.get("pages", pages), one["wall_s"], one["cpu_s"]) for one in record["rounds"]]
    return {
        "pages_per_s": median(done / (wall_s - start_s) for done, wall_s, _ in runs),
        "cpu_ms": median(1000 * (cpu_s - start_cpu_s) / done for done, _, cpu_s in runs),
        "whole_pages_per_s": median(done / wall_s for done, wall_s, _ in runs),
        "whole_cpu_ms": median(1000 * cpu_s / done for done, _, cpu_s in runs),
        "peak_rss_mb": median(one["peak_rss_mb"] for one in record["rounds"]),
        "start_cpu_s": start_cpu_s,
        "rounds": len(record["rounds"]),
        "pages": pages,
    }


def median(values: Any) -> float:
    """The median."""
    return statistics.median(list(values))


def ratio(section: dict[str, Any], one: str, other: str, figure: str) -> float | None:
    """The median over rounds of one crawler's figure by another's in the same round."""
    a, b = section.get(one, {}), section.get(other, {})
    pairs = list(zip(per_round(a, figure), per_round(b, figure), strict=False))
    return median(x / y for x, y in pairs) if pairs else None


def per_round(record: dict[str, Any], figure: str) -> list[float]:
    """pages/s or CPU-ms per page of each round, without start and end."""
    if not record.get("rounds"):
        return []
    runs = [(one.get("pages", record["pages"]), one) for one in record["rounds"]]
    if figure == "pages_per_s":
        start = median(one["wall_s"] for one in record["starts"])
        return [pages / (one["wall_s"] - start) for pages, one in runs]
    start = median(one["cpu_s"] for one in record["starts"])
    return [1000 * (one["cpu_s"] - start) / pages for pages, one in runs]


def line(record: dict[str, Any]) -> str:
    """The medians so far, in a few words."""
    found = figures(record)
    return (
        ""
        if found is None
        else f"median {found['pages_per_s']:.0f}/s {found['cpu_ms']:.3f} ms {found['peak_rss_mb']:.0f} MB"
    )


def table(section: dict[str, Any]) -> str:
    """The Markdown table of a section of crawlers."""
    rows = [
        "| crawler | pages/s | CPU a page | peak memory | Weft's pages/s by its | its CPU by Weft's | rounds × pages |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, record in section.items():
        found = figures(record)
        if found is None:
            rows.append(f"| {name} | not measured: {record.get('missing', 'no rounds')} | | | | | |")
            continue
        speed = ratio(section, "weft", name, "pages_per_s")
        cost = ratio(section, name, "weft", "cpu_ms")
        beside = ("", "") if name == "weft" or speed is None or cost is None else (f"{speed:.2f}", f"{cost:.2f}")
        rows.append(
            f"| {name} | {found['pages_per_s']:,.0f} | {found['cpu_ms']:.3f} ms | {found['peak_rss_mb']:.0f} MB | "
            f"{beside[0]} | {beside[1]} | {found['rounds']} × {found['pages']:,} |"
        )
    return "\n".join(rows)
