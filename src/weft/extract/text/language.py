"""The language of a page: what it declares, checked against what it is written in.

Declarations may be wrong: a template says `en` and the text is Polish. So a text that is long enough for the detector
(by trigrams) decides, unless the detector does not know the declared language. Codes are those of ISO 639-1.
"""

from __future__ import annotations

import re

from weft.extract.turbo import Document, detect_language

# Below the first length the detector errs too often to overrule a page, below the second to be used at all.
SURE_CHARS = 400
LEAST_CHARS = 25
SURE = 0.9
LIKELY = 0.5
SAMPLE_CHARS = 1500  # of the 300 pages of WCXB none is told otherwise by 3,000, or by 1,000

_KNOWN = dict(
    pair.split(":")
    for pair in (
        "afr:af aka:ak amh:am ara:ar aze:az bel:be ben:bn bul:bg cat:ca ces:cs cmn:zh cym:cy dan:da deu:de ell:el "
        "eng:en epo:eo est:et fin:fi fra:fr guj:gu heb:he hin:hi hrv:hr hun:hu hye:hy ind:id ita:it jav:jv jpn:ja "
        "kan:kn kat:ka khm:km kor:ko lat:la lav:lv lit:lt mal:ml mar:mr mkd:mk mya:my nep:ne nld:nl nob:no ori:or "
        "pan:pa pes:fa pol:pl por:pt ron:ro rus:ru sin:si slk:sk slv:sl sna:sn spa:es srp:sr swe:sv tam:ta tel:te "
        "tgl:tl tha:th tuk:tk tur:tr ukr:uk urd:ur uzb:uz vie:vi yid:yi zul:zu"
    ).split()
)
_CODES = frozenset(_KNOWN.values())
_OLD = {"iw": "he", "in": "id", "ji": "yi", "nb": "no", "nn": "no", "fil": "tl", "cmn": "zh", "mo": "ro", "sh": "sr"}
_TWO_LETTERS = frozenset(  # ISO 639-1
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo "
    "es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka "
    "kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nd ne ng nl "
    "no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw "
    "ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu".split()
)
_TAG = re.compile(r"\s*([A-Za-z]{2,3})(?:[-_,;\s]|$)").match


def language(document: Document | None, text: str) -> str | None:
    """The language of a page with that text; None if it is unknown."""
    declared = _declared(document) if document is not None else None
    if declared is not None and (len(text) < SURE_CHARS or declared not in _CODES):
        return declared
    found = _detected(text, SURE if declared is not None else LIKELY)
    return found or declared or _detected(text, 0.0)  # a guess is better than nothing: pages are filtered by it


def is_code(code: str) -> bool:
    """Whether a page's language may be written so: two letters of ISO 639-1, or three of one that has no two."""
    if len(code) == 3 and code.isascii() and code.isalpha() and code.islower():
        return code not in _KNOWN and code not in _OLD
    return code in _TWO_LETTERS and code not in _OLD


def nearest_code(text: str) -> str | None:
    """The code of a language that is written in another form: `EN`, `en-US`, `eng`, `nb`."""
    match = _TAG(text)
    code = match[1].lower() if match else ""
    code = _KNOWN.get(code) or _OLD.get(code, code)
    return code if is_code(code) else None


def _declared(document: Document) -> str | None:
    """The declared language: in `<html lang>`, else in a Content-Language or an Open Graph locale."""
    root = document.root
    names = [root.attr("lang"), root.attr("xml:lang")] if root is not None else []
    for tag in document.select("meta[http-equiv=content-language i], meta[property='og:locale']"):
        names.append(tag.attr("content"))
    for name in names:
        if name and (match := _TAG(name)):
            code = match[1].lower()
            return _OLD.get(code, code)
    return None


def _detected(text: str, confidence: float) -> str | None:
    """What the text is written in, by its beginning."""
    if len(text) < LEAST_CHARS:
        return None
    code, sureness = detect_language(text[:SAMPLE_CHARS])
    return _KNOWN.get(code or "") if sureness >= confidence else None
