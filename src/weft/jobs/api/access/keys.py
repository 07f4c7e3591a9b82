"""API keys: who may call the service, and what they may do.

A key is `weft_ID_SECRET`; the file holds the SHA-256 of each secret, never the secret, which is 256 random bits: a slow
hash would protect it no better. Secrets are compared in constant time. A revoked key stays in the file, so that its id
is never another's, and so that a service whose keys were all revoked does not become one that needs none.

The file is read again when it has changed, by every worker, at the next request: it is written whole and renamed. A
service that has had keys never becomes one that needs none: where the file is gone or cannot be read, nobody is let in.
Beside the file lies its lock, which is made with the first key and stays: it tells a process that starts later.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shlex import quote

import msgspec
from msgspec import Struct

from weft.errors import BadInput, Damaged
from weft.files import locked, replace_file
from weft.jobs.api.access.api_key import NAME, ApiKey, KeyScope
from weft.jobs.api.access.listed_keys import digest_of, read_listed
from weft.telemetry import Log

log = Log("weft.jobs.api")
_NEVER = object()  # no state of a file
LONGEST_KEY = 4096  # characters
_KEY = re.compile(r"weft_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class KeyFile(Struct, frozen=True):
    """The whole file."""

    keys: tuple[ApiKey, ...] = ()


class Keyring:
    """The keys of one service."""

    def __init__(self, path: Path, *, is_required: bool = False, listed: Path | None = None) -> None:
        """`is_required`: nobody is let in without a key, whether one was made or not. `listed`: a file of further keys,
        which the operator keeps."""
        self.path = path
        self._listed_path = listed
        self._listed: dict[str, ApiKey] = {}  # by digest
        self._stamp: object = _NEVER
        self._keys: dict[str, ApiKey] = {}
        self._needs_keys = is_required
        self._problem: Damaged | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever made: nobody needs one."""
        self._refresh()
        return not self._needs_keys

    @property
    def problem(self) -> Damaged | None:
        """Why no key can be checked now, and what the operator can do; None while all is well."""
        self._refresh()
        return self._problem

    def all(self) -> list[ApiKey]:
        """Every key, revoked ones too, oldest first."""
        if (problem := self.problem) is not None:
            raise problem
        return sorted([*self._keys.values(), *self._listed.values()], key=lambda key: key.created_at)

    def find(self, key_id: str) -> ApiKey | None:
        """A key that is valid, by its id."""
        self._refresh()
        found = self._keys.get(key_id) or next((one for one in self._listed.values() if one.id == key_id), None)
        return found if found is not None and found.revoked_at is None else None

    def check(self, given: str) -> ApiKey | None:
        """The key that a caller has shown; None if it is none, or is revoked."""
        self._refresh()
        parts = _KEY.fullmatch(given)
        found = self._keys.get(parts[1]) if parts else None
        # An unknown id takes as long as a known one: who measures learns nothing.
        digest = sha256((parts[2] if parts else given[:100]).encode()).hexdigest()
        is_right = hmac.compare_digest(digest, found.digest if found else "0" * 64)
        if found is not None and is_right and found.revoked_at is None:
            return found
        return self._listed.get(digest_of(given[:LONGEST_KEY]))  # looked up by what nobody can choose

    def create(self, name: str, scopes: tuple[KeyScope, ...] = tuple(KeyScope)) -> tuple[str, ApiKey]:
        """Makes a key; its text is returned here and nowhere else, ever again."""
        if not NAME.fullmatch(name):
            raise BadInput(f"{name!r} is no name of a key: use 1 to 64 letters, digits, spaces and . _ @ -")
        if not scopes:
            raise BadInput(f"a key needs a scope: {', '.join(KeyScope)}")
        secret = secrets.token_urlsafe(32)
        with self._changing() as keys:
            if any(key.name == name and key.revoked_at is None for key in keys.values()):
                raise BadInput(f"there is a key {name!r} already: revoke it first, or choose another name")
            made = ApiKey(
                id=secrets.token_hex(6), name=name, digest=sha256(secret.encode()).hexdigest(),
                scopes=tuple(dict.fromkeys(scopes)), created_at=time.time(),
            )  # fmt: skip
            keys[made.id] = made
        return f"weft_{made.id}_{secret}", made

    def revoke(self, which: str) -> ApiKey:
        """Ends a key, by its id or its name."""
        with self._changing() as keys:
            found = next((key for key in keys.values() if which in (key.id, key.name) and key.revoked_at is None), None)
            if found is None and any(which in (one.id, one.name) for one in self._listed.values()):
                raise BadInput(f"the key {which!r} is in {self._listed_path}: delete its line there")
            if found is None:
                raise BadInput(f"there is no key {which!r} that is valid: `weft keys list` shows them")
            keys[found.id] = msgspec.structs.replace(found, revoked_at=time.time())
        return keys[found.id]

    def _refresh(self) -> None:
        listed = self._listed_path
        if (stamp := (_stamp(self.path), listed and _stamp(listed))) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys, self._listed, self._problem = (
                _read(self.path),
                {} if listed is None else read_listed(listed),
                None,
            )
        except Damaged as problem:
            self._keys, self._listed, self._problem = {}, {}, problem
        had_keys = self._needs_keys or self._lock.exists()
        self._needs_keys = had_keys or bool(self._keys) or listed is not None or self._problem is not None
        if self._needs_keys and not (self._keys or self._listed) and self._problem is None:
            folder, lock = quote(str(self.path.parent)), self._lock
            without = f"; delete {lock}, too, if nobody is to need one" if lock.exists() else ""
            remedy = f"bring back a copy, or make new ones with `weft keys create NAME --data-dir {folder}`{without}"
            self._problem = Damaged(self.path, "there are no API keys, though this service needs them", remedy)
        if self._problem is not None:
            log.error("API keys cannot be read: nobody is let in", error=str(self._problem))

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    @contextmanager
    def _changing(self) -> Iterator[dict[str, ApiKey]]:
        """The keys as they are in the file, written back at the end; one process at a time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._lock):
            keys = _read(self.path)
            yield keys
            content = KeyFile(tuple(keys.values()))
            replace_file(self.path, msgspec.json.format(msgspec.json.encode(content), indent=2))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid


def _read(path: Path) -> dict[str, ApiKey]:
    try:
        return {key.id: key for key in msgspec.json.decode(path.read_bytes(), type=KeyFile).keys}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}", "let the service's user read it") from None
    except (ValueError, msgspec.DecodeError):
        raise Damaged(path, "is no file of API keys", "bring back a copy, or delete it and make new keys") from None
