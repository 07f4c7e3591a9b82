"""Imports of JavaScript and Python by their syntax, and the dependencies that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.pipelines.builtin.modules.analysis import dependencies, javascript_imports, python_imports
from weft.pipelines.builtin.modules.analysis.manifest import ModuleManifest
from weft.pipelines.builtin.modules.repositories.tree import Tree


def javascript(source: str, suffix: str = ".js") -> javascript_imports.JavascriptImports:
    found = javascript_imports.JavascriptImports()
    javascript_imports.read(source.encode(), suffix, found)
    return found


def python(source: str | bytes) -> python_imports.PythonImports:
    found = python_imports.PythonImports()
    python_imports.read(source if isinstance(source, bytes) else source.encode(), found)
    return found


def tree(folder: Path, **files: str) -> Tree:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(folder)


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import a from 'a'", {"a"}),
        ('import {x as y} from "@scope/b/deep/file.js"', {"@scope/b"}),
        ("import 'side/effect'", {"side"}),
        ("export * from 'exp'; export {z} from 'other'", {"exp", "other"}),
        ("const d = await import('dyn')", {"dyn"}),
        ("const e = require('req'), f = require.resolve(`res`)", {"req", "res"}),
        ("require(name); require(`x${1}`); require('a' + 'b'); import('a' + b)", set()),
        ("import './own'; require('../up'); import '/abs'; import '#internal'; import 'https://host/x.js'", set()),
        ("import fs from 'fs'; require('node:path'); import p from 'fs/promises'", set()),
        ("// import 'comment'\n/* require('block') */", set()),
        ("const s = \"require('text')\", t = `import 'tpl'`, r = /require('re')/g", set()),
        ("const x = a / require('div') / b", {"div"}),
        ("obj.require('method')", set()),
        ("const t = `${require('inside')}`", {"inside"}),
    ],
)
def test_javascript_imports_are_those_of_the_syntax(source: str, packages: set[str]) -> None:
    assert javascript(source).needed == packages


def test_jsx_text_and_types_are_read_as_what_they_are() -> None:
    assert javascript("import R from 'react'; const v = <p>don't require('no') // text</p>", ".jsx").needed == {"react"}
    assert javascript("import type {T} from 't'; import x = require('old'); let y = <any>z", ".ts").needed == {
        "t",
        "old",
    }
    assert javascript("import R from 'react'; const v: X = <p>it's</p>", ".tsx").needed == {"react"}


def test_what_stands_in_try_is_optional_and_broken_code_hides_nothing_before_it() -> None:
    found = javascript("import a from 'a'; try { require('maybe') } catch {}\nfunction ( {{{")
    assert (found.needed, found.optional, found.unreadable) == ({"a"}, {"maybe"}, 1)


def test_deep_nesting_does_not_end_the_process() -> None:
    assert javascript("(" * 20_000 + "require('deep')").unreadable == 1
    assert python("(" * 20_000).unreadable == 1
    assert python("-" * 20_000 + "1").unreadable == 1


def test_code_that_takes_the_parser_too_long_is_read_as_far_as_it_came() -> None:
    found = javascript_imports.JavascriptImports()
    javascript_imports.read(b"import 'first';\n" + b"'" * 400_000, ".js", found, max_s=0.2)
    assert (found.needed, found.unreadable) == ({"first"}, 1)


def test_a_long_sum_hides_no_import() -> None:
    assert python("x = " + " + ".join(["a"] * 2_000) + "\nimport b").needed == {"b"}


def test_python_imports_are_those_of_the_syntax() -> None:
    found = python(
        '"""import text"""\n# import comment\nimport a.b, c as d\nfrom e import f, g\nfrom . import own\n'
        "from .sib import x\nfrom star import *\n"
        "try:\n    import fast\nexcept ImportError:\n    import slow\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import types_only\nelse:\n    import real\n"
        "def f():\n    import lazy\n"
    )
    assert found.needed == {"a.b", "c", "e.f", "e.g", "star", "typing.TYPE_CHECKING", "real", "lazy"}
    assert found.optional == {"fast", "slow", "types_only"}


@pytest.mark.parametrize("source", [b"def (", b"\x00", b"\xff\xfe", b"print 'two'"])
def test_what_is_no_python_is_counted(source: bytes) -> None:
    assert python(source).unreadable == 1


def test_javascript_dependencies_are_compared(tmp_path: Path) -> None:
    found = dependencies.of_javascript(
        tree(
            tmp_path,
            main_DOT_js="require('used'); require('missing'); require('typed'); try { require('opt') } catch {}",
            node_modules__x__index_DOT_js="require('vendored')",
        ),
        ModuleManifest(
            file="package.json",
            name="self",
            scripts=("tool --fast && echo done",),
            declared={
                "dependencies": {"used": "1", "unused": "1", "tool": "1"},
                "devDependencies": {"jest": "1", "@types/typed": "1"},
            },
        ),
    )
    assert found is not None
    assert (found["used"], found["missing"], found["unused"]) == (
        ["missing", "opt", "typed", "used"],
        ["missing"],
        ["unused"],
    )
    assert found["files"] == 1


def test_python_dependencies_are_compared(tmp_path: Path) -> None:
    found = dependencies.of_python(
        tree(
            tmp_path,
            src__pkg__core_DOT_py="import os, yaml, PIL.Image, numpy\nfrom google.cloud import storage\nimport pkg",
            tests__test_x_DOT_py="import pytest\nimport helper",
            tests__helper_DOT_py="",
            requirements_DOT_txt="flask==2  # web\n-r other.txt\nPillow\n",
        ),
        ModuleManifest(
            file="pyproject.toml",
            name="pkg",
            declared={"dependencies": {"pyyaml": "", "google-cloud-storage": ""}, "group:dev": {"pytest": ""}},
        ),
    )
    assert found is not None
    assert found["used"] == ["google-cloud-storage", "numpy", "pillow", "pytest", "pyyaml"]
    assert found["missing"] == ["numpy"]
    assert found["unused"] == ["flask"]
    assert found["declared"]["dependencies"]["flask"] == "==2"


def test_a_repository_without_a_language_has_no_dependencies_of_it(tmp_path: Path) -> None:
    empty = tree(tmp_path, notes_DOT_txt="")
    assert dependencies.of_javascript(empty, ModuleManifest()) is None
    assert dependencies.of_python(empty, ModuleManifest()) is None
