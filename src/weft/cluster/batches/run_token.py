"""The name of a run at the broker: random, and kept with the run, so that a resume finds what hands had sent."""

from __future__ import annotations

import re
import secrets

from weft.errors import BadInput, DiskFull
from weft.files import replace_file
from weft.pipelines.pool.durability.runs import RunDirectory

_FILE = "cluster"
_FORM = re.compile("[0-9a-f]{32}")


def run_token(directory: RunDirectory | None) -> str:
    """That of an earlier try in this directory, or a new one."""
    new = secrets.token_hex(16)
    if directory is None:
        return new
    path = directory.path / _FILE
    try:
        kept = path.read_text()
        if _FORM.fullmatch(kept):
            return kept
    except (OSError, UnicodeDecodeError):
        pass
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        replace_file(path, new.encode())
    except (OSError, DiskFull) as error:
        raise BadInput(f"{path} cannot be written: {getattr(error, 'strerror', error)}") from None
    return new
