"""Small files of a crawl's home: replaced as a whole, on the disk when that has returned, and checked when read.

A file is written beside its place and renamed into it, so that a reader sees the old content or the new one. What a
crawl cannot go on without carries a digest of itself: a cut, an emptied file or one flipped bit is an error that names
the file, never another setting. All are readable by their owner alone, since logins may be among them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft.errors import Damaged, unreadable

T = TypeVar("T")
_DIGEST = "sha256"
_SEAL = f"# {_DIGEST} "


def sealed_json(values: Mapping[str, Any]) -> bytes:
    """An object as JSON for people, with the digest of its content in it."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(values)))  # as it will be read
    return msgspec.json.format(msgspec.json.encode({**plain, _DIGEST: _digest_of(plain)}))


def open_json(path: Path, remedy: str, *, must_be_sealed: bool) -> dict[str, Any]:
    """What `sealed_json` has written there; Damaged where it is not that, or not there."""
    try:
        values = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        raise Damaged(path, "is missing", remedy) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, error, remedy) from None
    seal = values.pop(_DIGEST, None)
    if seal is None and not must_be_sealed:
        return values
    if seal != _digest_of(values):
        raise Damaged(path, "is not what was written", remedy)
    return values


def read_sealed(data: bytes, kind: type[T]) -> T | None:
    """What `sealed_json` has written, as a struct; None where a digest in it is wrong. An older Weft wrote none."""
    values = msgspec.json.decode(data, type=dict[str, Any])
    seal = values.pop(_DIGEST, None)
    if seal is not None and seal != _digest_of(values):
        return None
    return msgspec.convert(values, kind)


def sealed_lines(lines: list[str]) -> bytes:
    """Lines of text, and a last one with their digest, which reads as a comment."""
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}{_SEAL}{hashlib.sha256(text.encode()).hexdigest()}\n".encode()


def open_lines(path: Path, remedy: str, *, must_be_sealed: bool) -> list[str]:
    """What `sealed_lines` has written there; Damaged where it is not that, or not there."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise Damaged(path, "is missing", remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, remedy) from None
    body, mark, seal = text.rpartition(_SEAL)
    if not mark and not must_be_sealed:
        return text.splitlines()
    if not mark or seal != hashlib.sha256(body.encode()).hexdigest() + "\n":
        raise Damaged(path, "is not what was written", remedy)
    return body.splitlines()


def _digest_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()
