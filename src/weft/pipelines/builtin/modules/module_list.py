"""The source of `modules`: a JSON list of repositories; and the check of all settings before anything is begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.errors import BadInput, Missing
from weft.pipelines.builtin.modules.analysis import analyse
from weft.pipelines.builtin.modules.registries import enrich, outdated
from weft.pipelines.builtin.modules.repositories import clone
from weft.pipelines.builtin.modules.repositories.git import program
from weft.pipelines.builtin.modules.repositories.remotes import TRANSPORTS

_FIELDS = ("url", "branch", "name", "maintainer", "category")
_PACKAGES_OF_EXTRA = {"PIL": "Pillow", "packaging": "packaging", "tree_sitter": "tree-sitter", "jinja2": "Jinja2"}


def items(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The repositories of the list, in its order, as a list, so that their number is known."""
    return [item_of(entry) for entry in read(Path(str(settings.get("list") or "modules.json")))]


def read(file: Path) -> list[Any]:
    """Reads the entries of a list: a JSON array, or an object with one under `modules`."""
    hint = 'a JSON list like [{"name": "clock", "maintainer": "ada", "url": "https://host/ada/clock"}]'
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: name {hint} with `--set items.list=FILE`") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}, the list of modules, is not JSON ({error}): it must hold {hint}") from None
    if isinstance(document, dict):
        document = document.get("modules")
    if not isinstance(document, list):
        raise BadInput(f"{file} holds no list: it must hold {hint}")
    return document


def item_of(entry: Any) -> Mapping[str, Any]:
    """Converts an entry into an item. Its id is the entry's, else NAME-----MAINTAINER; an item without an id fails at
    once.
    """
    if not isinstance(entry, dict):
        return {"entry": str(entry)[:200]}
    item = {name: entry[name] for name in _FIELDS if isinstance(entry.get(name), str | int)}
    if isinstance(last := entry.get("last_commit") or entry.get("lastCommit"), str | int):
        item["last_commit"] = last
    if isinstance(given := entry.get("id"), str | int) and not isinstance(given, bool) and given != "":
        item["id"] = given
    elif isinstance(entry.get("name"), str) and isinstance(entry.get("maintainer"), str):
        item["id"] = f"{entry['name']}-----{entry['maintainer']}"
    return item


def check(settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises `BadInput` for the first setting that cannot be used; `Missing` if the extra is not installed."""
    for module, what in _PACKAGES_OF_EXTRA.items():
        if find_spec(module) is None:
            raise Missing.of_extra(what, "modules")
    program()
    for stage, known in _KNOWN_SETTINGS.items():
        given = settings.get(stage, {})
        if unknown := sorted(set(given) - set(known)):
            raise BadInput(f"{stage}.{unknown[0]} is no setting of `modules`; there are: {', '.join(sorted(known))}")
        for name, default in known.items():
            _check_setting(f"{stage}.{name}", given.get(name, default), default)


def _check_setting(name: str, value: Any, default: Any) -> None:
    if isinstance(default, bool):
        _require(isinstance(value, bool), name, value, "true or false")
    elif isinstance(default, int):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        _require(is_number and value > 0, name, value, "a number above 0")
    elif name.endswith("_registry"):
        is_address = isinstance(value, str) and value.startswith(("https://", "http://"))
        _require(value is None or is_address, name, value, "the address of a registry, https://…")
    elif name == "collect.today":
        _require(value is None or _is_day(value), name, value, "a day like 2026-01-31")
    elif name == "clone.transports":
        is_list = isinstance(value, list) and set(map(str, value)) <= set(TRANSPORTS)
        _require(is_list and bool(value), name, value, f"a list of some of {', '.join(TRANSPORTS)}")
    elif name == "clone.remote_check":
        _require(value in ("always", "catalogue"), name, value, "always or catalogue")
    elif name == "analyse.eslint":
        is_name = isinstance(value, bool | str) and value != ""  # YAML reads `off` as false
        _require(is_name, name, value, "auto, off, or the path of a program")


def _is_day(value: Any) -> bool:
    try:
        date.fromisoformat(str(value))
    except ValueError:
        return False
    return True


def _require(is_good: bool, name: str, value: Any, what: str) -> None:
    if not is_good:
        raise BadInput(f"{name} must be {what}, not {value!r}")


_KNOWN_SETTINGS: dict[str, dict[str, Any]] = {
    "items": {"list": None},
    "clone": clone.DEFAULTS,
    "enrich": enrich.DEFAULTS,
    "analyse": analyse.DEFAULTS,
    "outdated": outdated.DEFAULTS,
    "collect": {"title": None, "today": None},
}
