"""The report of a run: `report.json` for programs, `report.html` for people, which loads nothing from elsewhere."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from weft.files import replace_file
from weft.pipelines.output.stats import ItemFailure, RunStats, StageStats
from weft.pipelines.run_facts import RunFacts, shown
from weft.pipelines.spec.definition import Pipeline
from weft.pipelines.spec.graph import picture

_WIDTH, _BAR, _GAP, _LABEL, _SHAPE = 760, 22, 10, 130, 150
_FAILURES_SHOWN = 200
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #667080; --line: #d7dce2; --bar: #3a7bd5; --bad: #c0392b;
  --ground: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #98a2b0; --line: #333a44; --bar: #6ea3ef;
  --bad: #ef7d70; --ground: #14171b } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } p.dim, .dim { color: var(--dim) }
table { border-collapse: collapse; width: 100% } th, td { text-align: right; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums } th { color: var(--dim); font-weight: 500 }
th:first-child, td:first-child, td.text, th.text { text-align: left } td { white-space: nowrap }
td.text { overflow-wrap: anywhere; white-space: normal } td:first-child { min-width: 6.5rem }
.wide, pre { overflow-x: auto } a { color: var(--bar) } .bad { color: var(--bad) }
svg { max-width: 100%; height: auto; display: block }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink) } svg .dim { fill: var(--dim) }
svg .bar { fill: var(--bar) } svg .axis { stroke: var(--line) }
.tiles { display: flex; gap: 2rem; flex-wrap: wrap; margin: 1rem 0 } .tiles b { display: block; font-size: 1.4rem }
"""


def write_report(folder: Path, facts: RunFacts, pipeline: Pipeline, stats: RunStats, rows: int | None) -> None:
    """Writes both files, each atomically; `rows` is None for an interrupted run."""
    document = report(facts, stats, rows)
    _write_file(folder / "report.json", msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    _write_file(folder / "report.html", html(facts, pipeline, stats, rows).encode(errors="backslashreplace"))


def report(facts: RunFacts, stats: RunStats, rows: int | None) -> dict[str, Any]:
    """The content of report.json."""
    return shown(facts) | {"rows": rows} | stats.plain()


def html(facts: RunFacts, pipeline: Pipeline, stats: RunStats, rows: int | None) -> str:
    """The page."""
    title = f"{escape(facts.pipeline)}, run {escape(facts.run_id)}"
    graph = escape("\n".join(picture(pipeline.spec.stages, pipeline.order)))
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="dim">{escape(pipeline.spec.description)} Began {escape(facts.started_at)}, '
        f"took {_time_text(facts.seconds * 1000)}{'' if facts.finished else ', interrupted'}. "
        f"Output: {escape(facts.output)}</p>",
        _tiles_html(stats, rows),
        "<h2>Time per stage</h2>", _chart_html(stats.stages), _table_html(stats.stages),
        "<h2>Stages</h2>", f"<pre>{graph}</pre>",
        _failures_html(stats), _slowest_html(stats),
    ]  # fmt: skip
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _tiles_html(stats: RunStats, rows: int | None) -> str:
    counted = [("items", stats.items), ("ok", stats.by_status.get("ok", 0)), ("unchanged", stats.unchanged)]
    counted.append(("skipped otherwise", stats.by_status.get("skipped", 0) - stats.unchanged))
    counted += [(name, stats.by_status.get(name, 0)) for name in ("failed", "timeout", "crashed")]
    tiles = [
        f"<div><b>{count:,}</b>{name}</div>"
        for name, count in [*counted, ("rows", rows or 0)]
        if count or name == "items"
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _chart_html(stages: dict[str, StageStats]) -> str:
    """A bar chart of each stage's total time, with marks for the median and the 95th percentile."""
    most = max((stage.total_ms for stage in stages.values()), default=0.0) or 1.0
    room = _WIDTH - _LABEL - _SHAPE - 80
    lines = []
    for number, (name, stage) in enumerate(stages.items()):
        at = number * (_BAR + _GAP)
        width = max(1.0 if stage.total_ms else 0.0, room * stage.total_ms / most)
        shape = _distribution_svg(stage, _WIDTH - _SHAPE, at)
        lines.append(
            f'<text x="{_LABEL - 10}" y="{at + 16}" text-anchor="end">{escape(name[:20])}</text>'
            f'<rect class="bar" x="{_LABEL}" y="{at}" width="{width:.1f}" height="{_BAR}" rx="2">'
            f"<title>{escape(name)}: {_time_text(stage.total_ms)} in all</title></rect>"
            f'<text class="dim" x="{_LABEL + width + 8:.1f}" y="{at + 16}">{_time_text(stage.total_ms)}</text>{shape}'
        )
    height = len(stages) * (_BAR + _GAP) + 16
    note = f'<text class="dim" x="{_WIDTH - _SHAPE}" y="{height - 3}">from short to long</text>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" '
        f'aria-label="Total time of each stage, and how its durations are distributed">{"".join(lines)}{note}</svg>'
    )


