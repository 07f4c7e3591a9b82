"""Chooses between the two versions of a module: the compiled one if it was built, otherwise the one in Python.

Both do the same, and the same tests run on both. `WEFT_PURE_PYTHON=1` uses those in Python in any case.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType


def counterpart(name: str) -> ModuleType | None:
    """The compiled version of a module; None if it was not built, or is disabled."""
    if os.environ.get("WEFT_PURE_PYTHON"):
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
