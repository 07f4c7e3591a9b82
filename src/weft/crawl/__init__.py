"""Product: crawls. The module itself is callable: `weft.crawl(seeds, max_pages=100)` yields pages (see
page_iteration.py)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from weft.crawl.keywords import Settings
    from weft.engine.stored.stored_page import CrawledPage
    from weft.engine.user_code.page import Page


class _CallableModule(ModuleType):
    """Makes this package callable: users call `weft.crawl(...)` as a function."""

    def __call__(
        self,
        seeds: str | Sequence[str] = (),
        *,
        data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        config: str | os.PathLike[str] | None = None,
        on_page: Callable[[Page], Any] | str | None = None,
        **settings: Unpack[Settings],
    ) -> Iterator[CrawledPage]:
        """Crawls and yields the pages as they are stored: see `weft.crawl.page_iteration.crawl`."""
        from weft.crawl.page_iteration import crawl

        return crawl(seeds, data_dir=data_dir, config=config, on_page=on_page, **settings)


sys.modules[__name__].__class__ = _CallableModule
