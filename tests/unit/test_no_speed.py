"""No test holds a clock against a number: that says how fast a machine is. Speed is measured by `make bench`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# A reading of a clock, the difference of two of them, or what people call it.
CLOCK = re.compile(
    r"(monotonic|perf_counter|process_time)\(\)|\b(took|elapsed|spent)(_s)?\b|\b(waited|burnt|parse)_s\b|\.ended - "
)


def upper_bounds(source: str) -> Iterator[tuple[int, str]]:
    """Comparisons that a slow machine fails: a time that must be less than a number that nobody has stretched."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            terms = [node.left, *node.comparators]
            for left, sign, right in zip(terms, node.ops, terms[1:], strict=False):
                low, high = (left, right) if isinstance(sign, ast.Lt | ast.LtE) else (right, left)
                is_order = isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                if is_order and isinstance(high, ast.Constant) and CLOCK.search(ast.unparse(low)):
                    yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_time_is_held_against_a_number(path: Path) -> None:
    found = [f"{path}:{line}: {text}" for line, text in upper_bounds(path.read_text(encoding="utf-8"))]
    advice = "say what the time stands for, take patience() for a limit, or measure it in benchmarks/parts.py"
    assert not found, "\n".join([*found, advice])


def test_what_is_found() -> None:
    assert [*upper_bounds("assert time.monotonic() - began < 1.4")]
    assert [*upper_bounds("assert 0.4 <= result.ended - result.started < 0.7")]
    assert [*upper_bounds("assert 3 > took_s")]
    assert not [*upper_bounds("assert time.monotonic() - began < patience(5)")]
    assert not [*upper_bounds("assert waited_s > 0.8")]
