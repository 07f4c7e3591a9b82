"""API keys that an operator hands over as a file, for containers and systemd: `api_keys_file`.

A line is a key, a name for it, and its scopes; the last two may be left out, and `#` begins a comment:

    weft_0123456789ab_...                      as `weft keys create` prints it, or any text of 24 characters or more
    sha256:9f86d081884c7d65...   crawler   submit,read

A digest is that of the whole key. Weft never writes the file; a changed one is read at the next request.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

from weft.errors import BadInput, Damaged
from weft.jobs.api.access.api_key import NAME, ApiKey, KeyScope
from weft.secret_files import read_secret_lines

LEAST_CHARACTERS = 24
MOST_KEYS = 10_000
_SHA256_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")


def read_listed(path: Path) -> dict[str, ApiKey]:
    """Reads a file of keys, by their digests; raises Damaged, which names the line and never a key."""
    try:
        text = read_secret_lines(path, "api_keys_file")
    except BadInput as error:
        what, _, detail = str(error).partition(f"{path} ")
        raise Damaged(path, detail or what, "api_keys_file needs it") from None
    keys: dict[str, ApiKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            key = _parse_key_line(words)
        except ValueError as error:
            raise Damaged(path, f"line {number}: {error}", "correct it: KEY [NAME [SCOPE,SCOPE]]") from None
        if key.digest in keys:
            raise Damaged(path, f"line {number}: this key is listed above already", "leave one of them out")
        keys[key.digest] = key
    if not keys:
        raise Damaged(path, "is empty: there is no key in it", "write one into each line")
    if len(keys) > MOST_KEYS:
        raise Damaged(path, f"has more than {MOST_KEYS:,} keys", "leave some out")
    return keys


def digest_of(key: str) -> str:
    """The digest by which a listed key is looked up."""
    return sha256(key.encode()).hexdigest()


def _parse_key_line(words: list[str]) -> ApiKey:
    text, name, scopes, *more = [*words, "", ""] if len(words) < 3 else words
    if more and any(more):
        raise ValueError("has more than a key, a name and its scopes")
    if match := _SHA256_DIGEST.fullmatch(text):
        digest = match[1].lower()
    elif text.startswith("sha256:"):
        raise ValueError("a digest has 64 hexadecimal digits")
    elif len(text) < LEAST_CHARACTERS:
        raise ValueError(f"a key has {LEAST_CHARACTERS} characters or more (`openssl rand -hex 32` makes one)")
    else:
        digest = digest_of(text)
    if name and not NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits and . _ @ -")
    known = [scope for scope in scopes.split(",") if scope]
    if unknown := [scope for scope in known if scope not in list(KeyScope)]:
        raise ValueError(f"no scope {unknown[0]!r}: use {', '.join(KeyScope)}")
    chosen = tuple(dict.fromkeys(map(KeyScope, known))) or tuple(KeyScope)
    return ApiKey(id=digest[:12], name=name or f"listed-{digest[:6]}", digest=digest, scopes=chosen, created_at=0.0)
