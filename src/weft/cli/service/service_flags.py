"""Flags for the address and API key of a running service, or for its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from weft.cli.terminal.output import output_flags

if TYPE_CHECKING:
    from weft.client import Weft
    from weft.config import ServiceConfig

DEFAULT_URL = "http://127.0.0.1:8000"


def service_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to reach a running service."""
    url = click.option(
        "--server", metavar="ADDRESS", help=f"URL of the service. [default: WEFT_SERVER, else {DEFAULT_URL}]"
    )
    key = click.option(
        "--key-file",
        metavar="FILE",
        help="File with an API key. [default: the key in WEFT_API_KEY, or in the file that WEFT_API_KEY_FILE names]",
    )
    return url(key(output_flags(command)))


def folder_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags for a service's folder, as `weft serve` and `weft up` have them: the same flags, variables and
    files select it."""
    data_dir = click.option("--data-dir", metavar="DIR", help="The service's folder.  [default: ./weft-service]")
    config = click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
    return data_dir(config(output_flags(command)))


def config_of(data_dir: str | None, config_file: str | None) -> ServiceConfig:
    """The settings of the service that `folder_flags` select."""
    from weft.config import load_service

    return load_service(config_file, flags={} if data_dir is None else {"data_dir": data_dir})


def client(server: str | None, key_file: str | None) -> Weft:
    """A client of the service that the flags select."""
    from weft.client import Weft
    from weft.secret_files import read_secret

    key = os.environ.get("WEFT_API_KEY") or None
    if key_file is not None:
        key = read_secret(key_file, "`key_file`")
    elif key is None and (named := os.environ.get("WEFT_API_KEY_FILE")):
        key = read_secret(named, "WEFT_API_KEY_FILE")
    return Weft(server or os.environ.get("WEFT_SERVER") or DEFAULT_URL, key=key, patience=2.0)
