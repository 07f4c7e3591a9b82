"""The points that `benchmarks/scale.py` has measured: values for goals, a table, and the panels of the chart.

A point is one size: `{"pages", "hosts", "known", "hot_rows", "costs": {NAME: cost}}`. A command or operation that was
ended at its limit has `over_s` alone, one with a wrong answer has `failed`: neither meets a goal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

from harness.charts import Panel

LEAST_PAGES = 10_000_000  # a goal is judged at this size or a larger one: a small folder proves nothing
BASE_PAGES = 1_000_000  # what growth is measured from
Point = dict[str, Any]
Value = Callable[[Point], float | None]


def cost(name: str, key: str) -> Value:
    """One number of a command or an operation; the limit where it took longer, infinite where it was wrong."""

    def value(point: Point) -> float | None:
        one = point["costs"].get(name)
        if one is None:
            return None
        if "failed" in one:
            return inf
        # An operation without its first request has no number for it.
        limit: float | None = one.get("over_s")
        number: float | None = one.get(key)
        return limit if limit else number

    return value


def built(key: str, by: str = "") -> Value:
    """One number of the build, or its share by another of the point (`pages`, `known`)."""

    def value(point: Point) -> float | None:
        number: float | None = point["costs"].get("build", {}).get(key)
        return number if number is None or not by else number / point[by]

    return value


def export_row_ms(point: Point) -> float | None:
    """Milliseconds for a row of the hot host."""
    wall_s = cost("export-host", "wall_s")(point)
    return None if wall_s is None else 1000 * wall_s / point["hot_rows"]


def longest_stop(point: Point) -> float | None:
    """Seconds from SIGINT to the end, of the slowest operation that ran alone."""
    stops = [one.get("stop_s") for name, one in _operations(point) if not name.endswith("-busy")]
    return max((stop for stop in stops if stop is not None), default=None)


def longest_gap(point: Point) -> float | None:
    """Seconds between two heartbeats, beside busy loops too."""
    return max((one["largest_gap_s"] for _, one in _operations(point)), default=None)


def kills(point: Point) -> float | None:
    """Processes that the orchestrator has killed."""
    return sum(one["killed"] for _, one in _operations(point)) if any(True for _ in _operations(point)) else None


def write_amplification(point: Point) -> float | None:
    """Bytes that the frontier has written for each byte that it has grown by, while URLs are queued."""
    build = point["costs"].get("build", {})
    return build["queued_written_bytes"] / build["queued_grown_bytes"] if build.get("queued_grown_bytes") else None


def insert_us(point: Point) -> float | None:
    """CPU microseconds to commit a row, at the end of the build."""
    windows = point["costs"].get("build", {}).get("windows", ())
    last = windows[-max(1, len(windows) // 5) :]
    return median(window["index_us"] for window in last) if last else None


def _operations(point: Point) -> list[tuple[str, dict[str, Any]]]:
    return [(name, one) for name, one in point["costs"].items() if "largest_gap_s" in one]


def at_largest(value: Value) -> Callable[[dict[str, Any]], float | None]:
    """The value at the largest size that was measured; None where that is below LEAST_PAGES."""

    def of_section(section: dict[str, Any]) -> float | None:
        points = [point for point in section.get("points", ()) if point["pages"] >= LEAST_PAGES]
        return value(points[-1]) if points else None

    return of_section


def growth_of(value: Value, divided_by: str = "") -> Callable[[dict[str, Any]], float | None]:
    """The value at the largest size by that at BASE_PAGES; with `divided_by`: its increase by that number's."""

    def of_section(section: dict[str, Any]) -> float | None:
        points = {point["pages"]: point for point in section.get("points", ()) if point["pages"] >= BASE_PAGES}
        if BASE_PAGES not in points or max(points) < LEAST_PAGES:
            return None
        base, largest = points[BASE_PAGES], points[max(points)]
        low, high = value(base), value(largest)
        if low is None or high is None:
            return None
        return (high - low) / (largest[divided_by] - base[divided_by]) if divided_by else high / low

    return of_section


