"""Writes elements as HTML, without comments; for other people's eyes also without what runs or calls home."""

from __future__ import annotations

from weft import urls
from weft.errors import BadUrl
from weft.extract.turbo import Element, without_comments

_ACTIVE = (
    "script, style, template, noscript, iframe, frame, frameset, object, embed, applet, link, meta, base, input, "
    "button, select, textarea, svg, math, audio, video, canvas, dialog"
)
_REFERENCES = frozenset(("href", "src", "action", "poster", "cite", "data", "background", "longdesc", "formaction"))
_SCHEMES = frozenset(("http:", "https:", "mailto:", "tel:"))
_DROPPED = frozenset(("style", "srcdoc", "ping", "nonce", "integrity", "srcset", "imagesrcset"))


def written(element: Element) -> str:
    """An element as HTML."""
    return without_comments(element).html


def cleaned(element: Element, base: str) -> str:
    """An element as HTML that is safe to display: references absolute; no scripts, styles, controls, event attributes
    and `javascript:`. Of a body, only its content.
    """
    element = without_comments(element)
    element.remove(_ACTIVE)
    for one in (element, *element.select("*")):
        for name in list(one.attrs):
            value = one.attr(name) or ""
            kept = _cleaned(name.lower(), value, base)
            if kept is None:
                del one.attrs[name]
            elif kept != value:
                one.attrs[name] = kept
    return element.inner_html if element.tag == "body" else element.html


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
