"""The robots directives in `<meta>` and in the X-Robots-Tag header.

Only noindex and nofollow (and `none`, which is both) are used by a crawl; see preferences.py for others. Where
several directives disagree the most restrictive one applies, as at Google.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PRODUCT = "weft"

# Directives with a value after a colon, which resemble an agent's name followed by directives.
_VALUED = frozenset(("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"))
_AGENT = re.compile(r"\s*([A-Za-z*][\w.+*-]*)\s*:").match


def directives(content: str) -> tuple[bool, bool]:
    """(noindex, nofollow) of a list of directives such as `noindex, follow`."""
    words = {word.strip() for word in content.lower().split(",")}
    none = "none" in words
    return none or "noindex" in words, none or "nofollow" in words


def robots_tag(values: Iterable[str], agent: str = PRODUCT) -> tuple[bool, bool]:
    """(noindex, nofollow) of all X-Robots-Tag headers of a response, for `agent`.

    A name with a colon makes what follows it in that header count for that agent only.
    """
    return directives(",".join(words_for(values, agent)))


def words_for(values: Iterable[str], agent: str) -> list[str]:
    """Every directive of X-Robots-Tag headers that is for everyone or for `agent`."""
    product = agent.partition("/")[0].strip().lower()
    return [word for value in values for word in _meant_for(value, product)]


def _meant_for(value: str, product: str) -> Iterable[str]:
    """The directives of one header that are for everyone or for `product`."""
    ours = True
    for piece in value.split(","):
        match = _AGENT(piece)
        name = match[1].lower() if match else ""
        if match and name not in _VALUED:
            ours = name in ("*", "robots", product)
            piece = piece[match.end() :]
        if ours and ":" not in piece:
            yield piece
