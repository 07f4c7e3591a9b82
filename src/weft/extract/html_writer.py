"""Writes elements as HTML: the same of both parsers, whose own writers differ in escapes and in empty lines.

Comments are left out. With a base, references are made absolute, and what runs or calls home when the HTML is shown is
left out: scripts, styles, event attributes, `javascript:`.
"""

from __future__ import annotations

from weft import urls
from weft.errors import BadUrl
from weft.extract.tree import Tree

_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_RAW = frozenset("script style xmp iframe noembed noframes plaintext".split())
_ACTIVE = frozenset(
    "script style template noscript iframe frame frameset object embed applet link meta base input button select "
    "textarea svg math audio video canvas dialog".split()
)
_REFERENCES = frozenset(("href", "src", "action", "poster", "cite", "data", "background", "longdesc", "formaction"))
_SCHEMES = frozenset(("http:", "https:", "mailto:", "tel:"))
_DROPPED = frozenset(("style", "srcdoc", "ping", "nonce", "integrity", "srcset", "imagesrcset"))


def written(tree: Tree, number: int, base: str | None = None, *, inside: bool = False) -> str:
    """An element as HTML, or only what is inside it; with a `base`, cleaned."""
    pieces: list[str] = []
    opened: list[int] = []
    skipped = number - 1  # up to which nothing is written
    for at, text in ((number, None), *tree.nodes(number)):
        if at <= skipped:
            continue
        while opened and (tree.ends[opened[-1]] <= at or (text is not None and opened[-1] != at)):
            pieces.append(_end(tree, opened.pop()))
        if text is not None:
            pieces.append(text if tree.tags[at] in _RAW else _escaped(text))
        elif base is not None and tree.tags[at] in _ACTIVE and at != number:
            skipped = tree.ends[at] - 1
        else:
            pieces.append(_start(tree, at, base))
            if tree.tags[at] not in _VOID:
                opened.append(at)
    pieces += (_end(tree, at) for at in reversed(opened))
    return "".join(pieces[1:-1] if inside else pieces)


def _start(tree: Tree, number: int, base: str | None) -> str:
    element = tree.elements[number]
    attributes = ""
    for name in list(element.attrs):
        value = element.attr(name) or ""
        cleaned = value if base is None else _cleaned(name.lower(), value, base)
        if cleaned is not None:
            attributes += f' {name}="{_escaped(cleaned).replace(chr(34), "&quot;")}"'
    line = "\n" if tree.tags[number] in ("pre", "textarea", "listing") and _begins_a_line(tree, number) else ""
    return f"<{element.tag}{attributes}>{line}"


def _begins_a_line(tree: Tree, number: int) -> bool:
    """Whether the content begins with a line feed: a parser drops the first one."""
    return tree.text(number).startswith("\n")


def _end(tree: Tree, number: int) -> str:
    return f"</{tree.elements[number].tag}>"


def _cleaned(name: str, value: str, base: str) -> str | None:
    """The value of an attribute; None: it is left out."""
    name = name.rpartition(":")[2]
    if name.startswith("on") or name in _DROPPED:
        return None
    if name not in _REFERENCES:
        return value
    try:
        url = urls.parse(value, base)
    except BadUrl:
        return None
    return str(url.href) if url.protocol in _SCHEMES or value.startswith("data:image/") else None


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("\xa0", "&nbsp;").replace("<", "&lt;").replace(">", "&gt;")
