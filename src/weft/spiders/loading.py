"""Finds a user's code in a file or module and imports it: in parser children, and in a user's own program."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from weft.engine.user_code.calls import Code
from weft.engine.user_code.sources import importing
from weft.errors import BadInput
from weft.extract.rules.selectors import BadSelector, path, selector
from weft.spiders.spider import Spider

_SELECTOR_METHODS = {"css": selector, "xpath": path, "follow_all": selector}


def load_module(source: str) -> ModuleType:
    """Imports the module; BadInput with the place where that fails."""
    try:
        with importing():
            return _module_of_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    except BadInput:
        raise
    except BaseException as error:  # whatever a user's module does when it is imported
        raise BadInput(
            f"{source} cannot be imported: {type(error).__name__}: {error}"
            f"{_line_of_error(error, source)}{_file_form_hint(error, source)}"
        ) from error


def find(code: Code) -> type[Spider] | FunctionType:
    """The class or function; BadInput where there is none, or no single one."""
    module = load_module(code.source)
    if code.is_function:
        found = _find_attribute(module, code)
        if not callable(found) or isinstance(found, type):
            raise BadInput(f"{code.source}: {code.name} is no function")
        return cast(FunctionType, found)
    if code.name:
        found = _find_attribute(module, code)
        if not isinstance(found, type) or not issubclass(found, Spider):
            raise BadInput(f"{code.source}: {code.name} is no spider: derive it from weft.Spider")
        return found
    spiders: list[type[Spider]] = [one for one in vars(module).values() if _is_spider_of(one, module)]
    if not spiders:
        if _has_scrapy_spider(module):
            raise BadInput(f"{code.source} has a spider of Scrapy's, not of Weft's: run it as `scrapy={code.source!r}`")
        raise BadInput(f"{code.source} has no spider: define a class that is derived from weft.Spider")
    if len(spiders) > 1:
        names = ", ".join(one.__name__ for one in spiders)
        raise BadInput(
            f"{code.source} has {len(spiders)} spiders ({names}): name one, as {code.source}:{spiders[0].__name__}"
        )
    return spiders[0]


def load_spider(code: Code) -> Spider:
    """The spider's object, for a program in which the user's own code may run; BadInput if there is none."""
    kind = find(code)
    if not isinstance(kind, type):
        raise BadInput(f"{code.source}: {code.name} is no spider: derive it from weft.Spider")
    check_selectors(kind)
    try:
        return made_spider(kind)
    except BadInput:
        raise
    except Exception as error:  # the constructor of a user's class may raise anything
        raise BadInput(f"{code.source}: {type(error).__name__}: {error}{_line_of_error(error, code.source)}") from error


def made_spider(kind: type[Spider]) -> Spider:
    """An object of a spider, whose `start` can be called."""
    spider = kind()
    check_start(spider)
    return spider


def digest_of(code: Code) -> str:
    """Of the source file; empty where there is none."""
    file = code.source if code.source.endswith(".py") else getattr(sys.modules.get(code.source), "__file__", None)
    try:
        return sha256(Path(file or "").read_bytes()).hexdigest() if file else ""
    except OSError:
        return ""


def check_selectors(thing: Any) -> None:
    """Refuses selectors that are wrong, where the source has them as plain texts."""
    try:
        file, lines = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
        tree = ast.parse("if True:\n" + "".join(lines[0]) if lines[0][0][:1].isspace() else "".join(lines[0]))
    except (OSError, TypeError, SyntaxError):
        return
    for node, kind, text in _selector_calls(tree):
        try:
            _SELECTOR_METHODS[kind](_without_pseudo_element(text) if kind != "xpath" else text)
        except BadSelector as error:
            raise BadInput(f"{file}:{lines[1] + node.lineno - 1}: {kind}: {error}") from None


def check_start(spider: Spider) -> None:
    """Refuses a spider whose `start` is no method: Weft calls it for the first requests."""
    start: object = spider.start
    if not callable(start):
        name = type(spider).__name__
        raise BadInput(
            f"{name}.start is a {type(start).__name__}, not a method: write the first URLs as `start_urls = [...]`, or "
            "define start(self), which yields requests"
        )


def _selector_calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SELECTOR_METHODS:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node, node.func.attr, first.value


def _without_pseudo_element(text: str) -> str:
    """A selector without `::text` or `::attr(...)`."""
    head, mark, tail = text.rpartition("::")
    return head.strip() if mark and (tail.strip() == "text" or tail.strip().startswith("attr(")) else text


def _module_of_file(file: Path) -> ModuleType:
    """A module made of a file; what lies beside it can be imported."""
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = file.stem if file.stem.isidentifier() else "weft_spider"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is not None:
        name = f"weft_spider_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BadInput(f"{file}: is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_attribute(module: ModuleType, code: Code) -> Any:
    found: Any = module
    for part in code.name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise BadInput(f"{code.source} has no {code.name!r}")
    return found


def _is_spider_of(one: object, module: ModuleType) -> bool:
    if not isinstance(one, type) or not issubclass(one, Spider) or one is Spider:
        return False
    return one.__module__ == module.__name__ and not one.__name__.startswith("_")


def _has_scrapy_spider(module: ModuleType) -> bool:
    """Whether there is a spider for Scrapy, which the module itself has imported then."""
    base = getattr(sys.modules.get("scrapy"), "Spider", None)
    return base is not None and any(isinstance(one, type) and issubclass(one, base) for one in vars(module).values())


def _file_form_hint(error: BaseException, source: str) -> str:
    """How a file is named, where a name that is none of a file's is no module's either."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or source.endswith(".py"):
        return ""
    is_own = f"{source}.".startswith(f"{error.name}.")
    return ". Name FILE.py, or a module that can be imported" if is_own else ""


def _line_of_error(error: BaseException, source: str) -> str:
    """The line of the user's file."""
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno})" if error.filename == source and error.lineno else ""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == source:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""