def anonymous_bytes(point: Point) -> float | None:
    """Memory of a resumed crawl that is no file's."""
    mb = cost("resume", "anonymous_mb")(point)
    return None if mb is None else mb * (1 << 20)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table, and one panel of the chart."""

    title: str
    value: Value
    unit: str = "s"
    goal: float | None = None
    of: str = ""  # the command or operation that it is about: its CPU is shown, too, and its memory


def timed(title: str, name: str, key: str = "wall_s", goal: float | None = None) -> Line:
    """The seconds of a command, or of an operation to its first request."""
    return Line(title, cost(name, key), goal=goal, of=name)


FIRST = "first_request_s"
LINES = (
    timed("`explain`, unknown URL", "explain-unknown", goal=0.5),
    timed("`explain`, queued URL", "explain-queued", goal=0.5),
    timed("`explain`, stored URL", "explain-stored", goal=0.5),
    timed("`get`", "get", goal=0.5),
    timed("`stats`", "stats", goal=0.5),
    timed("`audit`", "audit"),
    Line("`audit`, memory", cost("audit", "peak_rss_mb"), "MB", 200),
    timed("`audit --host`", "audit-host", goal=10),
    timed("`audit --since`", "audit-since", goal=10),
    timed("`export --host`, an ordinary host", "export-one", goal=0.5),
    Line("`export --host`, a row of the hot host", export_row_ms, "ms", 1),
    timed("`--resume`, first request", "resume", FIRST, 10),
    timed("`--retry-failed`, first request", "retry-failed", FIRST, 10),
    timed("`--recrawl`, first request", "recrawl", FIRST, 10),
    timed("the same beside busy loops: `--resume`", "resume-busy", FIRST, 10),
    timed("`--retry-failed`", "retry-failed-busy", FIRST, 10),
    timed("`--recrawl`", "recrawl-busy", FIRST, 10),
    Line("clean stop", longest_stop, goal=5),
    Line("written by a resume and its stop", lambda point: _mb(cost("resume", "written_bytes")(point)), "MB"),
    Line("memory of a resumed crawl that is no file's", cost("resume", "anonymous_mb"), "MB"),
    Line("frontier on the disk, a known URL", built("frontier_bytes", "known"), "B"),
    Line("frontier, bytes written for one kept", write_amplification, "x"),
    Line("files in the folder", built("files"), "", 500),
    Line("index, a page", built("index_bytes", "pages"), "B"),
    Line("index, CPU to commit a row", insert_us, "µs"),
    Line("request log, a page", built("log_bytes", "pages"), "B", 13),
)


def _mb(size: float | None) -> float | None:
    return None if size is None else size / 1e6


def panels(section: dict[str, Any]) -> list[Panel]:
    """The lines that have at least two points."""
    found = [Panel(line.title.replace("`", ""), line.unit, _points(line, section), line.goal) for line in LINES]
    return [panel for panel in found if len(panel.points) > 1]


def _points(line: Line, section: dict[str, Any]) -> list[tuple[float, float]]:
    values = [(float(point["pages"]), line.value(point)) for point in section.get("points", ())]
    return [(pages, value) for pages, value in values if value is not None and 0 < value < inf]


def table(section: dict[str, Any]) -> str:
    """The Markdown table: a column for each size."""
    points = section["points"]
    head = " | ".join(f"{point['pages']:,} pages" for point in points)
    rows = [f"| | {head} | goal |", "|---" * (len(points) + 2) + "|"]
    for line in LINES:
        cells = [_cell(line, point) for point in points]
        if any(cells):
            goal = "" if line.goal is None else f"≤ {line.goal:g} {line.unit}".strip()
            rows.append(f"| {line.title} | {' | '.join(cells)} | {goal} |")
    return "\n".join(rows)


def _cell(line: Line, point: Point) -> str:
    value = line.value(point)
    if value is None:
        return ""
    if value == inf:
        return "wrong answer"
    limits = {one.get("over_s") for one in point["costs"].values()} - {None}
    text = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{'> ' if value in limits else ''}{text} {line.unit}".strip() + _cpu(line, point)


def _cpu(line: Line, point: Point) -> str:
    """What a command took of the CPU and of memory, which a busy machine changes less than its seconds."""
    of = point["costs"].get(line.of, {})
    cpu_s = of.get("first_request_cpu_s", of.get("cpu_s"))
    load = f", load {of['load']:.0f}" if "load" in of else ""
    return "" if cpu_s is None else f" ({cpu_s:.2g} s of CPU, {of['peak_rss_mb']:.0f} MB{load})"
