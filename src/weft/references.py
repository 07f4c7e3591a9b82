"""References to secrets: `${env:NAME}` and `${file:PATH}` in the values of settings.

A reference is resolved by the process that needs the secret and nowhere else, so that settings, journals, logs and the
list of processes have the reference alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from weft.errors import BadInput

MAX_SECRET_BYTES = 64 << 10
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_SECRET_WORDS = re.compile(
    r"(?:^|[_-])(?:pass|passwd|password|passphrase|pwd|secret|token|api_?key|access_?key|credentials?)(?:$|[_-])",
    re.IGNORECASE,
)


def is_reference(text: str) -> bool:
    """Whether a text has a reference."""
    return _REFERENCE.search(text) is not None


def is_broken_reference(text: str) -> bool:
    """Whether a text has what looks like a reference, and is none."""
    return "${" in text and "${" in _REFERENCE.sub("", text)


def names_secret(name: str) -> bool:
    """Whether one of the words of a name says that the value is a secret: `password`, `api_key`, `HTTPAUTH_PASS`."""
    return _SECRET_WORDS.search(name) is not None


def resolve(text: str, needed_by: str, environment: Mapping[str, str] | None = None) -> str:
    """The text with its references replaced; BadInput names a variable that is not set, or a file that cannot be
    read."""
    variables = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        kind, name = match[1], match[2].strip()
        found = variables.get(name, "") if kind == "env" else _content(name, needed_by)
        if not found:
            what = f"the environment variable {name} is not set" if kind == "env" else f"the file {name} is empty"
            raise BadInput(f"{needed_by} needs it: {what}")
        return found

    return _REFERENCE.sub(value, text)


def with_absolute_paths(text: str) -> str:
    """The text with the paths of `${file:PATH}` made absolute: a resume may have another working directory."""

    def made(match: re.Match[str]) -> str:
        return match[0] if match[1] == "env" else f"${{file:{os.path.abspath(match[2].strip())}}}"  # noqa: PTH100

    return _REFERENCE.sub(made, text)


def _content(path: str, needed_by: str) -> str:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_SECRET_BYTES + 1)
        if len(raw) > MAX_SECRET_BYTES:
            raise BadInput(
                f"{needed_by}: the file {path} has more than {MAX_SECRET_BYTES:,} bytes: it is to hold one value"
            )
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise BadInput(f"{needed_by}: the file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{needed_by}: the file {path} is not UTF-8 text") from None
