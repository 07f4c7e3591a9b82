"""Charts as attributes of an SVG: paths and labels. They are rendered here, for pages without scripts; the page's
script only replaces them with newer ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.jobs.dashboard import text
from weft.jobs.dashboard.history import History

WIDTH, HEIGHT = 320, 88
_CHART_KINDS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("pages", "Pages a second", text.decimal),
    ("errors", "Errors a second", text.decimal),
    ("bytes", "Bytes a second", text.size),
)


def charts_of(history: History, until: float | None) -> list[dict[str, Any]]:
    """The charts of a task; `until`: now, while it runs."""
    bars = history.bars(until)
    length_s = float(len(bars) * history.width_s)
    times = {"begin": "0 s", "middle": text.duration(length_s / 2), "length": text.duration(length_s)}
    axis = times if bars else dict.fromkeys(times, "")
    return [
        chart([bar[index] for bar in bars], written) | {"name": name, "title": title, **axis}
        for index, (name, title, written) in enumerate(_CHART_KINDS)
    ]


def chart(values: Sequence[float], written: Callable[[float], str]) -> dict[str, Any]:
    """One chart: `line` and `area` are paths; `top`, `half` and `zero` label its edge, middle and base."""
    most = max(values, default=0.0)
    top = ceiling(most)
    points = [(x, HEIGHT - value / top * HEIGHT) for x, value in zip(_x_positions(len(values)), values, strict=True)]
    if len(points) == 1:
        points = [(0.0, points[0][1]), (float(WIDTH), points[0][1])]
    line = "".join(
        f"{'L' if at else 'M'}{x:g} {y:g}" for at, (x, y) in enumerate((round(x, 1), round(y, 1)) for x, y in points)
    )
    mean = sum(values) / len(values) if values else 0.0
    return {
        "line": line,
        "area": f"{line}V{HEIGHT}H0Z" if line else "",
        **{name: f"{written(at)}/s" if values else "" for name, at in (("top", top), ("half", top / 2), ("zero", 0.0))},
        "said": f"highest {written(most)}, on average {written(mean)}" if values else "nothing yet",
    }


def ceiling(most: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 5, 10) if most <= step * power * (1 + 1e-9))


def _x_positions(number: int) -> list[float]:
    return [WIDTH * at / max(1, number - 1) for at in range(number)]
