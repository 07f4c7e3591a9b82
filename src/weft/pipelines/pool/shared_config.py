"""What all items of a run share: a plain mapping, sent once to each worker and kept with the run.

Encoded once, as msgpack. A resume continues with what the run began with; another mapping would give half of the items
other results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import BadInput, DiskFull
from weft.files import replace_file

MAX_BYTES = 64 * 1024 * 1024
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_EMPTY_CONFIG = _encode({})


def encoded(config: Mapping[str, Any] | None) -> bytes:
    """Encodes the mapping; empty bytes for None. Raises BadInput if it is not a mapping, or cannot be encoded."""
    if config is None:
        return b""
    if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
        raise BadInput(f"config must be a mapping with texts as keys, this is {type(config).__name__}")
    try:
        data = _encode(dict(config))
    except Exception as error:
        raise BadInput(f"config cannot be sent to workers: {type(error).__name__}: {error}") from None
    if len(data) > MAX_BYTES:
        raise BadInput(f"config is too large: {len(data)} bytes, at most {MAX_BYTES} can be sent")
    return data


def decoded(data: bytes) -> dict[str, Any]:
    """Decodes the mapping in a worker."""
    return msgspec.msgpack.decode(data, type=dict[str, Any]) if data else {}


def kept_in(folder: Path, given: bytes, *, resume: bool) -> bytes:
    """The config of a run: a new run stores the given one, a resumed run continues with the stored one."""
    path = folder / "config"
    if resume and path.is_file():
        kept = _read_config(path)
        if given and given != kept:
            raise BadInput(f"run {folder.name} began with another config; resume it with the same, or without one")
        return kept
    if given or path.exists():
        _write_config(path, given)
    return given


def of_run(folder: Path) -> dict[str, Any]:
    """Reads the stored config of a run; empty if it has none."""
    path = folder / "config"
    return decoded(_read_config(path)) if path.is_file() else {}


def _read_config(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        decoded(data)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; delete it, and give the config again") from None
    return data


def _write_config(path: Path, data: bytes) -> None:
    """Writes the file so that only its owner can read it, since it may hold secrets."""
    try:
        replace_file(path, data or _EMPTY_CONFIG)
    except (OSError, DiskFull) as error:
        raise BadInput(f"{path} cannot be written: {getattr(error, 'strerror', error)}") from None
