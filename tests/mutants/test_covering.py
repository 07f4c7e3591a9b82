"""Which tests a mutant is tried with: those that run its statement, the quick ones first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering, Kept
from covering import Test as Known
from mutations import Mutant, mutants_of
from run import HERE

CODE = textwrap.dedent(
    """\
    SIZE = 3

    def first(a, b):
        if a < b:
            return (
                a
                + b
            )
        return 0

    def second(a=5):
        return a - 1
    """
)


def named(name: str, seconds: float, lines: set[int], *, starts_python: bool = False) -> Known:
    return Known(name, seconds, starts_python, {"room/m.py": lines} if lines else {})


TESTS = [
    named("tests/unit/room/test_m.py::test_slow", 2.0, {4, 5, 6, 7}),
    named("tests/unit/other/test_x.py::test_quick", 0.1, {4, 9}),
    named("tests/unit/other/test_x.py::test_second", 0.2, {12}),
    named("tests/unit/room/test_m.py::test_of_nothing", 0.3, set()),
    named("tests/contract/test_p.py::test_process", 0.1, set(), starts_python=True),
    named("tests/contract/test_p.py::test_no_process", 0.1, set()),
]


def chosen(after: str, blind: list[str] | None = None) -> list[str]:
    (mutant,) = [one for one in mutants_of("room/m.py", CODE) if after in one.after]
    return [test.name.partition("::test_")[2] for test in Covering(TESTS).of(mutant, CODE, blind or [])]


def test_a_mutant_is_tried_with_the_tests_that_run_its_statement_the_quick_ones_first() -> None:
    assert chosen("if a <= b:") == ["quick", "slow"]
    assert chosen("- b") == ["slow"], "a line within a statement"
    assert chosen("return (1)") == ["quick"]
    assert chosen("return a + 1") == ["second"]


def test_what_runs_with_the_import_is_tried_with_every_test_of_the_files_that_use_the_module() -> None:
    for after in ("SIZE = (4)", "def second(a=(6)):"):
        assert chosen(after) == ["of_nothing", "quick", "second", "slow"]


def test_what_is_kept_by_a_cache_is_tried_with_every_test_of_the_files_that_use_the_module() -> None:
    text = CODE + "\n@lru_cache(maxsize=1)\ndef third():\n    return 7 - 1\n"
    (mutant,) = [one for one in mutants_of("room/m.py", text) if "7 + 1" in one.after]
    names = [test.name.partition("::test_")[2] for test in Covering(TESTS).of(mutant, text, [])]
    assert names == ["of_nothing", "quick", "second", "slow"]


def test_a_module_of_records_alone_is_tried_with_the_tests_of_its_room() -> None:
    text = "class Item:\n    hops: int = 0\n"
    (mutant,) = mutants_of("room/records.py", text)
    names = [test.name.partition("::test_")[2] for test in Covering(TESTS).of(mutant, text, [])]
    assert sorted(names) == ["of_nothing", "quick", "second", "slow"]


def test_tests_whose_processes_nobody_sees_come_last() -> None:
    assert chosen("return a + 1", ["tests/contract/test_p.py"]) == ["second", "process"]


def test_what_was_recorded_holds_until_the_code_or_the_test_changes(tmp_path: Path) -> None:
    for name in ("src/m.py", "tests/test_a.py", "tests/test_b.py", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")

    files = ["tests/test_a.py", "tests/test_b.py"]

    def known() -> list[bool]:
        kept = Kept(tmp_path / "kept" / "covering.json", tmp_path, files)
        return [kept.tests(f"tests/test_{one}.py", "slow") is not None for one in "ab"]

    def record() -> None:
        kept = Kept(tmp_path / "kept" / "covering.json", tmp_path, files)
        for one in "ab":
            kept.keep(f"tests/test_{one}.py", "slow", {})
        kept.save()

    assert known() == [False, False]
    for name, left in (
        ("tests/test_b.py", [True, False]),
        ("tests/conftest.py", [False] * 2),
        ("src/m.py", [False] * 2),
    ):
        record()
        assert known() == [True, True]
        (tmp_path / name).write_text((tmp_path / name).read_text() + "y = 2\n")
        assert known() == left
    kept = Kept(tmp_path / "kept" / "covering.json", tmp_path, files)
    (tmp_path / "tests" / "test_a.py").write_text("z = 3\n")
    kept.keep("tests/test_a.py", "slow", {})
    kept.save()
    assert known() == [False, False], "it was recorded as it had been"


def test_a_worker_records_and_finds(tmp_path: Path) -> None:
    """The real thing, on a small tree of its own."""
    source = tmp_path / "src" / "weft"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    text = "def double(a):\n    return a + a\n\n\ndef never(a):\n    return a - 1\n"
    (source / "m.py").write_text(text)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_m.py").write_text(
        "import sys, time\nsys.path.insert(0, 'src')\nfrom weft.m import double\n\n\n"
        "def test_double():\n    assert double(3) == 6\n\n\ndef test_other():\n    assert double\n"
    )

    def question(**more: object) -> str:
        return json.dumps(more) + "\n"

    by_name = {one.after: one for one in mutants_of("m.py", text)}

    def attempt(mutant: Mutant) -> str:
        changed = text[: mutant.start] + mutant.new + text[mutant.end :]
        return question(module="m.py", text=changed, limits_s={"tests/test_m.py::test_double": 60.0})

    asked = question(record="tests/test_m.py", without="nothing", modules=["m.py"])
    asked += attempt(by_name["return a - a"]) + attempt(by_name["return a + 1"])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    ran = subprocess.run(
        [sys.executable, HERE / "worker.py"],
        cwd=tmp_path, env=environment, input=asked, capture_output=True, text=True, check=True,
    )  # fmt: skip
    recorded, found, survived = map(json.loads, ran.stdout.splitlines())
    lines = {name.partition("::")[2]: one["lines"] for name, one in recorded["tests"].items()}
    assert lines == {"test_double": {"m.py": [2]}, "test_other": {}}
    assert (found, survived) == ({"by": "tests/test_m.py::test_double"}, {"by": ""})
    assert (source / "m.py").read_text() == text
