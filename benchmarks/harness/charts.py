"""Three kinds of chart as SVG, by hand: readable on light and dark pages, nothing to install."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .small { font-size: 11px; fill: #57606a; }
  .bar { fill: #8c959f; } .own { fill: #0969da; } .grid { stroke: #d0d7de; }
  .s0 { stroke: #0969da; fill: #0969da; } .s1 { stroke: #bf5b00; fill: #bf5b00; }
  .s2 { stroke: #1a7f37; fill: #1a7f37; } .s3 { stroke: #8250df; fill: #8250df; }
  .goal { stroke: #cf222e; stroke-dasharray: 4 3; }
  polyline { fill: none !important; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .bar { fill: #6e7681; }
    .own { fill: #4493f8; } .grid { stroke: #3d444d; }
    .s0 { stroke: #4493f8; fill: #4493f8; } .s1 { stroke: #f0883e; fill: #f0883e; }
    .s2 { stroke: #3fb950; fill: #3fb950; } .s3 { stroke: #ab7df8; fill: #ab7df8; }
  }
</style>"""


def bars(rows: list[tuple[str, float]], title: str) -> str:
    """Horizontal bars; Weft's stands out."""
    most = max((value for _, value in rows), default=1.0)
    parts = [f'<text x="8" y="20">{escape(title)}</text>']
    for place, (name, value) in enumerate(rows):
        y = 36 + 26 * place
        width = max(1.0, 420 * value / most)
        parts.append(f'<text x="160" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        kind = "own" if name == "weft" else "bar"
        parts.append(f'<rect class="{kind}" x="170" y="{y}" width="{width:.1f}" height="18" rx="3"/>')
        parts.append(f'<text class="small" x="{178 + width:.1f}" y="{y + 14}">{value:,.0f}</text>')
    return _svg(680, 48 + 26 * len(rows), parts, title)


def lines(title: str, series: dict[str, list[tuple[float, float]]]) -> str:
    """Lines over a logarithmic axis."""
    points = [point for row in series.values() for point in row]
    low, high = log10(min(x for x, _ in points)), log10(max(x for x, _ in points))
    top = 1.15 * max(y for _, y in points)

    def place(x: float, y: float) -> tuple[float, float]:
        return 60 + 440 * (log10(x) - low) / (high - low), 260 - 210 * y / top

    parts = [f'<text x="8" y="20">{escape(title)}</text>']
    for power in range(round(low), round(high) + 1):
        x, _ = place(10**power, 0)
        parts.append(f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" y1="50" y2="260"/>')
        parts.append(f'<text class="small" x="{x:.0f}" y="278" text-anchor="middle">{_short(10**power)}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = 260 - 210 * share
        parts.append(f'<line class="grid" x1="60" x2="500" y1="{y:.0f}" y2="{y:.0f}"/>')
        parts.append(f'<text class="small" x="52" y="{y + 4:.0f}" text-anchor="end">{top * share:.1f}</text>')
    for number, (name, row) in enumerate(series.items()):
        places = [place(x, y) for x, y in row]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="s{number}" points="{path}"/>')
        parts += [f'<circle class="s{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
        parts.append(f'<circle class="s{number}" cx="520" cy="{70 + 22 * number}" r="4"/>')
        parts.append(f'<text x="530" y="{74 + 22 * number}">{escape(name)}</text>')
    return _svg(680, 290, parts, title)


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart: points of (size, cost), and the goal for the cost."""

    title: str
    unit: str
    points: list[tuple[float, float]]
    goal: float | None = None


def panels(title: str, charts: list[Panel], columns: int = 3) -> str:
    """Small charts beside each other, both axes logarithmic, over the same sizes; the goal is a dashed line."""
    sizes = [size for chart in charts for size, _ in chart.points]
    low, high = floor(log10(min(sizes))), ceil(log10(max(sizes)))
    parts = [f'<text x="8" y="20">{escape(title)}</text>']
    for number, chart in enumerate(charts):
        x, y = 8 + 226 * (number % columns), 34 + 150 * (number // columns)
        parts += [f'<g transform="translate({x} {y})">', *_panel(chart, low, high), "</g>"]
    return _svg(16 + 226 * columns, 44 + 150 * ceil(len(charts) / columns), parts, title)


def _panel(chart: Panel, low: int, high: int) -> list[str]:
    costs = [cost for _, cost in chart.points] + ([chart.goal] if chart.goal else [])
    bottom, top = floor(log10(min(costs))), ceil(log10(max(costs)))
    top += top == bottom

    def at(size: float, cost: float) -> tuple[float, float]:
        x = 44 + 166 * (log10(size) - low) / (high - low)
        return x, 108 - 86 * (log10(cost) - bottom) / (top - bottom)

    parts = [f'<text class="small" x="0" y="12">{escape(chart.title)}</text>']
    for power in range(low, high + 1):
        x, _ = at(10**power, 10**bottom)
        parts.append(f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" y1="22" y2="108"/>')
        parts.append(f'<text class="small" x="{x:.0f}" y="122" text-anchor="middle">{_short(10**power)}</text>')
    for power in (bottom, top):
        _, y = at(10**low, 10**power)
        label = f"{_short(10.0**power)} {chart.unit}".strip()
        parts.append(f'<line class="grid" x1="44" x2="210" y1="{y:.0f}" y2="{y:.0f}"/>')
        parts.append(f'<text class="small" x="40" y="{y + 4:.0f}" text-anchor="end">{escape(label)}</text>')
    if chart.goal:
        _, y = at(10**low, chart.goal)
        parts.append(f'<line class="goal" x1="44" x2="210" y1="{y:.1f}" y2="{y:.1f}"/>')
    spots = [at(size, cost) for size, cost in chart.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    parts.append(f'<polyline class="s0" points="{path}"/>')
    return parts + [f'<circle class="s0" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in spots]


def _short(number: float) -> str:
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if number >= size:
            return f"{number / size:g} {letter}"
    return f"{number:g}"


def _svg(width: int, height: int, parts: list[str], title: str) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n{STYLE}\n{body}\n</svg>\n'
    )
