"""The mutation tool: it changes what it means to, exactly there, and leaves alone what no test is asked to notice."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutations import apply, is_real, mutants_of
from run import ROOT, Plan


def changes(code: str, module: str = "m.py") -> set[str]:
    """The lines that a piece of code can become."""
    text = textwrap.dedent(code)
    return {mutant.after for mutant in mutants_of(module, text) if is_real(text, mutant)}


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("x = a < b", {"x = a <= b"}),
        ("x = a <= b <= c", {"x = a < b <= c", "x = a <= b < c"}),
        ("x = a in b", {"x = a not in b"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a is not b", {"x = a is b"}),
        ("x = (a) == (b)", {"x = (a) != (b)"}),
        ("x = a and b and c", {"x = a or b and c", "x = a and b or c"}),
        ("x = not a", {"x = a"}),
        ("x = a + b * c", {"x = a - b * c", "x = a + b // c"}),
        ("x = 'ü' + a, b - c", {"x = 'ü' + a, b + c"}),
        ("x = 3", {"x = (4)", "x = (2)"}),
        ("x = 0.0", {"x = (1.0)"}),
        ("x = True", {"x = False"}),
        ("x += y", {"x -= y", "pass"}),
        ("x |= y", {"pass"}),
        ("min(a, b)", {"pass", "max(a, b)"}),
        ("x = a if b else c", {"x = a if not b else c"}),
    ],
)
def test_an_expression_is_changed_in_each_of_its_ways(line: str, becomes: set[str]) -> None:
    assert changes(line) == becomes


def test_statements_are_left_out_negated_and_swapped() -> None:
    code = """
        def f(items):
            for item in items:
                if item:
                    continue
                item.go()
            return items
    """
    assert changes(code) == {"if not item:", "break", "pass", "return None"}


@pytest.mark.parametrize(
    "code",
    [
        '"""A docstring with 1 < 2."""',
        "def f(x: int | None, *, y: dict[str, 1 + 1]) -> list[3]: '''No.'''",
        "class C:\n    __slots__ = ('a', 1)",
        "log.warning('x', extra={'n': 1})",
        "assert a < b, 'no'",
        "raise ValueError(f'{a + 1} is not {b}', 3)",
        "if TYPE_CHECKING:\n    import x",
        "@lru_cache(maxsize=2)\ndef f(): 'No.'",
        "_PIECE = 64 * 1024",
        "class Limits:\n    low: int = 300",
        "def f(kept: int = 20_000, *, wait_s: float = 60.0): return",
        "x = f'{a + 1}'",
        "class P(Protocol):\n    def f(self, x: int = 0) -> int:\n        'No.'\n    def g(self, x=1): ...",
        "return_type: int | str",
        "x = zip(a, b, strict=True)",
    ],
)
def test_what_no_test_is_asked_to_notice_is_left_alone(code: str) -> None:
    assert changes(code) == set()


def test_every_change_is_made_at_its_place_and_compiles() -> None:
    """Of this tool's own code: texts, brackets and characters of several bytes in it."""
    text = (Path(__file__).parent / "mutations.py").read_text()
    mutants = mutants_of("mutations.py", text)
    assert len(mutants) > 100
    assert sum(is_real(text, mutant) for mutant in mutants[::7]) >= 0.9 * len(mutants[::7])
    for mutant in mutants:
        changed = apply(text, mutant)
        assert (changed[: mutant.start], changed[mutant.start + len(mutant.new) :]) == (
            text[: mutant.start],
            text[mutant.end :],
        )
        assert mutant.before != mutant.after
        assert text.splitlines()[mutant.line - 1].split()[0] in mutant.before


def test_lua_is_changed_in_its_operators_and_not_in_texts_or_comments() -> None:
    code = """
        -- a < b and c
        local function f(a)
          if a >= 1 and not b then x[#x + 1] = 'a == b' end
          return a ~= "1 < 2" or true
        end
    """
    assert changes(code, "m.lua") == {
        "if a > 1 and not b then x[#x + 1] = 'a == b' end",
        "if a >= 1 or not b then x[#x + 1] = 'a == b' end",
        "if a >= 1 and b then x[#x + 1] = 'a == b' end",
        "if a >= 1 and not b then x[#x - 1] = 'a == b' end",
        'return a == "1 < 2" or true',
        'return a ~= "1 < 2" and true',
        'return a ~= "1 < 2" or false',
    }


def test_the_plan_names_modules_and_tests_that_are_there() -> None:
    plan = Plan(Path(__file__).with_name("plan.toml"), ROOT)
    assert {"urls.py", "frontier/seen/seen_set.py", "frontier/redis/lua/claim.lua", "crawl/reports/audit.py"} <= set(
        plan.all_modules
    )
    assert plan.modules(["seen", "urls"]) == [
        "frontier/seen/__init__.py", "frontier/seen/seen_file.py", "frontier/seen/seen_merge.py",
        "frontier/seen/seen_run.py", "frontier/seen/seen_runs.py", "frontier/seen/seen_set.py",
        "frontier/seen/seen_table.py", "frontier/seen/url_lookup.py", "urls.py",
    ]  # fmt: skip

    assert {"tests/unit/frontier/redis/test_redis_packing.py", "tests/unit/test_urls.py"} <= set(plan.files)
    blind = plan.blind("frontier/redis/lua/claim.lua")
    assert blind and set(blind) <= set(plan.files)
    assert plan.blind("urls.py") == []
