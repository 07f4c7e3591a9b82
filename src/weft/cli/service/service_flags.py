"""What every command needs that is about a service: where a running one is, and with which key; or its folder."""

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
    """Adds what every command needs to reach a service."""
    url = click.option(
        "--server", metavar="ADDRESS", help=f"Where the service is. [default: WEFT_SERVER, else {DEFAULT_URL}]"
    )
    key = click.option(
        "--key-file",
        metavar="FILE",
        help="File with an API key. [default: the key in WEFT_API_KEY, or in the file that WEFT_API_KEY_FILE names]",
    )
    return url(key(output_flags(command)))


def folder_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The folder, as `weft serve` and `weft up` are given it: the same flags, variables and files choose it."""
    data_dir = click.option("--data-dir", metavar="DIR", help="The service's folder.  [default: ./weft-service]")
    config = click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
    return data_dir(config(output_flags(command)))


def config_of(data_dir: str | None, config_file: str | None) -> ServiceConfig:
    """The settings of the service that `folder_flags` name."""
    from weft.config import load_service

    return load_service(config_file, flags={} if data_dir is None else {"data_dir": data_dir})


def client(server: str | None, key_file: str | None) -> Weft:
    """The service that is meant."""
    from weft.client import Weft
    from weft.secret_files import read_secret

    key = os.environ.get("WEFT_API_KEY") or None
    if key_file is not None:
        key = read_secret(key_file, "`key_file`")
    elif key is None and (named := os.environ.get("WEFT_API_KEY_FILE")):
        key = read_secret(named, "WEFT_API_KEY_FILE")
    return Weft(server or os.environ.get("WEFT_SERVER") or DEFAULT_URL, key=key, patience=2.0)
