"""No test holds a clock against a number, or gives up after one: that says how fast a machine is. Speed is measured by
`make bench`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
# A reading of a clock, the difference of two of them, or what people call it.
CLOCK = re.compile(
    r"(monotonic|perf_counter|process_time)\(\)|\b(took|elapsed|spent)(_s)?\b|\b(waited|burnt|parse)_s\b|\.ended - "
)

# Calls that wait for somebody else; of some the limit is the first argument.
WAITS_FIRST = {"wait", "join", "settimeout"}
WAITS = WAITS_FIRST | {"communicate", "run", "check_output", "create_connection", "urlopen", "HTTPConnection", "get"}


def upper_bounds(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Comparisons that a slow machine fails: a time that must be less than a number that nobody has stretched."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            terms = [node.left, *node.comparators]
            for left, sign, right in zip(terms, node.ops, terms[1:], strict=False):
                low, high = (left, right) if isinstance(sign, ast.Lt | ast.LtE) else (right, left)
                is_order = isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                if is_order and isinstance(high, ast.Constant) and CLOCK.search(ast.unparse(low)):
                    yield node.lineno, ast.unparse(node)


def fixed_limits(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Waits for others that give up after a second or more that nobody has stretched; less is meant to run out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            limits = [key.value for key in node.keywords if key.arg == "timeout"]
            limits += node.args[:1] if node.func.attr in WAITS_FIRST else []
            numbers = [one.value for one in limits if isinstance(one, ast.Constant)]
            if any(isinstance(number, int | float) and number >= 1 for number in numbers):
                yield node.lineno, ast.unparse(node)


def test_no_time_is_held_against_a_number() -> None:
    held, fixed = list[str](), list[str]()
    for path in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        held += [f"{path}:{line}: {text}" for line, text in upper_bounds(tree)]
        fixed += [f"{path}:{line}: {text}" for line, text in fixed_limits(tree)]
    advice = "say what the time stands for, take patience() for a limit, or measure it in benchmarks/parts.py"
    assert not held, "\n".join([*held, advice])
    assert not fixed, "\n".join([*fixed, "take patience() for the limit"])


def test_what_is_found() -> None:
    assert [*upper_bounds(ast.parse("assert time.monotonic() - began < 1.4"))]
    assert [*upper_bounds(ast.parse("assert 0.4 <= result.ended - result.started < 0.7"))]
    assert [*upper_bounds(ast.parse("assert 3 > took_s"))]
    assert not [*upper_bounds(ast.parse("assert time.monotonic() - began < patience(5)"))]
    assert not [*upper_bounds(ast.parse("assert waited_s > 0.8"))]
    assert [*fixed_limits(ast.parse("running.wait(60)"))] and [
        *fixed_limits(ast.parse("subprocess.run(command, timeout=120)"))
    ]
    assert not [*fixed_limits(ast.parse("running.wait(patience(60))"))] and not [
        *fixed_limits(ast.parse("over.wait(0.05)"))
    ]
    assert not [*fixed_limits(ast.parse("', '.join(words)"))]
