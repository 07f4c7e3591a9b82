"""The main content as Markdown (GitHub's): headings, lists, tables, code blocks, links and images are kept.

Takes the pruned tree of main_text.py, makes its references absolute and has the parser write it as Markdown.

Invariant: code blocks and tables are unchanged; repeated lines are removed from prose only.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise

from weft import urls
from weft.errors import BadUrl
from weft.extract.main_text import REPEATED_CHARS
from weft.extract.turbo import STYLE, Element, in_a_block

# Links that lead nowhere outside a browser; their text stays.
_DEAD_LINKS = 'a[href^="javascript:" i], a[href=""], a:not([href])'
_INLINE_IMAGES = 'img:not([src]), img[src=""], img[src^="data:" i]'
_PERMALINK_SIGNS = frozenset(("", "¶", "#", "§", "🔗"))
_MARKERS = frozenset(("-", "*", "|"))


def markdown(root: Element | None, base: str) -> str:
    """A pruned tree as Markdown, its references resolved against `base`."""
    if root is None:
        return ""
    tree: Element = in_a_block(copy.deepcopy(root))
    tree.remove(_INLINE_IMAGES)
    for link in tree.select('a[href*="#"]'):
        if link.text.strip() in _PERMALINK_SIGNS and link.find("img") is None:
            link.decompose()
    tree.strip_tags(_DEAD_LINKS)
    _resolve(tree, base)
    # The parser writes a no-break space as a character reference; a plain space is easier to read.
    written = tree.to_markdown(STYLE).replace("&#160;", " ")
    lines = written.split("\n")
    return (written if _is_tidy(written, lines) else "\n".join(_tidied(lines))).strip()


def _resolve(tree: Element, base: str) -> None:
    """Makes references absolute; an invalid one stays as written."""
    for element in tree.select("a[href], img[src]"):
        name = "src" if element.tag == "img" else "href"
        try:
            element.attrs[name] = urls.absolute(element.attr(name) or "", base)
        except BadUrl:
            continue


def _is_tidy(written: str, lines: list[str]) -> bool:
    """Whether there is nothing that `_tidied` would remove, as on most pages: a few calls show it."""
    bare = list(map(str.strip, lines))
    long = [line for line in bare if len(line) >= REPEATED_CHARS and line[0] != "|"]
    return (
        "```" not in written
        and _MARKERS.isdisjoint(bare)
        and len(set(long)) == len(long)
        and all(one or other for one, other in pairwise(bare))
    )


def _tidied(lines: list[str]) -> Iterator[str]:
    """The lines without repeated prose, empty list items and runs of empty lines; code and tables as they are."""
    seen: set[str] = set()
    fence = ""
    blank = True
    for line in lines:
        bare = line.strip()
        if fence or bare.startswith("```"):
            fence = _fence(bare, fence)
        elif bare in _MARKERS or bare in seen or (blank and not bare):
            continue
        elif len(bare) >= REPEATED_CHARS and not bare.startswith("|"):
            seen.add(bare)
        blank = not bare
        yield line


def _fence(bare: str, fence: str) -> str:
    """The fence a line leaves open, given the one open before it."""
    if not fence:
        return bare[: len(bare) - len(bare.lstrip("`"))]
    return "" if bare == fence else fence
