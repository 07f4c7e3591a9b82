"""Small files that carry a digest of themselves: a cut, an emptied file or one flipped bit is an error that names the
file, never another value. They are written with `files.replace_file`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import Damaged, unreadable

_DIGEST = "sha256"
_SEAL = f"# {_DIGEST} "


def sealed_json(values: Mapping[str, Any]) -> bytes:
    """An object as JSON for people, with the digest of its content in it."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(values)))  # as it will be read
    return msgspec.json.format(msgspec.json.encode({**plain, _DIGEST: _digest_of(plain)}))


def open_json(path: Path, remedy: str) -> dict[str, Any]:
    """The content written by `sealed_json`; Damaged if it was altered or is missing."""
    try:
        return unsealed(path, msgspec.json.decode(path.read_bytes(), type=dict[str, Any]), remedy)
    except FileNotFoundError:
        raise Damaged(path, "is missing", remedy) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, error, remedy) from None


def unsealed(path: Path, values: dict[str, Any], remedy: str) -> dict[str, Any]:
    """The values of a sealed object without its digest; Damaged if that is wrong or missing."""
    content = {key: value for key, value in values.items() if key != _DIGEST}
    if values.get(_DIGEST) != _digest_of(content):
        raise Damaged(path, "is not what was written", remedy)
    return content


def sealed_lines(lines: list[str]) -> bytes:
    """Lines of text, and a last one with their digest, which reads as a comment."""
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}{_SEAL}{hashlib.sha256(text.encode()).hexdigest()}\n".encode()


def open_lines(path: Path, remedy: str) -> list[str]:
    """The content written by `sealed_lines`; Damaged if it was altered or is missing."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise Damaged(path, "is missing", remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, remedy) from None
    body, mark, seal = text.rpartition(_SEAL)
    if not mark or seal != hashlib.sha256(body.encode()).hexdigest() + "\n":
        raise Damaged(path, "is not what was written", remedy)
    return body.splitlines()


def _digest_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()
