"""Modules that are written twice, in C and in Python: either of them, whichever this process uses."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import Any

import pytest

WAYS = ("compiled", "python")


def written(way: str, name: str, compiled: str) -> Any:
    """The module in Python (`name`), or its compiled counterpart; the test is skipped where there is none."""
    return in_python(name) if way == "python" else in_c(compiled)


def in_c(name: str) -> Any:
    """A compiled module; the test is skipped where it was not built."""
    try:
        return importlib.import_module(name)
    except ImportError:
        assert not os.environ.get("WEFT_REQUIRE_TOOLS"), f"{name} is missing and this run requires it"
        pytest.skip(f"{name} was not compiled: no C compiler, or no headers of Python, when Weft was installed")


def in_python(name: str) -> ModuleType:
    """A module as it is where nothing was compiled, beside the one that is imported."""
    return _loaded(name, "1")


def as_installed(name: str) -> ModuleType:
    """A module as it is for whoever does not ask for the one in Python."""
    return _loaded(name, "")


def _loaded(name: str, pure: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PURE_PYTHON", pure)
        spec.loader.exec_module(module)
    return module
