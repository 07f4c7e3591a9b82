"""Command-line flags for the configuration's keys, made from the keys themselves.

A list's flag takes `a,b` and may be repeated; a mapping's takes one NAME=VALUE, whose value may have commas, and may be
repeated. A flag goes by its key, too (`--politeness-delay-seconds` for `--delay`); one that there is not is answered as
an unknown key is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from weft.config import Key

# Shown first in the help, in this order; every other key of the configuration is a flag as well.
FIRST = (
    "seed_file", "email", "data_dirs", "scope", "max_pages", "max_depth", "max_duration", "max_pages_per_domain",
    "politeness_delay_seconds", "per_domain_concurrency", "include", "exclude", "exclude_file", "seeded_urls_only",
    "store", "resume", "fresh", "retry_failed", "recrawl", "allow_private",
)  # fmt: skip


class SettingsCommand(click.Command):
    """A command with a flag for every key."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As any command; an unknown flag is answered with the setting that is meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"No such option {error.option_name!r}{self._answer(error.option_name)}", ctx
            ) from None

    def _answer(self, flag: str) -> str:
        from weft.config import keys, own_names
        from weft.names import answer

        known = keys()
        own = own_names(known)
        # The command's own flags are no settings, and may be meant as well.
        others = {
            option.lstrip("-").replace("-", "_"): option
            for parameter in self.params
            for option in parameter.opts
            if parameter.name not in known and option.startswith("--")
        }
        name = flag.lstrip("-").replace("-", "_").lower()
        told = answer(name, own | others, lambda other: others.get(other) or known[own[other]].flag)
        return told.replace("the key is", "the flag is").replace("weft config schema", "weft crawl --help")


def config_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a flag for every key; the command gets those that were given as `flags`."""
    from weft.config import keys

    known = keys()
    ordered = [*FIRST, *(name for name in known if name not in FIRST)]
    for name in reversed(ordered):
        command = _option(known[name])(command)
    return command


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The keys that were on the command line, out of all parameters of a command."""
    from weft.config import PATTERNS, keys

    flags: dict[str, Any] = {}
    for name, item in keys().items():
        value = values.get(name)
        if value is None or value == ():
            continue
        if item.schema.get("type") == "object":
            value = dict(_pair(item.flag, text) for text in value)
        elif isinstance(value, tuple):
            value = several(value, patterns=name in PATTERNS)
        flags[name] = value
    return flags


def several(texts: Iterable[str], *, patterns: bool = False) -> list[str]:
    """The items of a flag that may be repeated, each time with several."""
    from weft.config import split

    return [item for text in texts for item in split(text, patterns=patterns)]


def _option(item: Key) -> Callable[..., Any]:
    kind, by_key = item.schema.get("type"), "--" + item.name.replace("_", "-")
    flags, help_ = list(dict.fromkeys((item.flag, by_key))), item.help[0].upper() + item.help[1:] + "."
    if kind == "boolean":
        # What a file or a variable turned on can be turned off again, and the other way round.
        flags = [f"{flag}/--no-{flag[2:]}" for flag in flags]
        return click.option(*flags, item.name, default=None, help=help_)
    several = kind in ("array", "object") or item.name == "only_pods"
    metavar = {"array": "A,B", "object": "NAME=VALUE"}.get(str(kind)) or _metavar(item.schema)
    return click.option(
        *flags, item.name, metavar=metavar, multiple=several, help=help_ + (" Repeatable." if several else "")
    )


def _metavar(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    kinds = {s.get("type") for s in schema.get("anyOf", [schema])}
    return "N" if kinds & {"integer", "number"} else "TEXT"


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        # The text may be a secret, all of it.
        raise click.UsageError(f"{flag}: {name.partition(':')[0]!r} has no value: write {flag} NAME=VALUE")
    return name.strip(), value.strip()
