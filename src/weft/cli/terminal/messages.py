"""Converts messages for the command line: settings that a message names become flags.

Below the command line a message names a setting in backticks, as in Python: `` `allow_private=True` ``, or ``
`max_pages` `` alone. Callers in Python read it unchanged; here it becomes `--allow-private` and `--max-pages`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

_NO_SETTINGS = ("config", "out", "fields", "content", "max_bytes")  # these are parameters of weft.crawl and of exports
_SETTING_NAME = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")


def as_flags(message: str) -> str:
    """The message with every setting written as a flag."""
    from weft.config import CRAWL, SERVICE, keys, own_names

    flags: dict[str, str] = {}
    for product in (SERVICE, CRAWL):
        known = keys(product)
        flags |= {name: known[key].flag for name, key in own_names(known).items()}
    flags |= {name: "--" + name.replace("_", "-") for name in _NO_SETTINGS}

    def flag(match: re.Match[str]) -> str:
        name, written = match.groups()
        return spelt(flags[name], written) if name in flags else match[0]

    return _SETTING_NAME.sub(flag, message)


def spelt(flag: str, written: str | None) -> str:
    """A flag with the value that a program would write; a placeholder (`FILE`) is kept."""
    if written is None:
        return flag
    try:
        return with_value(flag, ast.literal_eval(written))
    except (ValueError, SyntaxError):
        return f"{flag} {written}"


def with_value(flag: str, value: Any) -> str:
    """A flag with its value, quoted for a shell."""
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    if isinstance(value, Mapping):
        return " ".join(f"{flag} {shlex.quote(f'{name}={text}')}" for name, text in value.items())
    if isinstance(value, list | tuple):
        return " ".join(f"{flag} {shlex.quote(str(one))}" for one in value)
    return f"{flag} {shlex.quote(str(value))}"
