"""Versions of Firecrawl's clients, installed once into this tree's cache folder; a test skips where that cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from pace import patience

CACHE = Path(__file__).parents[2] / ".tools" / "sdks"
JAVASCRIPT = "4.40.0"
SMOKE = Path(__file__).with_name("firecrawl_smoke.mjs")


def javascript(version: str = JAVASCRIPT) -> Path:
    """The folder that a version of the JavaScript client is installed in."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("the JavaScript client was not tried: there is no node here")
    folder = CACHE / f"firecrawl-js-{version}"
    if not (folder / "whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        package = f"@mendable/firecrawl-js@{version}"
        _install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package], folder)
    return folder


def python(version: str) -> Path:
    """The folder that a version of the Python client is installed in, without what it needs: that is here already."""
    folder = CACHE / f"firecrawl-py-{version}"
    if not (folder / "whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        package = ["--no-deps", "--target", str(folder), f"firecrawl-py=={version}"]
        _install([*_installer(), *package], folder)
    return folder


def run_javascript(folder: Path, *words: object, limit_s: float = 120) -> None:
    """Runs the smoke with a client; its words are a failure's reason."""
    done = subprocess.run(
        ["node", "--experimental-websocket", str(SMOKE), *map(str, words)],
        cwd=folder, capture_output=True, text=True, timeout=patience(limit_s), env=_environment(),
    )  # fmt: skip
    assert done.returncode == 0 and "all of it" in done.stdout, done.stdout + done.stderr


def run_python(folder: Path, *words: object) -> None:
    """The same for a version of the Python client."""
    done = subprocess.run(
        [sys.executable, str(SMOKE.with_suffix(".py")), *map(str, words)],
        capture_output=True, text=True, timeout=patience(120), env=_environment(PYTHONPATH=str(folder)),
    )  # fmt: skip
    assert done.returncode == 0 and "all of it" in done.stdout, done.stdout + done.stderr


def _installer() -> list[str]:
    """What installs Python packages here: an environment of uv's has no pip of its own."""
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet"]
    if (pip := shutil.which("pip3")) is not None:
        return [pip, "install", "--quiet"]
    pytest.skip("other versions of the Python client were not tried: neither uv nor pip is here")


def _environment(**more: str) -> dict[str, str]:
    # A client that finds a proxy in the environment would ask that for loopback addresses, too.
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"NO_PROXY": "127.0.0.1,localhost", "NODE_NO_WARNINGS": "1"} | more


def _install(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(60))
    except subprocess.TimeoutExpired:
        pytest.skip(f"not tried: {' '.join(command[-1:])} could not be installed in time")
    if done.returncode:
        pytest.skip(f"not tried: {command[-1]} cannot be installed: {done.stderr.strip()[-300:]}")
    (folder / "whole").touch()
