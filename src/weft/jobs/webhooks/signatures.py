"""Signatures of deliveries, so that a receiver can tell them from anybody else's. Pure.

Every delivery carries the headers of the Standard Webhooks specification: `webhook-id`, `webhook-timestamp` (of the
attempt, in seconds: a receiver refuses an old one, and with it a replay by others) and `webhook-signature`, `v1,` and
the base64 of an HMAC-SHA256 over `id.timestamp.body`. The key is the owner's: the service has one secret of its own,
and what an owner signs with is derived from it, so that no owner can sign for another and nothing is kept for each.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256

PREFIX = "whsec_"


def secret_of(service_secret: bytes, owner: str) -> str:
    """What an owner's deliveries are signed with, as it is handed to the owner."""
    key = hmac.digest(service_secret, b"webhooks of " + owner.encode(), "sha256")
    return PREFIX + b64encode(key).decode()


def signature(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    key = b64decode(secret.removeprefix(PREFIX))
    return "v1," + b64encode(hmac.digest(key, b"%s.%d." % (event_id.encode(), timestamp) + body, sha256)).decode()


def body_signature(secret: str, body: bytes) -> str:
    """Firecrawl's: over the body alone, by the secret as it is written."""
    return "sha256=" + hmac.digest(secret.encode(), body, sha256).hex()
