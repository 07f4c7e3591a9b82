"""ESLint over a stranger's code: our rules, none of theirs; and the message where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pace import patience

from weft.pipelines.builtin.modules.analysis import eslint

needs_eslint = pytest.mark.skipif(shutil.which("eslint") is None, reason="no eslint on PATH: scripts/tools fetches it")


@needs_eslint
def test_code_is_judged_by_our_rules_and_a_repositorys_own_configuration_is_not_loaded(tmp_path: Path) -> None:
    owned = f"require('fs').writeFileSync({str(tmp_path / 'owned')!r}, ''); module.exports = [];"
    files = {
        "eslint.config.js": owned,
        "eslint.config.mjs": "import fs from 'fs'; fs.writeFileSync('owned', ''); export default [];",
        ".eslintrc.js": owned,
        "package.json": '{"type": "module", "eslintConfig": {"rules": {"no-const-assign": "off"}}}',
        "good.js": "export const a = 1;\n",
        "bad.js": "/* eslint-disable */\nconst a = 1;\na = 2;\neval('a');\n",
        "view.jsx": "export const v = <p>it's</p>;\n",
        "broken.js": "function ( {",
        "node_modules/x/bad.js": "const a = 1; a = 2;",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = eslint.checked(tmp_path, "auto", patience(30))
    assert found["rules"] == {"no-const-assign": 1, "no-eval": 1, "syntax": 1}
    assert (found["errors"], found["syntax_errors"], found["files"]) == (3, 1, 7)
    assert not (tmp_path / "owned").exists()


def program(folder: Path, text: str) -> str:
    path = folder / "eslint"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo v8.57.0", "ESLint 8.57.0 is too old: 9 or newer is needed"),
        ("echo nothing of use", "is too old"),
        ("[ $1 = --version ] && echo v9.0.0 || { echo Oops: no module >&2; exit 2; }", "code 2: Oops: no module"),
        ("[ $1 = --version ] && echo v9.0.0 || echo '{}'", "it failed with code 0: it said nothing"),
        ("[ $1 = --version ] && echo v9.0.0 || sleep 100", "it took longer than"),
    ],
    ids=["old", "no version", "failing", "no report", "slow"],
)
def test_an_eslint_that_is_of_no_use_is_said_to_be_absent(tmp_path: Path, text: str, why: str) -> None:
    assert why in eslint.checked(tmp_path, program(tmp_path, text), 1.0 if "sleep" in text else patience(10))["absent"]


@pytest.mark.parametrize("setting", ["off", False])
def test_it_can_be_switched_off(tmp_path: Path, setting: bool | str) -> None:
    assert eslint.checked(tmp_path, setting, 1.0) == {"absent": "it is switched off"}


def test_that_there_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert eslint.checked(tmp_path, "auto", 1.0) == {"absent": "there is no eslint on this machine"}
    assert eslint.fingerprint("auto") is None


def test_another_eslint_is_another_fingerprint(tmp_path: Path) -> None:
    path = program(tmp_path, "echo v9.0.0")
    first = eslint.fingerprint(path)
    assert first == eslint.fingerprint(path) and first is not None
    assert eslint.fingerprint(program(tmp_path, "echo v9.0.1 or so")) != first