def _distribution_svg(stage: StageStats, x: int, y: int) -> str:
    """A histogram of a stage's durations: one column for each doubling."""
    columns: dict[int, int] = {}
    for bucket, count in stage.buckets.items():
        columns[bucket // 4] = columns.get(bucket // 4, 0) + count
    if not columns:
        return ""
    first, most = min(columns), max(columns.values())
    return "".join(
        f'<rect class="bar" x="{x + (column - first) * 6}" y="{y + _BAR - _column_height(count, most):.1f}" width="5" '
        f'height="{_column_height(count, most):.1f}">'
        f"<title>up to {_time_text(2**column / 1000)}: {count:,}</title></rect>"
        for column, count in sorted(columns.items())
    )


def _column_height(count: int, most: int) -> float:
    return max(1.0, _BAR * math.log1p(count) / math.log1p(most))


def _table_html(stages: dict[str, StageStats]) -> str:
    heads = ("stage", "ran", "unchanged", "skipped", "failed", "median", "95 %", "longest", "in all")
    body = []
    for name, stage in stages.items():
        failed = f'<span class="bad">{stage.failed:,}</span>' if stage.failed else "0"
        times = [stage.percentile_ms(0.5), stage.percentile_ms(0.95), stage.max_ms, stage.total_ms]
        cells = [
            escape(name),
            f"{stage.ran:,}",
            f"{stage.cached:,}",
            f"{stage.skipped:,}",
            failed,
            *map(_time_text, times),
        ]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{head}</th>" for head in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _failures_html(stats: RunStats) -> str:
    if not stats.failures:
        return ""
    phases = ", ".join(f"{escape(phase)} {count:,}" for phase, count in sorted(stats.by_phase.items()))
    body = "".join(map(_failure_row_html, stats.failures[:_FAILURES_SHOWN]))
    more = stats.bad - min(len(stats.failures), _FAILURES_SHOWN)
    rest = f'<p class="dim">{more:,} more are in results.jsonl.</p>' if more > 0 else ""
    return (
        f'<h2 class="bad">Failures</h2><p>By phase: {phases}.</p><div class="wide"><table><tr><th>item</th>'
        '<th class="text">status</th><th class="text">phase</th><th class="text">error</th><th class="text">log</th>'
        f"</tr>{body}</table></div>{rest}"
    )


def _failure_row_html(failure: ItemFailure) -> str:
    error = escape((failure.error or "").splitlines()[0] if failure.error else "")
    log = f'<a href="{escape(quote(failure.log))}">log</a>' if failure.log else ""
    cells = [escape(failure.status), escape(failure.phase or ""), error, log]
    return (
        f'<tr><td class="text">{escape(str(failure.id))}</td>'
        + "".join(f'<td class="text">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def _slowest_html(stats: RunStats) -> str:
    if not stats.slowest:
        return ""
    rows = "".join(
        f'<tr><td class="text">{escape(name)}</td><td>{_time_text(ms)}</td></tr>'
        for ms, name in sorted(stats.slowest, reverse=True)
    )
    return f"<h2>Slowest items</h2><table><tr><th>item</th><th>took</th></tr>{rows}</table>"


def _time_text(ms: float) -> str:
    if ms >= 60_000:
        minutes, seconds = divmod(round(ms / 1000), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02} h" if hours else f"{minutes}:{seconds:02} min"
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms" if ms >= 0.001 else "0"


def _write_file(path: Path, data: bytes) -> None:
    replace_file(path, data, durable=False, mode=0o644)
