"""Which tests run which lines: made once for the code as it is, file by file, and kept until it changes."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutations import Mutant

_OWN_FIRST = 3.0  # a test of the module's own file may take so much longer than another one, and comes first


@dataclass(frozen=True)
class Test:
    """What is known of one."""

    name: str  # pytest's
    seconds: float
    starts_python: bool  # what runs there is not seen
    lines: dict[str, set[int]] = field(repr=False)


class Covering:
    """The tests of all files."""

    def __init__(self, tests: Iterable[Test]) -> None:
        self._tests = list(tests)

    def of(self, mutant: Mutant, text: str, blind: Iterable[str]) -> list[Test]:
        """Those that may notice it, the likely and the quick ones first. `blind`: files whose tests start processes
        that run the module, which nobody sees."""
        lines = _lines_of(text, mutant) if mutant.module.endswith(".py") else {1}
        if lines is None:
            files = {_file(test) for test in self._tests if mutant.module in test.lines} or self._of_room(mutant.module)
            chosen = [test for test in self._tests if _file(test) in files]
        else:
            chosen = [test for test in self._tests if not lines.isdisjoint(test.lines.get(mutant.module, ()))]
        return sorted(chosen, key=lambda test: _cost(test, mutant.module)) + [
            test for test in self._tests if test.starts_python and test not in chosen and _file(test) in blind
        ]

    def _of_room(self, module: str) -> set[str]:
        """Files that run something of the module's folder: for one that has nothing to run, only records."""
        room = str(Path(module).parent)
        return {_file(test) for test in self._tests if any(str(Path(one).parent) == room for one in test.lines)}


def _file(test: Test) -> str:
    return test.name.partition("::")[0]


def _cost(test: Test, module: str) -> float:
    *room, name = Path(module).with_suffix("").parts
    file = Path(_file(test))
    own = file.is_relative_to(Path("tests/unit", *room[:1])) and file.stem.startswith(
        (f"test_{name}", f"test_{'_'.join([*room[-1:], name])}")
    )
    return test.seconds / (_OWN_FIRST if own else 1.0)


def _lines_of(text: str, mutant: Mutant) -> set[int] | None:
    """The lines of the statement that is changed; None for what runs once for all tests of a process: with the import,
    or behind a cache."""
    best: ast.stmt | None = None
    in_function = False
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while stack:
        node, inside = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                assert child.end_lineno is not None
                if not child.lineno <= mutant.line <= child.end_lineno:
                    continue
                best, in_function = child, inside
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not _runs_once(child)
            stack.append((child, inside or is_function))
    if best is None or not in_function:
        return None
    assert best.end_lineno is not None
    body = getattr(best, "body", None)
    last = body[0].lineno - 1 if body else best.end_lineno
    return set(range(best.lineno, max(best.lineno, last) + 1))


def _runs_once(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether its one result is kept: only the first test that wants it would be seen to run it."""
    return any(ast.unparse(one) == "lru_cache(maxsize=1)" for one in function.decorator_list)


# ── keeping ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Kept:
    """What was recorded of each test file, as long as neither it nor the code nor what tests share has changed."""

    def __init__(self, path: Path, root: Path, tests: Iterable[str]) -> None:
        self._path = path
        # As they are now: whoever goes on working while they are recorded changes them.
        self._tests = {file: _digest([root / file]) for file in tests}
        self._code = _digest([*_code(root / "src"), *(root / "tests").rglob("conftest.py"), *_shared(root)])
        self._files: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def tests(self, file: str, without: str) -> dict[str, Any] | None:
        """What is known of a file's tests, if it still holds."""
        one = self._files.get(file)
        tests: dict[str, Any] | None = one["tests"] if one and one["of"] == self._of(file, without) else None
        return tests

    def keep(self, file: str, without: str, tests: dict[str, Any]) -> None:
        self._files[file] = {"of": self._of(file, without), "tests": tests}

    def save(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self._files))

    def _of(self, file: str, without: str) -> str:
        return f"{self._code} {self._tests[file]} {without}"


def _code(source: Path) -> list[Path]:
    return [path for path in source.rglob("*") if path.suffix in (".py", ".lua")]


def _shared(root: Path) -> list[Path]:
    return [path for path in (root / "tests").rglob("*.py") if not path.name.startswith("test_")
            and "mutants" not in path.parts]  # fmt: skip


def _digest(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(set(paths)):
        total.update(str(path).encode() + path.read_bytes())
    return total.hexdigest()


def tests_of(recorded: dict[str, Any]) -> list[Test]:
    """As the recorder has written them down."""
    return [
        Test(name, one["seconds"], one["starts_python"], {module: set(lines) for module, lines in one["lines"].items()})
        for name, one in recorded.items()
    ]
