"""The cluster key: made once, copied to every machine, and the only reason why a message is believed.

The cluster's id is a hash of the key, and shows nothing of it. It names queues and keys on the broker, so that clusters
with different keys never meet, even on one database.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from weft.config.cluster import ClusterSection
from weft.errors import BadInput
from weft.secret_files import read_secret

PREFIX = "weft-cluster-"
_FORM = re.compile(PREFIX + "([0-9a-f]{64})")
HOW = "name its file (`cluster_key_file`, WEFT_CLUSTER_KEY_FILE); `weft cluster init` makes one"


@dataclass(frozen=True, slots=True)
class ClusterKey:
    """The secret of one cluster, and the id that follows from it."""

    secret: bytes = field(repr=False)

    @property
    def cluster_id(self) -> str:
        """Twelve hex digits, the same for everybody who has the key."""
        return hashlib.sha256(b"weft cluster id\0" + self.secret).hexdigest()[:12]

    @property
    def text(self) -> str:
        """As it is written into a file."""
        return PREFIX + self.secret.hex()


def parse_key(text: str, what: str) -> ClusterKey:
    """A key from its text; `what` names where it came from in the message."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadInput(
            f"{what}: is no cluster key: it has the form {PREFIX} and 64 hex digits; `weft cluster init` makes one"
        )
    return ClusterKey(bytes.fromhex(match[1]))


def read_key(path: str | Path, what: str = "`cluster_key_file`") -> ClusterKey:
    """The key in a file that only its owner can read."""
    return parse_key(read_secret(path, what), f"{what}: {path}")


def configured_key(section: ClusterSection) -> ClusterKey:
    """The key that the settings give."""
    if section.key_file and section.key:
        raise BadInput("`cluster_key` and `cluster_key_file` are the same secret: give one of them")
    if section.key_file:
        return read_key(section.key_file)
    if section.key:
        return parse_key(section.key, "`cluster_key`")
    raise BadInput(f"there is no cluster key: {HOW}")


def configured_broker(section: ClusterSection) -> str:
    """The broker that the settings give."""
    if not section.broker:
        raise BadInput("there is no broker: give its address, `broker`, as in redis://10.0.0.7:6379/0 (WEFT_BROKER)")
    return section.broker


def make_key(path: Path) -> ClusterKey:
    """Writes a new key to a file of mode 0600; a file that is there is never replaced."""
    key = ClusterKey(secrets.token_bytes(32))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BadInput(
            f"{path}: is there already. Hands know their brain by it: keep it, or name another file with --key-file"
        ) from None
    except OSError as error:
        raise BadInput(
            f"{path}: the key cannot be written: {error.strerror}; name another file with --key-file"
        ) from None
    with os.fdopen(fd, "wb") as file:
        file.write(key.text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return key
