"""ESLint over a repository's JavaScript, where node has it: with our rules, never with the repository's own.

A configuration is code, and so is a plugin: neither is loaded from a repository, nor an ESLint that lies in one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from weft.pipelines.builtin.modules.repositories.process import FinishedProgram, TooMuchOutput, run

OLDEST = 9
CONFIG = Path(__file__).with_name("eslint.config.mjs")
TOP_RULES = 10
VERSION_TIMEOUT_S = 60.0
_ERROR_SEVERITY = 2


Setting = bool | str  # `auto`, `off` or a path; YAML reads `off` as false


def found(setting: Setting) -> str | None:
    """The path of ESLint, by the setting `analyse.eslint`; None if it is not to be used or not installed."""
    if setting in (False, "off"):
        return None
    path = shutil.which("eslint" if setting in (True, "auto") else str(setting))
    return str(Path(path).absolute()) if path else None


def fingerprint(setting: Setting) -> list[Any] | None:
    """Values that differ between installations of ESLint, found without running it."""
    path = found(setting)
    if path is None:
        return None
    facts = Path(path).stat()
    return [path, facts.st_size, int(facts.st_mtime)]


def checked(tree: Path, setting: Setting, timeout_s: float) -> dict[str, Any]:
    """The findings of ESLint in a tree; `absent` has the reason if it was not run, or has not answered."""
    program = found(setting)
    if program is None:
        return {"absent": "it is switched off" if setting in (False, "off") else "there is no eslint on this machine"}
    try:
        version = _eslint_version(program)
        if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < OLDEST:
            return {"absent": f"ESLint {version or '?'} is too old: {OLDEST} or newer is needed"}
        options = ["--no-config-lookup", "--config", str(CONFIG), "--format", "json", "--no-error-on-unmatched-pattern"]
        done = _run_eslint([program, *options, "--no-warn-ignored", "."], tree, timeout_s)
    except TooMuchOutput as error:
        return {"absent": str(error)}
    if done.is_late:
        return {"absent": f"it took longer than {timeout_s:g} s"}
    try:
        return {"version": version} | _summarize_findings(json.loads(done.output))
    except (ValueError, KeyError, TypeError):
        said = (done.error.strip().splitlines() or ["it said nothing"])[0]
        return {"absent": f"it failed with code {done.code}: {said[:200]}"}


@cache
def _eslint_version(program: str) -> str:
    """The version of ESLint, cached because node takes long to start."""
    return (
        _run_eslint([program, "--version"], Path("/"), VERSION_TIMEOUT_S)
        .output.decode(errors="replace")
        .strip()
        .lstrip("v")
    )


def _run_eslint(command: list[str], tree: Path, timeout_s: float) -> FinishedProgram:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    return run(command, environment=environment, timeout_s=timeout_s, folder=tree, max_file_bytes=200_000_000)


def _summarize_findings(files: Any) -> dict[str, Any]:
    if not isinstance(files, list):
        raise TypeError("its report is no list")
    # Without a rule and not fatal: remarks about comments that would configure it, which are not heeded.
    messages = [message for file in files for message in file["messages"] if message["ruleId"] or message.get("fatal")]
    rules = Counter(str(message["ruleId"] or "syntax") for message in messages)
    return {
        "files": len(files),
        "errors": sum(1 for message in messages if message["severity"] == _ERROR_SEVERITY),
        "warnings": sum(1 for message in messages if message["severity"] != _ERROR_SEVERITY),
        "syntax_errors": sum(1 for message in messages if message.get("fatal")),
        "rules": dict(sorted(rules.items(), key=lambda entry: (-entry[1], entry[0]))[:TOP_RULES]),
    }
