"""What every command shares: the --json and --quiet flags, wherever on the line they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def output_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --json and --quiet to a command; the ones given before the command's name count as well."""

    def merge(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
        return value or bool((ctx.find_root().obj or {}).get("json" if param.name == "as_json" else "quiet"))

    as_json = click.option("--json", "as_json", is_flag=True, callback=merge, help="Machine-readable output on stdout.")
    quiet = click.option("-q", "--quiet", is_flag=True, callback=merge, help="Nothing on stderr but errors.")
    return as_json(quiet(command))


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
