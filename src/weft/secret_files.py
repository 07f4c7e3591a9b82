"""Secrets in files, as containers and systemd hand them over: `WEFT_..._FILE` names one instead of holding a value.

It refuses a file that every user may read, because that is no secret, and one that is missing, empty or no text. A
message names the variable and the path, never a part of the content.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from weft.errors import BadInput

LONGEST_BYTES = 1 << 20


def read_secret(path: str | Path, what: str) -> str:
    """The text of a file, without white space around it; `what` names the setting in messages."""
    text = read_secret_lines(path, what).strip()
    if not text:
        raise BadInput(f"{what}: {path} is empty; write the secret into it")
    return text


def read_secret_lines(path: str | Path, what: str) -> str:
    """The text of a file that holds several secrets, and may hold none yet."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise BadInput(f"{what}: {path} cannot be read: {reason}; write the secret there, for this user") from None
    facts = os.fstat(fd)
    if stat.S_ISDIR(facts.st_mode):
        os.close(fd)
        raise BadInput(f"{what}: {path} is a folder; name the file in it")
    with os.fdopen(fd, "rb") as file:
        if stat.S_ISREG(facts.st_mode) and facts.st_mode & stat.S_IROTH:  # a pipe of the shell has no such mode
            raise BadInput(f"{what}: every user can read {path}; `chmod 600` it, or give the secret the mode 0400")
        data = file.read(LONGEST_BYTES + 1)
    if len(data) > LONGEST_BYTES:
        raise BadInput(f"{what}: {path} is longer than {LONGEST_BYTES >> 20} MiB: it is no secret")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{what}: {path} is not UTF-8 text") from None
    if "\0" in text:
        raise BadInput(f"{what}: {path} is no text: it has a NUL in it")
    return text
