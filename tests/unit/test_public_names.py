"""What is public in Python: the names of `weft` and of the reference. Examples and documentation use no others."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference/python.md"
PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[!d]*/*.md"), ROOT / "README.md"]
EXAMPLES = [*(ROOT / "examples").rglob("*.py")]


def listed() -> set[str]:
    return set(re.findall(r"^\| \[`([\w.]+)`\]", REFERENCE.read_text(), re.MULTILINE))


def imported(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "weft":
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] == "weft")


def is_public(name: str) -> bool:
    """A name of the reference, or a package of some."""
    return name == "weft" or any(one == name or one.startswith(f"{name}.") for one in listed())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_imports_what_is_public(path: Path) -> None:
    assert [name for name in imported(path.read_text()) if not is_public(name)] == []


def test_the_documentation_imports_what_is_public() -> None:
    blocks = [
        (path.name, block)
        for path in PAGES
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    ]
    assert len(blocks) > 20
    assert [(page, name) for page, block in blocks for name in imported(block) if not is_public(name)] == []


def test_all_names_of_weft_are_in_the_reference_with_words() -> None:
    for name in weft.__all__:
        assert f"weft.{name}" in listed() and inspect.getdoc(getattr(weft, name))


def test_help_describes_the_function_crawl_also_after_its_package_was_imported() -> None:
    code = "import weft, weft.crawl.start; help(weft.crawl)"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert text.startswith("Help on function weft.crawl")
    assert "weft.crawl(seeds:" in text and "**settings" in text and "PACKAGE CONTENTS" not in text


def test_crawl_is_one_object_for_imports_pickle_and_inspection() -> None:
    code = """
import pickle, weft, weft.crawl
from weft.crawl import own_code
import weft.crawl.folder as folder
assert weft.crawl is pickle.loads(pickle.dumps(weft.crawl))
assert own_code.__name__ == "weft.crawl.own_code" and folder.__name__ == "weft.crawl.folder"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    names = [*inspect.signature(weft.crawl).parameters]
    assert names == ["seeds", "data_dir", "config", "on_page", "settings"]
