"""Whether a page holds its text back, for consent or for a payment: a guess, made from the page alone."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice

from weft.extract.text.main_text import Content
from weft.extract.turbo import Document

# A page with more text than this displays its content, whatever it asks for besides.
WALL_CHARS = 600
STUB_CHARS = 3000
MAX_SCRIPT_CHARS = 200_000

_CONSENT = re.compile(
    r"\bcookies?\b|\bconsent\b|\bgdpr\b|einwilligung|consentement|consentimiento|consenso|toestemming|zgod[ay]|согласи|同意",
    re.IGNORECASE,
)
_NOT_FREE = re.compile(r'"isAccessibleForFree"\s*:\s*"?false"?', re.IGNORECASE)
_PAYWALL = (
    "[class*=paywall i], [id*=paywall i], [class*=subscriber-only i], [class*=subscribers-only i], "
    "[class*=premium-wall i], [class*=regwall i], [data-paywall]"
)
_PAY = re.compile(
    r"(?:subscribe|sign in|log in|register|become a (?:paid )?(?:subscriber|member))\b.{0,60}"
    r"\b(?:to (?:continue|keep|read|unlock)|for (?:full|unlimited) access)"
    r"|(?:this|the) (?:article|story|content|post) is (?:for|only|reserved)\b.{0,40}"
    r"(?:subscribers|members)|already a (?:subscriber|member)\?|(?:continue|keep) reading (?:with|for)\b"
    r"|weiterlesen mit|jetzt abonnieren und weiterlesen|réservé aux abonnés|contenido exclusivo para suscriptores"
    r"|solo para suscriptores|conteúdo exclusivo para assinantes|riservato agli abbonati|alleen voor abonnees",
    re.IGNORECASE,
)


class Withheld(StrEnum):
    """The barrier between a reader and the text."""

    CONSENT = "consent"  # the page is a question about cookies
    PAYWALL = "paywall"  # the text is cut off for those who have not paid


def withheld(document: Document, content: Content | None, text: str) -> Withheld | None:
    """Why a page withholds its text; None if it does not reveal a reason."""
    if is_wall(content, text):
        return Withheld.CONSENT
    if len(text) <= STUB_CHARS and _is_paid(document):
        return Withheld.PAYWALL
    return None


def is_wall(content: Content | None, text: str) -> bool:
    """Whether most of what a page shows is a question for consent."""
    if len(text) > WALL_CHARS:
        return False
    if content is not None and content.consent_chars > len(text):
        return True
    return len(_CONSENT.findall(text)) >= 2


def _is_paid(document: Document) -> bool:
    for script in islice(document.select("script[type*='ld+json' i]"), 20):
        if _NOT_FREE.search(script.text, 0, MAX_SCRIPT_CHARS):
            return True
    if any(len(element.text.strip()) > 0 for element in islice(document.select(_PAYWALL), 20)):
        return True
    body = document.find("body")
    return body is not None and any(
        _PAY.search(one.text) for one in islice(body.find_all(["p", "h2", "h3", "div"]), 3000) if len(one.text) < 400
    )
