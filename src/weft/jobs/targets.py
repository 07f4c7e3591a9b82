"""Checks which URLs may be submitted. Addresses in URLs are checked here; names and redirects that lead to private
addresses are checked by the engine's guard at every connection."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from weft import urls
from weft.errors import BadUrl
from weft.fetch.guard import LOOPBACK, METADATA, NO_ADDRESS, Guard

_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata", "instance-data", "metadata.goog"})


def check_target(text: str, allow_private: bool) -> str:
    """The canonical URL; raises BadUrl if it is invalid, or leads to a private address."""
    if not text.lower().startswith(("http://", "https://")):
        raise BadUrl(text, "scheme", "is not a URL that can be scraped: write http://... or https://...")
    url = urls.seed(text)
    if reason := why_not_public(urls.host_of(url), allow_private):
        exception = "" if reason == METADATA else ", unless the service is started with --allow-private"
        raise BadUrl(
            text, "address", f"leads to {_with_article(reason)} {reason} address, where tasks may not go{exception}"
        )
    return url


def _with_article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def why_not_public(host: str, allow_private: bool, pinned: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Why a host may not be requested, as far as its name shows; None if it may. `pinned`: addresses that names are
    pinned to."""
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return METADATA
    address = pinned.get(name) or name.strip("[]")
    if address == "localhost" or address.endswith(".localhost"):
        return None if allow_private else LOOPBACK
    reason = Guard(allow_private).check(address)
    return None if reason == NO_ADDRESS else reason
