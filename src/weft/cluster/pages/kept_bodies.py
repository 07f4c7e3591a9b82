"""Bodies that travel beside a message, which then has their SHA-256: on the broker, or in the folder that all share."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from weft.cluster.broker import Broker
from weft.cluster.tasks import HandSide
from weft.errors import ServerFull
from weft.fetch.remote.messages import INLINE_BYTES, LargeBody


class BodyStore:
    """Where a hand keeps the bodies of one task."""

    def __init__(self, side: HandSide, most_bytes: int, *, is_shared: bool) -> None:
        """`is_shared`: the brain reads the shared folder, too."""
        self._broker = side.broker
        self._folder = side.shared_dir / side.broker.cluster_id if is_shared and side.shared_dir is not None else None
        self._most_bytes = most_bytes

    def keep(self, id_: str, data: bytes) -> tuple[bytes, LargeBody | None] | None:
        """What is in the message, and what lies beside it; None where there is no room now."""
        if len(data) <= INLINE_BYTES:
            return data, None
        sha256 = hashlib.sha256(data).hexdigest()
        if self._folder is not None:
            _write_shared(self._folder, id_, data)
            return b"", LargeBody(len(data), sha256, is_shared=True)
        if not self._broker.put_body(id_, data, self._most_bytes, 0.0):
            return None
        return b"", LargeBody(len(data), sha256)


def read_kept(broker: Broker, folder: Path | None, id_: str, large: LargeBody) -> bytes | None:
    """Such a body, which is deleted; None if it is gone, or not what was signed. `folder`: the shared one."""
    data: bytes | None = None
    if not large.is_shared:
        data = broker.take_body(id_, large.size)
    elif folder is not None:
        path = folder / id_.replace("/", "-")
        with suppress(OSError):
            data = path.read_bytes()
            path.unlink()
    if data is None or len(data) != large.size or hashlib.sha256(data).hexdigest() != large.sha256:
        return None
    return data


def _write_shared(folder: Path, id_: str, data: bytes) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / id_
        with os.fdopen(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        Path(f"{path}.new").replace(path)
    except OSError as error:
        raise ServerFull(f"{folder}: a result cannot be written: {error.strerror}") from None
