"""Weft collects the web politely and never loses what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.crawl.api import crawl as crawl

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # `weft.crawl(...)` works after `import weft` alone, and `import weft` stays free of everything it needs.
    if name == "crawl":
        from importlib import import_module

        return import_module("weft.crawl")
    if name in ("Engine", "AsyncEngine"):
        from importlib import import_module

        module = "weft.engine.handle" if name == "Engine" else "weft.engine.aio"
        return getattr(import_module(module), name)
    if name in ("Supervisor", "Orchestrator"):
        from importlib import import_module

        return import_module("weft.system.supervisor").Supervisor
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
