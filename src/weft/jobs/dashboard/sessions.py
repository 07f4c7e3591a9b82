"""Who has signed in: a cookie that says which API key was shown, signed, and valid for half a day.

Nothing is kept of it: the cookie is `KEY_ID.END.MAC`, the MAC is over both and the key's own digest, by a secret in the
service's folder, so that every worker takes it, also after a restart, and that a revoked key ends it at once. Its name
holds a tag of the secret: cookies know no ports, and another service of this machine has a cookie of its own.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from weft.files import locked, replace_file
from weft.jobs.api.access.api_key import ApiKey
from weft.jobs.api.access.keys import Keyring

SECRET_FILE = "dashboard.secret"  # noqa: S105 (its name)
SECRET_BYTES = 32
LASTS_S = 12 * 3600
MOST_COOKIES = 200  # of one name, in one request
_VALUE = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")


class Sessions:
    """The sessions of one service."""

    def __init__(self, folder: Path, keyring: Keyring, clock: Callable[[], float] = time.time) -> None:
        self._keyring = keyring
        self._clock = clock
        self._path = folder / SECRET_FILE
        self._secret = b""

    def begin(self, key: ApiKey, *, is_tls: bool) -> str:
        """The header that has a browser keep a session."""
        end = int(self._clock()) + LASTS_S
        return self._cookie(f"{key.id}.{end}.{self._mac(key, end)}", LASTS_S, is_tls)

    def end(self, *, is_tls: bool) -> str:
        """The header that has a browser forget it."""
        return self._cookie("", 0, is_tls)

    def key_of(self, cookies: str) -> ApiKey | None:
        """The key of whoever sent a Cookie header; what other servers have put there is passed over."""
        for value in self._values(cookies):
            if (parts := _VALUE.fullmatch(value)) is None:
                continue
            key, end = self._keyring.find(parts[1]), int(parts[2])
            if key is not None and hmac.compare_digest(parts[3], self._mac(key, end)) and end > self._clock():
                return key
        return None

    def _values(self, cookies: str) -> Iterator[str]:
        names = (self._name(False), self._name(True))
        for part in cookies.split(";", MOST_COOKIES):
            name, _, value = part.partition("=")
            if name.strip() in names:
                yield value.strip().strip('"')

    def _name(self, is_tls: bool) -> str:
        tag = sha256(b"name" + self._key()).hexdigest()[:8]
        return f"{'__Host-' if is_tls else ''}weft-{tag}"

    def _cookie(self, value: str, lasts_s: int, is_tls: bool) -> str:
        secure = "; Secure" if is_tls else ""
        return f"{self._name(is_tls)}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}"

    def _mac(self, key: ApiKey, end: int) -> str:
        return hmac.new(self._key(), f"{key.id}.{end}.{key.digest}".encode(), sha256).hexdigest()

    def _key(self) -> bytes:
        if not self._secret:
            self._secret = _read_or_make(self._path)
        return self._secret


def _read_or_make(path: Path) -> bytes:
    """The secret; workers that make it at the same time all have the same one. One that was cut off, by a full disk
    say, is made again, under a lock: another worker may have done so since it was read."""
    if (found := _read(path)) is None:
        with locked(path.with_suffix(".lock")):
            if (found := _read(path)) is None:
                found = secrets.token_bytes(SECRET_BYTES)
                replace_file(path, found)
    return found


def _read(path: Path) -> bytes | None:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    return found if len(found) == SECRET_BYTES else None
