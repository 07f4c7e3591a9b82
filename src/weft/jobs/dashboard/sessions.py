"""Sessions of the dashboard: a signed cookie that names the API key a visitor has signed in with, valid for half a
day.

The service stores no sessions. The cookie is `KEY_ID.END.MAC`; the MAC covers both and the key's digest, with a secret
from the service's folder. So every worker accepts it, also after a restart, and revoking the key ends it at once. The
cookie's name contains a tag of the secret: cookies are shared between ports, and another service on this machine must
have a cookie of its own.
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
MOST_COOKIES = 200  # The number of cookies of one name that are read in a request.
_COOKIE_VALUE = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")


class Sessions:
    """The sessions of one service."""

    def __init__(self, folder: Path, keyring: Keyring, clock: Callable[[], float] = time.time) -> None:
        self._keyring = keyring
        self._clock = clock
        self._path = folder / SECRET_FILE
        self._secret = b""

    def begin(self, key: ApiKey, *, is_tls: bool) -> str:
        """The Set-Cookie header that starts a session."""
        end = int(self._clock()) + LASTS_S
        return self._set_cookie(f"{key.id}.{end}.{self._signature_of(key, end)}", LASTS_S, is_tls)

    def end(self, *, is_tls: bool) -> str:
        """The Set-Cookie header that ends it."""
        return self._set_cookie("", 0, is_tls)

    def key_of(self, cookies: str) -> ApiKey | None:
        """The key of the session in a Cookie header; None if there is none. Cookies of other servers are ignored."""
        for value in self._session_values(cookies):
            if (parts := _COOKIE_VALUE.fullmatch(value)) is None:
                continue
            key, end = self._keyring.find(parts[1]), int(parts[2])
            if key is not None and hmac.compare_digest(parts[3], self._signature_of(key, end)) and end > self._clock():
                return key
        return None

    def _session_values(self, cookies: str) -> Iterator[str]:
        names = (self._cookie_name(False), self._cookie_name(True))
        for part in cookies.split(";", MOST_COOKIES):
            name, _, value = part.partition("=")
            if name.strip() in names:
                yield value.strip().strip('"')

    def _cookie_name(self, is_tls: bool) -> str:
        tag = sha256(b"name" + self._signing_key()).hexdigest()[:8]
        return f"{'__Host-' if is_tls else ''}weft-{tag}"

    def _set_cookie(self, value: str, lasts_s: int, is_tls: bool) -> str:
        secure = "; Secure" if is_tls else ""
        return f"{self._cookie_name(is_tls)}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}"

    def _signature_of(self, key: ApiKey, end: int) -> str:
        return hmac.new(self._signing_key(), f"{key.id}.{end}.{key.digest}".encode(), sha256).hexdigest()

    def _signing_key(self) -> bytes:
        if not self._secret:
            self._secret = _read_or_make(self._path)
        return self._secret


def _read_or_make(path: Path) -> bytes:
    """The secret. Workers that create it at the same time all get the same one. A truncated file (for example after a
    full disk) is replaced under a lock: another worker may have replaced it since it was read."""
    if (secret := _read_secret(path)) is None:
        with locked(path.with_suffix(".lock")):
            if (secret := _read_secret(path)) is None:
                secret = secrets.token_bytes(SECRET_BYTES)
                replace_file(path, secret)
    return secret


def _read_secret(path: Path) -> bytes | None:
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        return None
    return secret if len(secret) == SECRET_BYTES else None
