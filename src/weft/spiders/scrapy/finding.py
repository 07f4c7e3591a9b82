"""Finds a Scrapy spider in a file or module, and the settings of the project that it belongs to."""

from __future__ import annotations

import os
import sys
from configparser import ConfigParser
from configparser import Error as BadConfigFile
from pathlib import Path
from typing import Any

import scrapy
from scrapy import Spider
from scrapy.settings import Settings
from scrapy.utils.spider import iter_spider_classes

from weft.engine.user_code.calls import Code
from weft.errors import BadInput, installing
from weft.references import resolve
from weft.spiders.loading import load_module

OLDEST = (2, 13)


def check_version() -> None:
    """Raises BadInput if the installed Scrapy is too old."""
    if scrapy.version_info[:2] < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise BadInput(f"Scrapy {scrapy.__version__} is too old, {wanted} is needed: {installing(f'scrapy>={wanted}')}")


def find_spider(code: Code) -> type[Spider]:
    """The class; BadInput where there is none, or no single one."""
    module = load_module(_module_name(code.source))
    if code.name:
        found: Any = module
        for part in code.name.split("."):
            found = getattr(found, part, None)
        if found is None:
            raise BadInput(f"{code.source} has no {code.name!r}")
        if not isinstance(found, type) or not issubclass(found, Spider):
            raise BadInput(f"{code.source}: {code.name} is no spider of Scrapy's: derive it from scrapy.Spider")
        return found
    spiders = [one for one in iter_spider_classes(module) if not one.__name__.startswith("_")]
    if not spiders:
        raise BadInput(
            f"{code.source} has no spider of Scrapy's: a class that is derived from scrapy.Spider and has a name"
        )
    if len(spiders) > 1:
        names = ", ".join(one.__name__ for one in spiders)
        raise BadInput(
            f"{code.source} has {len(spiders)} spiders ({names}): name one, as {code.source}:{spiders[0].__name__}"
        )
    return spiders[0]


def _module_name(source: str) -> str:
    """What to import: a file in a package of a project is a module of that package, as its relative imports need."""
    if not source.endswith(".py"):
        return source
    file = Path(source)
    root = next((one for one in file.parents if (one / "scrapy.cfg").is_file()), None)
    if root is None or file.parent == root:
        return source
    parts = file.relative_to(root).with_suffix("").parts
    packages = [one for one in file.parents if one.is_relative_to(root) and one != root]
    is_package = all(part.isidentifier() for part in parts) and all((one / "__init__.py").is_file() for one in packages)
    return ".".join(parts) if is_package else source


def settings_of(code: Code) -> Settings:
    """Scrapy's defaults, the project's settings, and those of the command line; the spider's own come later."""
    settings = Settings()
    name = os.environ.get("SCRAPY_SETTINGS_MODULE", "") or _project_settings(code)
    if name:
        settings.setmodule(load_module(name), priority="project")
    for key, value in code.settings.items():
        settings.set(key, resolve(value, f"-s {key}"), priority="cmdline")
    return settings


def _project_settings(code: Code) -> str:
    """The module of the settings of the project that the spider is in; its folder can be imported from then on."""
    folder = Path(code.source).parent if code.source.endswith(".py") else Path.cwd()
    if not code.source.endswith(".py") and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    for one in (folder, *folder.parents):
        file = one / "scrapy.cfg"
        if not file.is_file():
            continue
        if str(one) not in sys.path:
            sys.path.insert(0, str(one))
        parser = ConfigParser()
        try:
            parser.read(file)
        except (BadConfigFile, UnicodeDecodeError) as error:
            raise BadInput(f"{file} cannot be read: {error}") from None
        return parser.get("settings", "default", fallback="")
    return ""
