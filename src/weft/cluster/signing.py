"""Signs what brain and hands send each other, and refuses what is not from them (docs/decisions/0083).

A message is a text: 64 hex digits of an HMAC-SHA256, then the JSON that it signs. The JSON holds the task schema's
number, what the message is (`kind`), its id, when it was made and until when it counts, both in milliseconds of the
broker's clock, and the body. Bodies that travel beside a message are in it by their SHA-256.

The signature is checked before anything is decoded. Whether a message is late or was there before is decided at the
broker, by its clock (`broker.Broker.claim`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from weft.cluster.key import ClusterKey
from weft.errors import WeftError

SCHEMA = 1  # of tasks and results; grows when an older hand could misunderstand a task
MAC_CHARS = 64
LONGEST_BYTES = 32 << 20
_PURPOSE = b"weft cluster message 1\0"


class RefusedMessage(WeftError):
    """A message that is not acted on. `reason` is a word to count by."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"a message was refused ({reason}): {detail}")
        self.reason = reason


class Message(msgspec.Struct, frozen=True):
    """The content of a signed message."""

    schema: int
    kind: str  # a queue's name, or the same with `-result`, or `report`
    id: str
    made_ms: int
    until_ms: int
    body: dict[str, Any]


class _Header(msgspec.Struct, frozen=True):
    """The part of a message that is read whatever its schema."""

    schema: int


class Signer:
    """Signs and checks with one cluster's key."""

    def __init__(self, key: ClusterKey) -> None:
        self._key = hmac.new(key.secret, _PURPOSE, hashlib.sha256).digest()
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Message).decode

    def sign(self, kind: str, body: dict[str, Any], *, made_ms: int, until_ms: int, id_: str = "") -> str:
        """A message; without an id it gets one that cannot be guessed."""
        message = Message(SCHEMA, kind, id_ or new_id(), made_ms, until_ms, body)
        data = self._encode(message)
        return self._mac(data) + data.decode()

    def verify(self, text: object, kind: str) -> Message:
        """The message in a text; RefusedMessage if it is not ours, of another schema, or of another kind."""
        if not isinstance(text, str):
            raise RefusedMessage("malformed", f"it is no text but {type(text).__name__}")
        if len(text) > LONGEST_BYTES:
            raise RefusedMessage("too_large", f"it has {len(text):,} characters, at most {LONGEST_BYTES:,} are read")
        given, data = text[:MAC_CHARS], text[MAC_CHARS:].encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._mac(data).encode()):
            raise RefusedMessage("signature", "it is not signed with this cluster's key")
        return self._decoded(data, kind)

    def verify_any(self, text: object, kinds: Sequence[str]) -> Message:
        """The same for a message of any of these kinds."""
        for kind in kinds[:-1]:
            try:
                return self.verify(text, kind)
            except RefusedMessage as error:
                if error.reason != "kind":
                    raise
        return self.verify(text, kinds[-1])

    def _decoded(self, data: bytes, kind: str) -> Message:
        try:
            schema = msgspec.json.decode(data, type=_Header).schema
        except msgspec.DecodeError as error:
            raise RefusedMessage("malformed", str(error)) from None
        if schema != SCHEMA:
            raise RefusedMessage(
                "schema", f"its task schema is {schema}, ours is {SCHEMA}: run one version of Weft everywhere"
            )
        try:
            message = self._decode(data)
        except msgspec.DecodeError as error:
            raise RefusedMessage("malformed", str(error)) from None
        if message.kind != kind:
            raise RefusedMessage("kind", f"it is a message of kind {message.kind!r}, not {kind!r}")
        return message

    def _mac(self, data: bytes) -> str:
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()


def new_id() -> str:
    """An id that no other message has."""
    return secrets.token_hex(16)
