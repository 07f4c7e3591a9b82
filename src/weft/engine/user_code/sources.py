"""Locates a user's code: its name in settings and in programs, in a form that another process can import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from weft.config import Config
from weft.engine.user_code.calls import STATE, Code, Loading, encode
from weft.errors import BadInput
from weft.frontier.contract import NotesPart

MAKER = "weft.spiders.child:make"  # imported by parser children
SCRAPY_MAKER = "weft.spiders.scrapy.runner:make"  # for Scrapy's spiders
# The modules that every child with such code needs: imported once, before the children are forked.
PRELOADED = {
    MAKER: ("weft.spiders.child",),
    SCRAPY_MAKER: ("weft.spiders.scrapy.runner", "weft.spiders.scrapy.outputs"),
}


_imports_running = 0  # imports of a user's module under way in this process


@contextmanager
def importing() -> Iterator[None]:
    """Encloses the import of a user's module: that must not start a crawl, which would import it again."""
    global _imports_running
    _imports_running += 1
    try:
        yield
    finally:
        _imports_running -= 1


def is_imported() -> bool:
    """Whether a user's module is being imported by Weft."""
    return _imports_running > 0


def code_named(text: str, *, is_function: bool = False) -> Code:
    """The code that `FILE[:NAME]` or `MODULE[:NAME]` names; files are named absolutely."""
    source, _, name = text.rpartition(":")
    if not source or "/" in name or name.endswith(".py"):
        source, name = text, ""
    file = Path(source)
    if source.endswith(".py") or "/" in source or file.is_file():
        if not file.is_file():
            raise BadInput(f"{source}: there is no such file")
        if file.suffix != ".py":
            wanted = "FILE.py:FUNCTION" if is_function else "FILE.py[:CLASS]"
            raise BadInput(f"{source}: is no Python file: name {wanted}")
        source = str(file.resolve())
    if is_function and not name:
        raise BadInput(f"{text}: name the function behind a colon, as MODULE:FUNCTION or FILE.py:FUNCTION")
    return Code(MAKER, source, name, is_function)


def code_of_crawl(config: Config) -> Code | None:
    """The code that a crawl's settings name."""
    section = config.spider
    if section.scrapy:
        code = code_named(section.scrapy)
        return Code(SCRAPY_MAKER, code.source, code.name, False, section.scrapy_arguments, section.scrapy_settings)
    if section.spider:
        return code_named(section.spider)
    return code_named(section.on_page, is_function=True) if section.on_page else None


def replacement_code(config: Config, text: str) -> Code:
    """Other code to use instead of a crawl's own, of the same kind."""
    own, code = code_of_crawl(config), code_named(text)
    return code if own is None else Code(own.maker, code.source, code.name, False, own.arguments, own.settings)


def loading_of(config: Config, notes: NotesPart) -> Callable[[], bytes] | None:
    """Returns the first message to a parser child: the crawl's code, and the spider's last saved state."""
    code = code_of_crawl(config)
    if code is None:
        return None
    return lambda: encode(Loading(code, notes.note(STATE).encode()))


def import_name_of(thing: Any) -> str:
    """The name of a class or function of a running program; BadInput if no other process can import it."""
    name, module = getattr(thing, "__qualname__", ""), sys.modules.get(getattr(thing, "__module__", ""))
    what = "function" if isinstance(thing, FunctionType) else "spider"
    if name.endswith("<lambda>") or "<locals>" in name or module is None:
        raise BadInput(f"{name or thing!r}: a {what} runs in processes of its own: define it in a module, under a name")
    file = getattr(module, "__file__", None)
    if file is None:
        raise BadInput(f"{name}: it was not read from a file, as in a prompt: save it in one, and import it from there")
    return f"{Path(file).resolve()}:{name}"
