"""What every command needs that talks to a running service: where it is, and with which key."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from weft.cli.output import output_flags
from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.client import Weft

DEFAULT_URL = "http://127.0.0.1:8000"


def service_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what every command needs to reach a service."""
    url = click.option(
        "--server", metavar="ADDRESS", help=f"Where the service is. [default: WEFT_SERVER, else {DEFAULT_URL}]"
    )
    key = click.option("--key-file", metavar="FILE", help="File with an API key. [default: the key in WEFT_API_KEY]")
    return url(key(output_flags(command)))


def client(server: str | None, key_file: str | None) -> Weft:
    """The service that is meant."""
    from pathlib import Path

    from weft.client import Weft

    key = os.environ.get("WEFT_API_KEY") or None
    if key_file is not None:
        try:
            key = Path(key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"key_file {key_file}: cannot be read: {getattr(error, 'strerror', 'no text')}") from None
    return Weft(server or os.environ.get("WEFT_SERVER") or DEFAULT_URL, key=key, patience=2.0)
