"""`weft config show|check|schema`."""

from __future__ import annotations

from typing import Any

import click

from weft.cli.terminal.output import output_flags, print_document, print_json


@click.group()
def config() -> None:
    """Show, check and describe the configuration.

    A value comes from a flag, else from a WEFT_* variable, else from the YAML file, else it is the default.
    """


@config.command()
@click.option("--config", "path", metavar="FILE", help="YAML file to read.")
@click.argument("names", metavar="[KEY]...", nargs=-1)
@output_flags
def show(path: str | None, names: tuple[str, ...], as_json: bool, quiet: bool) -> None:  # noqa: ARG001
    """Show the values in force, each with its origin."""
    from weft.config import keys, load, masked, own_names
    from weft.errors import BadInput
    from weft.names import answer

    loaded, own = load(path), own_names(keys())
    for name in names:
        if name not in own:
            raise BadInput(f"no key {name!r}{answer(name, own, own.__getitem__)}")
    wanted = {own[name] for name in names}
    rows = [(name, masked(name, value)) for name, value in loaded.values.items() if not names or name in wanted]
    if as_json:
        settings = {name: {"value": value, "origin": loaded.origins[name]} for name, value in rows}
        print_document({"settings": settings})
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:{width}}  {_plain(value):28}  {loaded.origins[name]}")


@config.command()
@click.argument("path", metavar="FILE")
@output_flags
def check(path: str, as_json: bool, quiet: bool) -> int:
    """Check a configuration file, of `weft crawl` or of `weft serve` and `weft up`: every problem, with its line.

    The exit code is 2 if there is one.
    """
    from weft.config import CRAWL, SERVICE, load, load_service
    from weft.errors import BadConfig

    # Only the file is checked: WEFT_* variables are ignored, but `${VAR}` may refer to other variables.
    environment, refusals = _without_keys(), list[BadConfig]()
    valid_for = []
    for product, read in ((CRAWL, load), (SERVICE, load_service)):
        try:
            read(path, environment)
            valid_for.append(product.command)
        except BadConfig as error:
            refusals.append(error)
    if not valid_for:
        # It was meant for the product that knows more of its keys.
        nearest = min(refusals, key=lambda error: sum("unknown key" in problem for problem in error.problems))
        if not as_json:
            raise nearest
        print_document({"file": path, "valid": False, "valid_for": [], "problems": nearest.problems})
        return 2
    if as_json:
        print_document({"file": path, "valid": True, "valid_for": valid_for, "problems": []})
    elif not quiet:
        click.echo(f"{path}: valid for {' and '.join(f'`{one}`' for one in valid_for)}", err=True)
    return 0


@config.command()
@click.option("--service", is_flag=True, help="The file of `weft serve` and `weft up`, not that of `weft crawl`.")
def schema(service: bool) -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from weft.config import CRAWL, SERVICE, json_schema

    print_json(json_schema(SERVICE if service else CRAWL))


def _without_keys() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}


def _plain(value: Any) -> str:
    from weft.config import PodSpec

    if isinstance(value, tuple):
        return ", ".join(map(_plain, value)) or "-"
    if isinstance(value, PodSpec):
        return value.redis_url or "managed"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items()) or "-"
    return "-" if value is None else str(value)
