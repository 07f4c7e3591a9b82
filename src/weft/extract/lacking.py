"""What a page lacks whose bytes came and which still tells a reader nothing: pure guesses, made from the page alone.

Three shapes: a shell that a script fills in a browser, a form that asks for a password, and nothing at all. They are
asked for when a crawl has ended and all that it stored looks so, so a wrong guess must be rare: a page with a few words
of its own is none of them.
"""

from __future__ import annotations

import re
from enum import StrEnum

from weft.extract.kind import Kind
from weft.extract.page import Page
from weft.extract.turbo import Document

FEW_WORDS = 25  # of "please enable JavaScript to run this app", in any wording
_SCRIPT = re.compile(r"java\s?script", re.IGNORECASE)
_LOADING = re.compile(r"\W*(loading|please wait|one moment|just a moment|redirecting)\b", re.IGNORECASE)
_LOGIN = re.compile(
    r"\b(log[ -]?[io]n|sign[ -]?in|auth|sso|anmeld|connexion|iniciar|accedi|passwor[dt])", re.IGNORECASE
)
_SEEN = "img, picture, svg, video, audio, canvas, object, embed, iframe, frame"


class Lack(StrEnum):
    """What is missing for a page to be worth reading."""

    JAVASCRIPT = "javascript"  # a browser would fill it
    LOGIN = "login"  # it is behind a form that asks for a password
    NOTHING = "blank"  # neither text nor links nor pictures


def lack_of(page: Page, *, redirected: bool = False) -> Lack | None:
    """What a page lacks; None for one that has something to read. `redirected`: another URL led here."""
    if page.kind is Kind.OTHER:
        return None
    document = page._document
    if document is None:
        return None if page.text.strip() else Lack.NOTHING
    if _is_login(page, document, redirected):
        return Lack.LOGIN
    if page.hrefs:
        return None
    return _without_links(page, document)


def _without_links(page: Page, document: Document) -> Lack | None:
    told = " ".join(element.text for element in document.find_all("noscript"))
    words = page.text.split()
    has_script = document.find("script") is not None
    if has_script and len(words) <= FEW_WORDS:
        text = " ".join(words)
        if not words or _LOADING.match(text) or _SCRIPT.search(text) or text == " ".join(told.split()):
            return Lack.JAVASCRIPT
    if words or has_script or document.select(_SEEN):
        return None
    return Lack.NOTHING


def _is_login(page: Page, document: Document, redirected: bool) -> bool:
    if not document.select("input[type=password i]"):
        return False
    path = page.url.partition("://")[2].partition("/")[2]
    return redirected or bool(_LOGIN.search(f"{path} {page.title or ''}"))
