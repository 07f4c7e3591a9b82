"""Reads the given values from a YAML file, the environment, and the command line or a program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from weft import names
from weft.config.keys import Key, keys, own_names
from weft.config.tree import PRODUCTS, SECRET_KEYS
from weft.config.values import Value
from weft.errors import BadInput
from weft.secret_files import read_secret

DEBUG_PODS = "WEFT_DEBUG_POD_ASSIGNMENT"
_FOREIGN_DEBUG_PODS = "CRAWLER_DEBUG_POD_ASSIGNMENT"
# WEFT_ variables that are switches, not keys.
SWITCHES = re.compile(r"WEFT_(DEBUG.*|REQUIRE_.*|TEST_.*|RUNTIME_DIR|PURE_PYTHON|SERVER|API_KEY|API_KEY_FILE)")


# Names of settings elsewhere, without our prefix.
ALIASES = {"MIN_PROXIES_FOR_SCRAPING": "min_proxies"}
# Settings that may hold a secret, and can therefore be in a file that `WEFT_NAME_FILE` names.
IN_SECRET_FILES = SECRET_KEYS | {"redis_url", "broker"}


def checks_pod_assignment(environment: Mapping[str, str] | None = None) -> bool:
    """Whether pods verify that every URL they receive is theirs (WEFT_DEBUG_POD_ASSIGNMENT)."""
    return (os.environ if environment is None else environment).get(DEBUG_PODS, "").lower() in ("1", "true")


def from_environment(
    known: Mapping[str, Key], environment: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, Value]]:
    own, spelt = own_names(known), dict[str, str]()
    for variable, text in environment.items():
        if variable == DEBUG_PODS and text.lower() not in ("", "0", "1", "false", "true"):
            problems.append(f"environment: {variable}: {text!r} is not accepted; use true or false")
        if variable == _FOREIGN_DEBUG_PODS:
            problems.append(f"environment: {variable} names no key{names.answer(variable.lower(), own, str)}")
        if variable not in ALIASES and (not variable.startswith("WEFT_") or SWITCHES.fullmatch(variable)):
            continue
        name = ALIASES.get(variable) or variable.removeprefix("WEFT_").lower()
        secret = name.removesuffix("_file") if name not in own and name.endswith("_file") else ""
        if own.get(secret) in IN_SECRET_FILES:
            name = secret
            try:
                text = read_secret(text, variable)
            except BadInput as error:
                problems.append(str(error))
                continue
        if name not in own:
            if any(_is_setting(name, own_names(keys(product))) for product in PRODUCTS):
                continue  # a key of another product: one environment may serve all products
            suggestion = names.answer(name, own, lambda other: f"WEFT_{other.upper()}")
            problems.append(f"environment: {variable} names no key{suggestion}")
        elif (first := spelt.setdefault(own[name], variable)) != variable:
            both = " and ".join(sorted((first, variable)))
            problems.append(f"environment: {both} are the same setting: give one of them")
        else:
            yield own[name], Value(text, variable, lax=True)


def _is_setting(name: str, own: Mapping[str, str]) -> bool:
    return name in own or own.get(name.removesuffix("_file")) in IN_SECRET_FILES


def from_flags(known: Mapping[str, Key], flags: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Value]]:
    """Values from the command line, whose names are valid, or from a program, which may pass any name.

    Their origin is the given name in backticks: the command line converts it to a flag (`cli.messages`).
    """
    own, spelt = own_names(known), dict[str, str]()
    for name, value in flags.items():
        if name not in own:
            problems.append(f"no setting {name!r}{names.answer(name, own, str)}")
        elif (first := spelt.setdefault(own[name], name)) != name:
            problems.append(f"{' and '.join(sorted((first, name)))} are the same setting: give one of them")
        else:
            yield own[name], Value(value, f"`{name}`", lax=True)


def from_file(
    path: Path, known: Mapping[str, Key], environment: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, Value]]:
    """Values from a YAML file, which uses keys, not flag names."""
    from weft.config import yaml_file  # imported here: it imports PyYAML, which most processes never need

    own = own_names(known)

    def unknown(name: str) -> str | None:
        return None if name in known else f"unknown key {name!r}{names.answer(name, own, own.__getitem__)}"

    for name, value, location, lax in yaml_file.entries(path, unknown, environment, problems):
        yield name, Value(value, location, lax)
