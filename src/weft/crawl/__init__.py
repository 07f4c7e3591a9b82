"""Product: crawls. The module itself can be called: `weft.crawl(seeds, max_pages=100)` yields pages (see api.py)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`weft.crawl` is a room of the house and, for users, a function."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        from weft.crawl.api import crawl

        return crawl(*args, **settings)


sys.modules[__name__].__class__ = _Callable
