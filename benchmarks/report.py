"""Writes the tables and the charts of what was measured last.

    python benchmarks/report.py            the tables to standard output, everything to .bench/report.md
    python benchmarks/report.py --record   into docs/benchmarks.md, README.md, docs/*.svg, benchmarks/recorded.json
                                           and benchmarks/scale.json
    python benchmarks/report.py --record scale   the part about scale alone, which is measured by itself

Between `<!-- measured -->` and `<!-- /measured -->` (of the part about scale: `measured-scale`) the two documents hold
what this writes and nothing else: numbers are never edited by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import growth
from figures import FIGURES, RECORDED, ratios
from harness import charts, results, scale_points

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SCALE_POINTS = ROOT / "benchmarks" / "scale.json"
TITLES = {
    "keep-alive": "Plain HTTP, connections kept",
    "half-new": "A web that never ends, half of the links of each page new",
    "gzip": "The same pages, gzipped by the server",
    "tls": "TLS, a new connection for every page",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", nargs="?", const="all", choices=["all", "scale"])
    args = parser.parse_args()
    everything = results.load()
    text = whole(everything)
    if not args.record:
        if "scale" in everything["sections"]:
            text += "\n\n### Scale\n\n" + scale(everything, has_chart=False)
        (ROOT / ".bench" / "report.md").write_text(text)
        print(text)
        return 0
    sections = everything["sections"]
    if "scale" in sections:
        _record_scale(everything)
    if args.record == "scale":
        return 0
    put(DOCS / "benchmarks.md", text)
    put(ROOT / "README.md", short(everything))
    if "keep-alive" in sections:
        (DOCS / "bench.svg").write_text(charts.bars(_bars(sections["keep-alive"]), "pages/s, one core for the crawler"))
    if "growth" in sections:
        (DOCS / "growth.svg").write_text(charts.lines(*_lines(sections["growth"])))
    RECORDED.write_text(json.dumps({"machine": everything["machine"], "ratios": ratios()}, indent=2) + "\n")
    return 0


def _record_scale(everything: dict[str, Any]) -> None:
    section = everything["sections"]["scale"]
    SCALE_POINTS.write_text(json.dumps({"machine": everything["machine"], **section}, indent=1) + "\n")
    if panels := scale_points.panels(section):
        (DOCS / "scale.svg").write_text(charts.panels("Cost by the number of stored pages; dashed: the goal", panels))
    put(DOCS / "benchmarks.md", scale(everything, has_chart=bool(panels)), "measured-scale")


def machine_line(machine: dict[str, Any]) -> str:
    """What it was measured on."""
    return (
        f"{machine['cores']} cores of an {machine['cpu']}, {machine['memory_gb']} GB, {machine['kernel']}, "
        f"Python {machine['python']}"
    )


def short(everything: dict[str, Any]) -> str:
    """What the README shows."""
    section = everything["sections"].get("keep-alive", {})
    lines = ["| crawler | pages/s | CPU per page | peak memory |", "|---|---|---|---|"]
    for name, record in section.items():
        if (found := results.figures(record)) is not None:
            label = f"**{name}**" if name == "weft" else name
            numbers = f"{found['pages_per_s']:,.0f} | {found['cpu_ms']:.2f} ms | {found['peak_rss_mb']:.0f} MB"
            lines.append(f"| {label} | {numbers} |")
    return "\n".join([*lines, "", f"Measured by `make bench` on {machine_line(everything['machine'])}."])


def whole(everything: dict[str, Any]) -> str:
    """All tables."""
    sections = everything["sections"]
    parts = [f"Measured on {machine_line(everything['machine'])}."]
    parts += [f"### {title}\n\n{results.table(sections[name])}" for name, title in TITLES.items() if name in sections]
    if "keep-alive" in sections:
        notes = [f"- {name}: {record['note']}." for name, record in sections["keep-alive"].items()]
        parts.append("How each is set:\n\n" + "\n".join(notes))
    if "growth" in sections:
        chart = "![Cost of a URL as the frontier grows](growth.svg)"
        parts.append(f"### Growth\n\n{growth.table(sections['growth'])}\n\n{chart}")
    parts.append("### Goals\n\n" + goals(sections))
    return "\n\n".join(parts)


def scale(everything: dict[str, Any], *, has_chart: bool) -> str:
    """The table of what commands and operations cost at each size."""
    section = everything["sections"]["scale"]
    parts = [f"Measured on {machine_line(everything['machine'])}.", scale_points.table(section)]
    parts += ["Raw points: `benchmarks/scale.json`."]
    parts += ["![Cost by the number of stored pages](scale.svg)"] if has_chart else []
    return "\n\n".join(parts)


def goals(sections: dict[str, Any]) -> str:
    """Every goal, met or missed."""
    rows = ["| figure | measured | goal | |", "|---|---|---|---|"]
    for name, figure in FIGURES.items():
        value = figure.value(sections.get(figure.section, {}))
        said = "not measured" if value is None else f"{value:.3g}{figure.unit}"
        verdict = "" if value is None else ("met" if figure.holds(value) else "missed")
        rows.append(f"| {figure.what} (`{name}`) | {said} | {figure.goal} | {verdict} |")
    return "\n".join(rows)


def put(path: Path, text: str, mark: str = "measured") -> None:
    """Puts a text between the marks of a document."""
    old = path.read_text()
    new, count = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)",
        lambda found: f"{found[1]}{text}\n{found[2]}",
        old,
        flags=re.DOTALL,
    )
    if not count:
        sys.exit(f"benchmarks: {path.name} has no place for the figures")
    path.write_text(new)


def _bars(section: dict[str, Any]) -> list[tuple[str, float]]:
    return [(name, found["pages_per_s"]) for name, record in section.items() if (found := results.figures(record))]


def _lines(found: dict[str, Any]) -> tuple[str, dict[str, list[tuple[float, float]]]]:
    series = {
        f"{what}, {axis}": [(row[axis], row[key]) for row in found[axis]]
        for axis in ("urls", "domains")
        for what, key in (("admit", "admit_us"), ("claim", "claim_us"))
    }
    return "µs of CPU a URL, by the number of URLs or domains", series


if __name__ == "__main__":
    sys.exit(main())
