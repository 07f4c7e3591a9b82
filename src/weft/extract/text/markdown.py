"""The main content as Markdown (GitHub's): headings, lists, tables, code, links, images and footnotes are kept.

Takes the pruned tree of main_text.py, makes its references absolute and has the parser write it as Markdown.

Invariant: code blocks and tables are unchanged; repeated lines are removed from prose only.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

from weft import urls
from weft.errors import BadUrl
from weft.extract.text.footnotes import Footnotes, extract_footnotes
from weft.extract.text.lines import REPEATED_CHARS, are_few_repeated
from weft.extract.turbo import STYLE, Document, Element, Text, in_a_block

# Links that lead nowhere outside a browser; their text stays.
_DEAD_LINKS = 'a[href^="javascript:" i], a[href=""], a:not([href])'
_INLINE_IMAGES = 'img:not([src]), img[src=""], img[src^="data:" i]'
_PERMALINK_SIGNS = frozenset(("", "¶", "#", "§", "🔗"))
# Where markup says what language a block of code is in: classes of the common highlighters.
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:lang(?:uage)?-|highlight-(?:source-|text-)?|brush:\s*|sourceCode\s+)([\w+#]{1,20})"
).search
_LANGUAGE_NAME = re.compile(r"([\w+#]{1,20})$").match
_NO_LANGUAGES = frozenset(
    ("none", "default", "plain", "plaintext", "text", "nohighlight", "notranslate", "en", "source")
)
_MARKERS = frozenset(("-", "*", "|"))


class Links(StrEnum):
    """What becomes of links."""

    KEEP = "keep"
    TEXT = "text"  # their text alone
    DROP = "drop"  # neither


def markdown(
    root: Element | None,
    base: str,
    links: Links = Links.KEEP,
    headline: str = "",
    whole: Document | Element | None = None,
    repeats: float = 0.0,
) -> str:
    """A pruned tree as Markdown, its references resolved against `base`. `headline`: of a tree without it; `whole`: the
    page, for the notes that the tree refers to and has no longer; `repeats`: the share of it that repeated lines may
    be."""
    if root is None:
        return ""
    tree: Element = in_a_block(copy.deepcopy(root))
    footnotes = extract_footnotes(tree, tree if whole is None else whole, base)
    written = footnotes.put(_written(tree, base, links, repeats), "" if links is Links.DROP else r"[^\1]")
    if headline and root.find("h1") is None:
        title = Element("h1", {}, [Text(headline)]).to_markdown(STYLE).strip()
        written = f"{title}\n\n{written}".strip()
    notes = () if links is Links.DROP else _notes(footnotes, base, links)
    return "\n\n".join((written, *notes))


def _notes(footnotes: Footnotes, base: str, links: Links) -> Iterator[str]:
    for number, note in enumerate(footnotes.notes, 1):
        written = footnotes.put(_written(in_a_block(note), base, links), r"[^\1]")
        yield f"[^{number}]: " + written.replace("\n", "\n    ").replace("\n    \n", "\n\n")


def escaped(text: str) -> str:
    """Plain paragraphs as Markdown."""
    paragraphs = (Element("p", {}, [Text(one)]).to_markdown(STYLE).strip() for one in text.split("\n\n") if one.strip())
    return "\n\n".join(paragraphs)


def _written(tree: Element, base: str, links: Links, repeats: float = 0.0) -> str:
    """A tree as Markdown; the tree is changed."""
    tree.remove(_INLINE_IMAGES)
    for link in tree.select('a[href*="#"]'):
        if link.text.strip() in _PERMALINK_SIGNS and link.find("img") is None:
            link.decompose()
    if links is Links.DROP:
        tree.remove("a[href]")
    tree.strip_tags(_DEAD_LINKS if links is Links.KEEP else "a")
    for code in tree.select("pre:not([class*=language-])"):
        _name_language(code)
    _resolve(tree, base)
    # The parser writes a no-break space as a character reference; a plain space is easier to read.
    written = tree.to_markdown(STYLE).replace("&#160;", " ")
    lines = written.split("\n")
    return (written if _is_tidy(written, lines, repeats) else "\n".join(_tidied(lines, repeats))).strip()


def _name_language(code: Element) -> None:
    """Gives a block of code the language that a word around it says: `highlight-python`, `brush: js`, data-lang=go."""
    if code.select_one("code[class*=language-]") is not None:
        return
    inner, outer = code.find("code"), code.parent
    around = [inner, code, outer, outer.parent if outer is not None else None]
    for element in around:
        if not isinstance(element, Element):
            continue
        named = element.attr("data-lang") or element.attr("data-language") or element.attr("lang") or ""
        match = _LANGUAGE_NAME(named) or _LANGUAGE(element.attr("class") or "")
        if match and match[1].lower() not in _NO_LANGUAGES:
            (inner if inner is not None else code).attrs["class"] = f"language-{match[1].lower()}"
            return


def _resolve(tree: Element, base: str) -> None:
    """Makes references absolute; an invalid one stays as written."""
    for element in tree.select("a[href], img[src]"):
        name = "src" if element.tag == "img" else "href"
        try:
            element.attrs[name] = urls.absolute(element.attr(name) or "", base)
        except BadUrl:
            continue


def _is_tidy(written: str, lines: list[str], repeats: float) -> bool:
    """Whether there is nothing that `_tidied` would remove, as on most pages: a few calls show it."""
    bare = list(map(str.strip, lines))
    long = [line for line in bare if len(line) >= REPEATED_CHARS and line[0] != "|"]
    return (
        "```" not in written
        and _MARKERS.isdisjoint(bare)
        and are_few_repeated(long, repeats * len(written))
        and all(one or other for one, other in pairwise(bare))
    )


def _tidied(lines: list[str], repeats: float) -> Iterator[str]:
    """The lines without repeated prose, empty list items and runs of empty lines; code and tables as they are."""
    long = [bare for bare in map(str.strip, lines) if len(bare) >= REPEATED_CHARS and bare[0] != "|"]
    are_kept = are_few_repeated(long, repeats * sum(map(len, lines)))
    seen: set[str] = set()
    fence = ""
    blank = True
    for line in lines:
        bare = line.strip()
        if fence or bare.startswith("```"):
            fence = _fence(bare, fence)
        elif bare in _MARKERS or (bare in seen and not are_kept) or (blank and not bare):
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
