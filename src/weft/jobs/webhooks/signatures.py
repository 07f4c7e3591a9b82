"""Signatures of deliveries, by which a receiver recognises genuine ones. Pure functions.

Every delivery carries the headers of the Standard Webhooks specification: `webhook-id`, `webhook-timestamp` (of the
attempt, in seconds: receivers refuse old ones, and with them replays by others) and `webhook-signature`, `v1,` and the
base64 of an HMAC-SHA256 over `id.timestamp.body`. The key belongs to the owner: it is derived from the service's
secret, so that no owner can sign for another and no keys are stored.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256

PREFIX = "whsec_"


def secret_of(service_secret: bytes, owner: str) -> str:
    """The key that signs an owner's deliveries, in the form that the owner gets."""
    key = hmac.digest(service_secret, b"webhooks of " + owner.encode(), "sha256")
    return PREFIX + b64encode(key).decode()


def signature(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    key = b64decode(secret.removeprefix(PREFIX))
    return "v1," + b64encode(hmac.digest(key, b"%s.%d." % (event_id.encode(), timestamp) + body, sha256)).decode()


def body_signature(secret: str, body: bytes) -> str:
    """Firecrawl's signature: over the body alone, with the text of the secret as the key."""
    return "sha256=" + hmac.digest(secret.encode(), body, sha256).hex()
