"""References that need no URL parser, joined by concatenation: nearly all of a page's links.

Plain is what the parser would leave as it is: an absolute path, or one relative to the page's folder, without steps
(`.`, `..`, `%2e`) and made of characters that are never encoded. All other references go to the parser, so the patterns
may be narrow but never too wide. `urls.join_all` is the only caller.

`_plain_links.c` is the same, compiled where there is a compiler at installation, and takes most whole URLs for plain as
well (docs/decisions/0048-compiled-lists-of-links.md).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.compiled import counterpart

# A path segment that the URL parser would leave as it is: no leading dot (`.` and `..` are steps) nor `%` (`%2e` is a
# dot); a query likewise.
SEGMENT = r"(?:[A-Za-z0-9_~!$&()*+,;=:@-][A-Za-z0-9_~!$&()*+,;=:@.%-]*)"
PATH = rf"/(?:{SEGMENT}?(?:/{SEGMENT}?)*)?"
QUERY = r"(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?%-]*)?"
END = r"(?:#|\Z)"
rooted = re.compile(rf"(?!//)({PATH}{QUERY}){END}").match
_relative = re.compile(rf"([A-Za-z0-9_~-][A-Za-z0-9_~.%-]*(?:/{SEGMENT}?)*{QUERY}){END}").match
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_~!$&()*+,;=:@.%-/?#\n"


def join_plain(origin: str, directory: str, hrefs: list[str], longest: int) -> tuple[list[str | None], int]:
    """The URLs of the references that are plain and not longer than `longest`, None for each of the others; and how
    many others there are.

    `origin` is that of the page, `directory` its folder with a slash at the end; an empty one makes no reference to it
    plain.
    """
    are_plain, have_fragments, are_rooted = _look(hrefs)
    are_simple = are_plain and are_rooted and not have_fragments  # as on most pages of most sites
    if are_simple and origin and len(origin) + len(max(hrefs, key=len)) <= longest:
        return [origin + href for href in hrefs], 0
    joined, others = list[str | None](), 0
    for href in hrefs:
        url: str | None = None
        if not origin:
            pass
        elif are_plain and href[:1] == "/" and href[1:2] != "/":
            url = origin + (href.partition("#")[0] if have_fragments else href)
        elif match := rooted(href):
            url = origin + match[1]
        elif directory and (match := _relative(href)):
            url = directory + match[1]
        if url is None or len(url) > longest:
            url, others = None, others + 1
        joined.append(url)
    return joined, others


def _look(hrefs: list[str]) -> tuple[bool, bool, bool]:
    """Whether all references are made of characters that need no parser, with no step (`.`, `..`, `%2e`) among their
    segments; whether one of them may have a fragment; and whether all begin with one slash."""
    text = "\n".join(hrefs)
    is_plain = (
        text.isascii()
        and not text.encode().translate(None, _PLAIN)
        and "/." not in text
        and "/%" not in text
        and text.count("\n") == len(hrefs) - 1  # none within a reference
    )
    are_rooted = "//" not in text and f"\n{text}".count("\n/") == len(hrefs)
    return is_plain, "#" in text, are_rooted


if not TYPE_CHECKING and (compiled := counterpart("weft._plain_links")) is not None:
    join_plain = compiled.join_plain
