"""Which URLs may be submitted: checked here where the address is written out, and by the engine's guard at every
connection, where a name or a redirect leads to one."""

from __future__ import annotations

from weft import urls
from weft.errors import BadUrl
from weft.fetch.guard import LOOPBACK, METADATA, NO_ADDRESS, Guard

_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata", "instance-data", "metadata.goog"})


def check_target(text: str, allow_private: bool) -> str:
    """The canonical URL; BadUrl where it is none, or leads inside."""
    if not text.lower().startswith(("http://", "https://")):
        raise BadUrl(text, "scheme", "is no URL that is scraped: write http://... or https://...")
    url = urls.seed(text)
    if reason := _inside(urls.host_of(url), allow_private):
        way = "" if reason == METADATA else ", unless the service is started with --allow-private"
        raise BadUrl(text, "address", f"leads to {_article(reason)} {reason} address, where tasks may not go{way}")
    return url


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _inside(host: str, allow_private: bool) -> str | None:
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return METADATA
    if name == "localhost" or name.endswith(".localhost"):
        return None if allow_private else LOOPBACK
    reason = Guard(allow_private).check(name.strip("[]"))
    return None if reason == NO_ADDRESS else reason
