"""API keys: who may call the service, and what they may do.

A key is `weft_ID_SECRET`. The file stores the SHA-256 of each secret, never the secret itself; a secret has 256 random
bits, so a slow hash would protect it no better. Secrets are compared in constant time. A revoked key stays in the file,
so that its id is never reused, and so that a service whose keys were all revoked still requires one.

Every worker reads the file again at the next request after a change; the file is replaced as a whole. A service that
has had keys always requires one: if the file is missing or cannot be read, all requests are refused. The lock file
beside it is made with the first key and stays, so that a process that starts later knows that keys are required.
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
from weft.files import locked, make_lock_file, replace_file
from weft.jobs.api.access.api_key import NAME, ApiKey, KeyScope
from weft.jobs.api.access.listed_keys import digest_of, read_listed
from weft.telemetry import Log

log = Log("weft.jobs.api")
_NEVER_READ = object()  # A stamp that equals that of no file.
LONGEST_KEY = 4096  # The longest text in characters.
_KEY_TEXT = re.compile(r"weft_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class KeyFile(Struct, frozen=True):
    """The contents of the key file."""

    keys: tuple[ApiKey, ...] = ()


class Keyring:
    """The keys of one service, read again when their file changes."""

    def __init__(self, path: Path, *, is_required: bool = False, listed: Path | None = None) -> None:
        """`is_required`: requests need a key even if none was created yet. `listed`: a file of further keys that the
        operator maintains."""
        self.path = path
        self._listed_path = listed
        self._listed_keys: dict[str, ApiKey] = {}  # by digest
        self._stamp: object = _NEVER_READ
        self._keys: dict[str, ApiKey] = {}
        self._needs_keys = is_required
        self._problem: Damaged | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever created, so that requests need none."""
        self._reload_if_changed()
        return not self._needs_keys

    @property
    def problem(self) -> Damaged | None:
        """Why no key can be checked now, with the remedy for the operator; None if keys can be checked."""
        self._reload_if_changed()
        return self._problem

    def all(self) -> list[ApiKey]:
        """Every key, including revoked ones, oldest first."""
        if (problem := self.problem) is not None:
            raise problem
        return sorted([*self._keys.values(), *self._listed_keys.values()], key=lambda key: key.created_at)

    def find(self, key_id: str) -> ApiKey | None:
        """The valid key with this id; None if there is none."""
        self._reload_if_changed()
        key = self._keys.get(key_id) or next((one for one in self._listed_keys.values() if one.id == key_id), None)
        return key if key is not None and key.revoked_at is None else None

    def check(self, given: str) -> ApiKey | None:
        """The valid key for the text that a caller sent; None if it is unknown or revoked."""
        self._reload_if_changed()
        parts = _KEY_TEXT.fullmatch(given)
        key = self._keys.get(parts[1]) if parts else None
        # Compare for an unknown id, too: the time of an answer must not reveal which ids exist.
        digest = sha256((parts[2] if parts else given[:100]).encode()).hexdigest()
        is_right = hmac.compare_digest(digest, key.digest if key else "0" * 64)
        if key is not None and is_right and key.revoked_at is None:
            return key
        # a digest: no caller can choose it to probe the dictionary
        return self._listed_keys.get(digest_of(given[:LONGEST_KEY]))

    def create(self, name: str, scopes: tuple[KeyScope, ...] = tuple(KeyScope)) -> tuple[str, ApiKey]:
        """Creates a key. The returned text is the only copy: the file has its digest alone."""
        if not NAME.fullmatch(name):
            raise BadInput(f"{name!r} is not a name of a key: use 1 to 64 letters, digits, spaces and . _ @ -")
        if not scopes:
            raise BadInput(f"a key needs a scope: {', '.join(KeyScope)}")
        secret = secrets.token_urlsafe(32)
        with self._change_keys() as keys:
            if any(key.name == name and key.revoked_at is None for key in keys.values()):
                raise BadInput(f"there is a key {name!r} already: revoke that one first, or choose another name")
            made = ApiKey(
                id=secrets.token_hex(6), name=name, digest=sha256(secret.encode()).hexdigest(),
                scopes=tuple(dict.fromkeys(scopes)), created_at=time.time(),
            )  # fmt: skip
            keys[made.id] = made
        return f"weft_{made.id}_{secret}", made

    def revoke(self, which: str) -> ApiKey:
        """Revokes a key, by its id or its name."""
        with self._change_keys() as keys:
            key = next((key for key in keys.values() if which in (key.id, key.name) and key.revoked_at is None), None)
            if key is None and any(which in (one.id, one.name) for one in self._listed_keys.values()):
                raise BadInput(f"the key {which!r} is in {self._listed_path}: delete its line there")
            if key is None:
                raise BadInput(f"there is no key {which!r} that is valid: `weft keys list` shows them")
            keys[key.id] = msgspec.structs.replace(key, revoked_at=time.time())
        return keys[key.id]

    def _reload_if_changed(self) -> None:
        listed = self._listed_path
        if (stamp := (_stamp(self.path), listed and _stamp(listed))) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys, self._listed_keys, self._problem = (
                _read_key_file(self.path),
                {} if listed is None else read_listed(listed),
                None,
            )
        except Damaged as problem:
            self._keys, self._listed_keys, self._problem = {}, {}, problem
        had_keys = self._needs_keys or self._lock.exists()
        self._needs_keys = had_keys or bool(self._keys) or listed is not None or self._problem is not None
        if self._needs_keys and not (self._keys or self._listed_keys) and self._problem is None:
            folder, lock = quote(str(self.path.parent)), self._lock
            without = f"; delete {lock}, too, to run without keys" if lock.exists() else ""
            remedy = f"bring back a copy, or make new ones with `weft keys create NAME --data-dir {folder}`{without}"
            self._problem = Damaged(self.path, "there are no API keys, though this service needs them", remedy)
        if self._problem is not None:
            log.error("API keys cannot be read: all requests are refused", error=str(self._problem))

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    @contextmanager
    def _change_keys(self) -> Iterator[dict[str, ApiKey]]:
        """The keys in the file, to be changed and written back at the end; locked against other processes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        make_lock_file(self._lock)
        with locked(self._lock):
            keys = _read_key_file(self.path)
            yield keys
            content = KeyFile(tuple(keys.values()))
            replace_file(self.path, msgspec.json.format(msgspec.json.encode(content), indent=2), owned_as_folder=True)


def _stamp(path: Path) -> object:
    try:
        stat = path.stat()
    except OSError as error:
        return error.errno
    return stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_mode, stat.st_uid


def _read_key_file(path: Path) -> dict[str, ApiKey]:
    try:
        return {key.id: key for key in msgspec.json.decode(path.read_bytes(), type=KeyFile).keys}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}", "let the service's user read it") from None
    except (ValueError, msgspec.DecodeError):
        raise Damaged(path, "is not a file of API keys", "bring back a copy, or delete it and make new keys") from None
