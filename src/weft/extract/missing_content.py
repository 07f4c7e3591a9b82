"""Guesses why a page that was fetched has nothing to read, from the page alone. Pure.

Three shapes: a shell that a script fills in a browser, a form that asks for a password, and nothing at all. `lack_of`
is asked when a crawl has ended and all that it stored looks so, so a wrong guess must be rare: a page with a few words
of its own is none of them. `is_shell` decides what is rendered: a wrong guess costs a page in a browser, or its
content, so it also takes a page with a menu around an empty box for a shell, if it has next to no words of its own.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice

from weft.extract.kind import BodyKind
from weft.extract.page import ParsedPage
from weft.extract.turbo import Document, Element, nodes

FEW_WORDS = 25  # of "please enable JavaScript to run this app", in any wording
MENU_WORDS = 60  # of a shell that has its menu and footer, and nothing between them
MENU_LINKS = 40
FEW_LINKS = 3
OWN_WORDS = 3  # besides menu and footer, of a shell: a name
MOST_NODES, MOST_DEPTH = 5000, 50
_SCRIPT = re.compile(r"java\s?script", re.IGNORECASE)
_LOADING = re.compile(r"\W*(loading|please wait|one moment|just a moment|redirecting)\b", re.IGNORECASE)
_LOGIN = re.compile(
    r"\b(log[ -]?[io]n|sign[ -]?in|auth|sso|anmeld|connexion|iniciar|accedi|passwor[dt])", re.IGNORECASE
)
# Where frameworks put what they draw, by the names that their starters give.
_ROOTS = (
    "#root, #app, #__next, #__nuxt, #___gatsby, #svelte, #react-root, #q-app, #app-root, #main-app, #application, "
    "app-root, [ng-app], [data-ng-app], [data-reactroot], [data-server-rendered]"
)
# Where content may be put: by what it is, or as a named part of the page's outermost boxes.
_MOUNTS = "main, [role=main], body > *, body > * > [id]"
_BLOCKS = frozenset(("main", "div", "section", "article"))
_AROUND = frozenset(
    ("head", "title", "nav", "header", "footer", "aside", "a", "button", "script", "style", "noscript", "template")
)
_DATA = re.compile(r"json|template|importmap|speculationrules", re.IGNORECASE)
_SEEN = "img, picture, svg, video, audio, canvas, object, embed, iframe, frame"


class Lack(StrEnum):
    """What is missing for a page to be worth reading."""

    JAVASCRIPT = "javascript"  # a browser would fill it
    LOGIN = "login"  # it is behind a form that asks for a password
    NOTHING = "blank"  # neither text nor links nor pictures


def lack_of(page: ParsedPage, *, redirected: bool = False) -> Lack | None:
    """What a page lacks; None for one that has something to read. `redirected`: another URL led here."""
    if page.kind is BodyKind.OTHER:
        return None
    document = page._document
    if document is None:
        return None if page.text.strip() else Lack.NOTHING
    if _is_login(page, document, redirected):
        return Lack.LOGIN
    if page.hrefs:
        return None
    return _without_links(page, document)


def may_be_shell(page: ParsedPage) -> bool:
    """`is_shell` for each page of a crawl: a page with more than a few links is not checked, since that would cost
    time.
    """
    return len(page.hrefs) <= FEW_LINKS and is_shell(page)


def is_shell(page: ParsedPage) -> bool:
    """Whether scripts must draw a page before there is anything to read."""
    document = page.document
    if document is None or len(page.hrefs) > MENU_LINKS or not _runs_scripts(document):
        return False
    words = page.text.split()
    if len(words) > MENU_WORDS:
        return False
    if any(not one.text.strip() and one.select_one(_SEEN) is None for one in document.select(_ROOTS)):
        return True
    if _SCRIPT.search(" ".join(element.text for element in document.find_all("noscript"))):
        return True
    if _has_empty_mount(document):
        text = " ".join(_own_words(document))
        return len(text.split()) <= OWN_WORDS or bool(_LOADING.match(text))
    if len(words) <= FEW_WORDS and len(page.hrefs) <= FEW_LINKS and _is_in_own_elements(document, len(words)):
        return True
    has_nothing = len(words) <= FEW_WORDS and not page.hrefs and document.select_one(_SEEN) is None
    return has_nothing and _without_links(page, document) is Lack.JAVASCRIPT


def _has_empty_mount(document: Document) -> bool:
    """Whether there is a box for content with none in it, by structure: its author chose its name."""
    return any(
        (one.tag in _BLOCKS or "-" in one.tag) and _is_empty(one) and "hidden" not in one.attrs
        for one in document.select(_MOUNTS)
    )


def _is_in_own_elements(document: Document, words: int) -> bool:
    """Whether a page's few words are in elements of its own names: scripts define those, and draw more around them. One
    that came with its shadow tree needs none.
    """
    made = [one for one in document.select("body > *, body > * > :only-child") if "-" in one.tag]
    if not made or any(one.select_one("template[shadowrootmode]") is not None for one in made):
        return False
    return words - sum(len(one.text.split()) for one in made) <= OWN_WORDS


def _is_empty(element: Element) -> bool:
    text = element.text
    return (not text.strip() or bool(_LOADING.match(text))) and element.select_one(_SEEN) is None


def _own_words(document: Document) -> list[str]:
    """The words of a page without its menus, links and footer; of its first nodes alone: it may have any number."""
    body = document.select_one("body")
    pairs = islice(nodes(body), MOST_NODES) if body is not None else ()
    return " ".join(text for parent, text in pairs if text and not _is_around(parent)).split()


def _is_around(element: Element | None) -> bool:
    for _ in range(MOST_DEPTH):
        if element is None or element.tag in _AROUND:
            return element is not None
        above = element.parent
        element = above if isinstance(above, Element) else None
    return False


def _runs_scripts(document: Document) -> bool:
    return any(not _DATA.search(str(one.attrs.get("type") or "")) for one in document.find_all("script"))


def _without_links(page: ParsedPage, document: Document) -> Lack | None:
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


def _is_login(page: ParsedPage, document: Document, redirected: bool) -> bool:
    if not document.select("input[type=password i]"):
        return False
    path = page.url.partition("://")[2].partition("/")[2]
    return redirected or bool(_LOGIN.search(f"{path} {page.title or ''}"))
