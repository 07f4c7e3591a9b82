"""One API key, and the scopes that it grants."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")


class KeyScope(StrEnum):
    """What a key may be used for."""

    SUBMIT = "submit"  # start tasks
    READ = "read"  # the status, results and events of its own tasks
    CONTROL = "control"  # cancel, pause and resume them
    MONITOR = "monitor"  # the state of the whole service, and its metrics


class ApiKey(Struct, frozen=True, kw_only=True):
    """One key as the key file stores it."""

    id: str
    name: str
    digest: str  # SHA-256 of the secret, in hexadecimal digits
    scopes: tuple[KeyScope, ...]
    created_at: float
    revoked_at: float | None = None
