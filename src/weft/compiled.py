"""Which of the modules that are written twice is used: the compiled one where it was built, else the one in Python.

Both do the same, and the same tests run on both. `WEFT_PURE_PYTHON=1` uses those in Python in any case.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType


def counterpart(name: str) -> ModuleType | None:
    """The compiled module of a name; None where it was not built, or is not wanted."""
    if os.environ.get("WEFT_PURE_PYTHON"):
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
