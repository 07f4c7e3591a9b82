"""Command-line flags for the configuration's keys, made from the keys themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

# Shown first in the help, in this order; every other key of the configuration is a flag as well.
FIRST = (
    "seed_file", "email", "data_dirs", "scope", "max_pages", "max_depth", "max_duration", "max_pages_per_domain",
    "politeness_delay_seconds", "per_domain_concurrency", "include", "exclude", "exclude_file", "seeded_urls_only",
    "store", "resume", "fresh", "retry_failed", "recrawl", "allow_private",
)  # fmt: skip


def config_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a flag for every key; the command gets those that were given as `flags`."""
    from weft.config import keys

    known = keys()
    ordered = [*FIRST, *(name for name in known if name not in FIRST)]
    for name in reversed(ordered):
        command = _option(known[name].flag, name, known[name].schema, known[name].help)(command)
    return command


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The keys that were on the command line, out of all parameters of a command."""
    from weft.config import keys

    flags: dict[str, Any] = {}
    for name, item in keys().items():
        value = values.get(name)
        if value is None or value == ():
            continue
        if item.schema.get("type") == "object":
            value = dict(_pair(item.flag, text) for text in value)
        flags[name] = list(value) if isinstance(value, tuple) else value
    return flags


def _option(flag: str, name: str, schema: dict[str, Any], help_: str) -> Callable[..., Any]:
    kind = schema.get("type")
    if kind == "boolean":
        negative = f"/--no-{flag[2:]}" if schema.get("default") else ""
        return click.option(flag + negative, name, is_flag=True, default=None, help=help_.capitalize() + ".")
    metavar = {"array": "TEXT", "object": "NAME=VALUE"}.get(str(kind)) or _metavar(schema)
    several = kind in ("array", "object") and name != "store"
    more = " Repeatable." if several else ""
    return click.option(flag, name, metavar=metavar, multiple=several, help=help_.capitalize() + "." + more)


def _metavar(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    kinds = {s.get("type") for s in schema.get("anyOf", [schema])}
    return "N" if kinds & {"integer", "number"} else "TEXT"


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise click.UsageError(f"{flag} {text!r}: write NAME=VALUE")
    return name.strip(), value.strip()
