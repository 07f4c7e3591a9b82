"""Product: crawls. `weft.crawl(seeds, max_pages=100)` yields pages (see page_iteration.py).

The name `weft.crawl` is a function for users and the package of this room at once, so the function takes the place of
the module: with a module `help(weft.crawl)` and a notebook would describe the package.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from weft.crawl.keywords import Settings
    from weft.engine.stored.stored_page import CrawledPage
    from weft.engine.user_code.page import Page


def crawl(
    seeds: str | Sequence[str] = (),
    *,
    data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    config: str | os.PathLike[str] | None = None,
    on_page: Callable[[Page], Any] | str | None = None,
    **settings: Unpack[Settings],
) -> Iterator[CrawledPage]:
    """Crawls and yields the pages as they are stored. Settings are keys of the configuration, or the names of their
    flags.

    `config` is a YAML file of settings. `on_page` is a module-level function that is called with each page in a
    separate process, and may yield items and requests (`weft items` reads them). Without a `data_dir` (or several) the
    crawl uses a temporary folder, which is deleted at the end. With `resume=True` no seeds are needed, and only pages
    that no earlier call has yielded are yielded; pages stored by the command line before count as yielded
    (`weft.StoredPages` reads them). An unknown setting is refused at once, other errors are raised when the first page
    is requested. A crawl that has stored nothing warns with the causes (`weft.errors.NothingStored`).
    """
    from weft.crawl import page_iteration

    return page_iteration.crawl(seeds, data_dir=data_dir, config=config, on_page=on_page, **settings)


# Importing a submodule needs the package's attributes and full name; pickle finds the function as `weft.crawl`.
crawl.__dict__.update(
    {
        name: globals()[name]
        for name in ("__file__", "__loader__", "__package__", "__path__", "__spec__")
        if name in globals()
    }
)
crawl.__name__, crawl.__qualname__, crawl.__module__ = __name__, "crawl", "weft"
sys.modules[__name__] = crawl  # type: ignore[assignment]
