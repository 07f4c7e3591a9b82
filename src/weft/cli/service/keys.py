"""`weft keys`: manages the API keys of a scrape service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.service.service_flags import config_of, folder_flags
from weft.cli.terminal.output import print_document

if TYPE_CHECKING:
    from weft.jobs.api.access.api_key import ApiKey
    from weft.jobs.api.access.keys import Keyring


@click.group()
def keys() -> None:
    """Create, list and revoke the API keys of a scrape service.

    A service with keys requires one from each caller; new and revoked keys take effect at once.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope", "scopes", metavar="NAME", multiple=True,
    help="Its scopes: submit, read, control, monitor. [default: all]",
)  # fmt: skip
@folder_flags
def create(
    name: str, scopes: tuple[str, ...], data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool
) -> int:
    """Create a key, and print it; it is not stored."""
    from weft.errors import BadInput
    from weft.jobs.api.access.api_key import KeyScope

    for scope in scopes:
        if scope not in list(KeyScope):
            raise BadInput(f"--scope: {scope!r} is not accepted; use one of {', '.join(KeyScope)}")
    text, key = _open_keyring(data_dir, config_file).create(name, tuple(map(KeyScope, scopes)) or tuple(KeyScope))
    if as_json:
        print_document({"key": text, **_key_facts(key)})
        return 0
    click.echo(text)
    if not quiet:
        click.echo(
            "Save it: it is shown once. Commands read it from WEFT_API_KEY or --key-file FILE, HTTP requests from "
            "`Authorization: Bearer KEY`.",
            err=True,
        )
    return 0


@keys.command("list")
@folder_flags
def list_(data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """List the keys, including revoked ones."""
    keys_listed = _open_keyring(data_dir, config_file).all()
    if as_json:
        print_document({"keys": [_key_facts(key) for key in keys_listed]})
        return 0
    for key in keys_listed:
        state = "valid" if key.revoked_at is None else "revoked"
        click.echo(f"{key.id}  {state:7}  {key.name:24}  {','.join(key.scopes)}")
    if not keys_listed and not quiet:
        click.echo("no keys", err=True)
    return 0


@keys.command()
@click.argument("which", metavar="ID_OR_NAME")
@folder_flags
def revoke(which: str, data_dir: str | None, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Revoke a key: the service refuses it from now on."""
    key = _open_keyring(data_dir, config_file).revoke(which)
    if as_json:
        print_document(_key_facts(key))
    elif not quiet:
        click.echo(f"{key.id} ({key.name}) is revoked", err=True)
    return 0


def _open_keyring(data_dir: str | None, config_file: str | None) -> Keyring:
    from weft.jobs.api.access.keys import Keyring
    from weft.jobs.api.settings import KEYS_FILE, listed_keys_of

    config = config_of(data_dir, config_file)
    return Keyring(Path(config.server.data_dir) / KEYS_FILE, listed=listed_keys_of(config.server))


def _key_facts(key: ApiKey) -> dict[str, Any]:
    from weft.store.export.facts import iso_time

    return {
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "created_at": iso_time(key.created_at) if key.created_at else None,
        "revoked_at": None if key.revoked_at is None else iso_time(key.revoked_at),
    }
