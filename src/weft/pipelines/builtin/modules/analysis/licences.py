"""Licences: what a manifest or a licence file says, as an SPDX expression, and what kind of licence that is. Pure.

What must stay true: an identifier is either one that SPDX has or none at all; what is not understood stays as it was
stated, judged `unknown`, and is never taken for something permissive.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

PERMISSIVE = "permissive"
WEAK_COPYLEFT = "weak-copyleft"
COPYLEFT = "copyleft"
NETWORK_COPYLEFT = "network-copyleft"
PUBLIC_DOMAIN = "public-domain"
NON_COMMERCIAL = "non-commercial"
PROPRIETARY = "proprietary"
UNKNOWN = "unknown"
NONE = "none"
# From the least to the most that is asked of a user: of `A OR B` one may choose, of `A AND B` both hold.
ORDER = (PUBLIC_DOMAIN, PERMISSIVE, WEAK_COPYLEFT, COPYLEFT, NETWORK_COPYLEFT, NON_COMMERCIAL, PROPRIETARY, UNKNOWN)

_MAX_CHARS = 200  # of an expression: longer ones are texts, not names
_LICENCE_FAMILIES: tuple[tuple[str, str], ...] = (
    (PUBLIC_DOMAIN, r"0BSD|CC0-1\.0|Unlicense|MIT-0|WTFPL|CC-PDDC|blessing"),
    (NON_COMMERCIAL, r"CC-BY-NC.*|PolyForm-Noncommercial.*|Prosperity.*|CC-BY-ND.*"),
    (NETWORK_COPYLEFT, r"AGPL-.*|SSPL-.*|OSL-.*|EUPL-.*|CPAL-.*|RPL-.*"),
    (WEAK_COPYLEFT, r"LGPL-.*|MPL-.*|EPL-.*|CDDL-.*|CPL-.*|MS-RL|APSL-.*|OFL-.*"),
    (COPYLEFT, r"GPL-.*|CC-BY-SA-.*|CECILL-(?!B|C).*|Sleepycat|ODbL-.*|QPL-.*"),
    (PROPRIETARY, r"BUSL-.*|Elastic-.*|PolyForm-.*"),
    (
        PERMISSIVE,
        r"MIT.*|Apache-.*|BSD-.*|ISC|Zlib|BSL-1\.0|Python-2\.0.*|PSF-2\.0|NCSA|PostgreSQL|X11.*|Artistic-2\.0|AFL-.*|"
        r"CC-BY-\d.*|HPND.*|BlueOak-.*|UPL-.*|Unicode-.*|CECILL-B|MulanPSL-.*|W3C|Vim|curl|libpng.*|OpenSSL|PHP-.*|"
        r"Ruby|TCL|Fair|ECL-2\.0|MS-PL|NTP|EDL-1\.0|FTL|ICU|Beerware",
    ),
)
_FAMILY_PATTERNS = tuple((verdict, re.compile(pattern)) for verdict, pattern in _LICENCE_FAMILIES)

# Aliases of an identifier, with everything but letters, digits and + removed.
_ALIASES = {
    **dict.fromkeys(("mitlicense", "themitlicense", "mitlicence", "expat", "mitx11", "themitlicensemit"), "MIT"),
    **dict.fromkeys(
        ("apache", "apache2", "apache20", "apachelicense", "apachelicense2", "apachelicense20", "apachev2", "asl20"),
        "Apache-2.0",
    ),
    **dict.fromkeys(("apachelicenseversion20", "theapachelicenseversion20", "apachesoftwarelicense"), "Apache-2.0"),
    **dict.fromkeys(("bsd", "bsdlicense", "bsd3", "newbsd", "newbsdlicense", "modifiedbsd"), "BSD-3-Clause"),
    **dict.fromkeys(("3clausebsd", "bsd3clauselicense", "bsdnew", "revisedbsd"), "BSD-3-Clause"),
    **dict.fromkeys(("bsd2", "simplifiedbsd", "freebsd", "2clausebsd", "bsd2clauselicense"), "BSD-2-Clause"),
    **dict.fromkeys(("gpl3", "gplv3", "gnugplv3", "gpl30only", "gnugpl3", "gnugeneralpubliclicensev3"), "GPL-3.0-only"),
    **dict.fromkeys(("gnugeneralpubliclicensev3gplv3", "gplversion3"), "GPL-3.0-only"),
    **dict.fromkeys(("gpl3+", "gplv3+", "gpl3orlater", "gplv3orlater", "gnugplv3orlater"), "GPL-3.0-or-later"),
    **dict.fromkeys(("gnugeneralpubliclicensev3orlatergplv3+",), "GPL-3.0-or-later"),
    **dict.fromkeys(("gpl2", "gplv2", "gnugplv2", "gnugeneralpubliclicensev2gplv2", "gplversion2"), "GPL-2.0-only"),
    **dict.fromkeys(("gpl2+", "gplv2+", "gplv2orlater", "gnugeneralpubliclicensev2orlatergplv2+"), "GPL-2.0-or-later"),
    **dict.fromkeys(("lgpl3", "lgplv3", "gnulgplv3", "gnulessergeneralpubliclicensev3lgplv3"), "LGPL-3.0-only"),
    **dict.fromkeys(("lgplv3+", "gnulessergeneralpubliclicensev3orlaterlgplv3+"), "LGPL-3.0-or-later"),
    **dict.fromkeys(("lgpl21", "lgplv21"), "LGPL-2.1-only"),
    **dict.fromkeys(("agpl3", "agplv3", "gnuagplv3", "gnuaffero", "gnuafferogeneralpubliclicensev3"), "AGPL-3.0-only"),
    **dict.fromkeys(("agplv3+", "gnuafferogeneralpubliclicensev3orlateragplv3+"), "AGPL-3.0-or-later"),
    **dict.fromkeys(("mpl", "mpl2", "mplv2", "mozillapubliclicense20", "mozillapubliclicense20mpl20"), "MPL-2.0"),
    **dict.fromkeys(("isclicense", "isclicenseiscl", "isc"), "ISC"),
    **dict.fromkeys(("unlicense", "theunlicense", "theunlicenseunlicense"), "Unlicense"),
    **dict.fromkeys(("cc0", "cc010", "cc010universal"), "CC0-1.0"),
    **dict.fromkeys(("wtfpl", "dowhatthefuckyouwanttopubliclicense"), "WTFPL"),
    **dict.fromkeys(("psf", "pythonsoftwarefoundationlicense", "psfl"), "PSF-2.0"),
    **dict.fromkeys(("zlib", "zliblicense", "zliblibpng"), "Zlib"),
    **dict.fromkeys(("boost", "boostsoftwarelicense10", "boostsoftwarelicense"), "BSL-1.0"),
}
# SPDX has dropped these: a bare version means "only".
_DEPRECATED = re.compile(r"\b((?:A|L)?GPL-\d\.\d)(\+)?(?![\w.+-])")
_ALL_RIGHTS_RESERVED = frozenset(
    {"unlicensed", "proprietary", "commercial", "allrightsreserved", "seelicenseinlicense", "private"}
)

# A licence file is known by phrases that its text has and the texts of its relatives do not; the first that fits.
_LICENCE_PHRASES: tuple[tuple[str, str], ...] = (
    ("AGPL-3.0-only", "gnu affero general public license version 3"),
    ("LGPL-3.0-only", "gnu lesser general public license version 3"),
    ("LGPL-2.1-only", "gnu lesser general public license version 2.1"),
    ("GPL-3.0-only", "gnu general public license version 3"),
    ("GPL-2.0-only", "gnu general public license version 2"),
    ("Apache-2.0", "apache license version 2.0"),
    ("MPL-2.0", "mozilla public license version 2.0"),
    ("EPL-2.0", "eclipse public license - v 2.0"),
    ("Unlicense", "this is free and unencumbered software released into the public domain"),
    ("CC0-1.0", "cc0 1.0 universal"),
    ("BSL-1.0", "boost software license - version 1.0"),
    ("WTFPL", "do what the fuck you want to public license"),
    ("ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is"),
    ("MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software"),
    ("Zlib", "this software is provided 'as-is', without any express or implied warranty"),
)
_BSD_PHRASE = "redistribution and use in source and binary forms, with or without modification, are permitted"
_BSD_3_PHRASES = ("neither the name of", "may be used to endorse or promote products")
_MIT_NOTICE = "the above copyright notice and this permission notice"
_ISC_NOTICE = "provided that the above copyright notice and this permission notice appear in all copies"


def spdx(said: Any) -> str | None:
    """The SPDX expression for what a manifest has under `license`; None if it is not understood."""
    text = stated(said)
    if not text or len(text) > _MAX_CHARS:
        return None
    if (name := _ALIASES.get(_letters_and_digits(text))) is not None:
        return name
    return _find_expression(text)


def stated(said: Any) -> str:
    """The licence that a manifest states, as one text: npm has had objects and lists of them, pyproject tables."""
    if isinstance(said, str):
        return " ".join(said.split())
    if isinstance(said, dict):
        return stated(said.get("type") or said.get("text") or said.get("name"))
    if isinstance(said, list):
        return " OR ".join(text for part in said[:8] if (text := stated(part)))
    return ""


def of_text(text: str) -> str | None:
    """The SPDX identifier of the licence in a LICENSE file; None if its text is not recognised."""
    words = " ".join(re.sub(r"[*#>=_]+", " ", text[:20_000].lower()).replace(",", ", ").split())
    words = words.replace(" ,", ",").replace("license, version", "license version").replace("and/or", "and")
    head = words[:2_000]
    for name, phrase in _LICENCE_PHRASES[:12]:
        if phrase in head:
            return name
    if _BSD_PHRASE in words:
        return "BSD-3-Clause" if all(phrase in words for phrase in _BSD_3_PHRASES) else "BSD-2-Clause"
    for name, phrase in _LICENCE_PHRASES[12:]:
        if phrase in words:
            return _with_or_without_notice(name, words)
    return None


def judged(expression: str | None) -> str:
    """The kind of licence of an SPDX expression: the strictest of parts joined by AND, the freest of a choice."""
    if not expression:
        return UNKNOWN
    return _parse_or(re.findall(r"[()]|[^\s()]+", expression))


def is_owned(said: str) -> bool:
    """Whether a manifest states that all rights are reserved, as npm's UNLICENSED does."""
    return _letters_and_digits(said) in _ALL_RIGHTS_RESERVED


def _parse_or(tokens: list[str]) -> str:
    """Parses `A OR B`, and removes what it has read from the tokens. The expression is known to be valid."""
    verdicts = [_parse_and(tokens)]
    while tokens and tokens[0] == "OR":
        tokens.pop(0)
        verdicts.append(_parse_and(tokens))
    return min(verdicts, key=ORDER.index)


def _parse_and(tokens: list[str]) -> str:
    """Parses `A AND B`, which binds more tightly."""
    verdicts = [_parse_term(tokens)]
    while tokens and tokens[0] == "AND":
        tokens.pop(0)
        verdicts.append(_parse_term(tokens))
    return max(verdicts, key=ORDER.index)


def _parse_term(tokens: list[str]) -> str:
    word = tokens.pop(0)
    if word == "(":
        verdict = _parse_or(tokens)
        tokens.pop(0)
        return verdict
    if tokens[:1] == ["WITH"]:  # an exception permits more, never less: the licence is judged without it
        del tokens[:2]
    return next((verdict for verdict, pattern in _FAMILY_PATTERNS if pattern.fullmatch(word)), UNKNOWN)


@lru_cache(maxsize=1024)
def _find_expression(text: str) -> str | None:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    text = text.replace("/", " OR ") if "/" in text and " " not in text else text
    try:
        expression = str(canonicalize_license_expression(text))
    except (InvalidLicenseExpression, RecursionError, MemoryError, SyntaxError):
        return None
    if "LicenseRef-" in expression:
        return None
    return _DEPRECATED.sub(lambda found: found[1] + ("-or-later" if found[2] else "-only"), expression)


def _with_or_without_notice(name: str, words: str) -> str:
    """The licence by its name and text: MIT-0 and 0BSD are MIT and ISC without the clause that the notice must be
    kept.
    """
    if name == "MIT":
        return "MIT" if _MIT_NOTICE in words else "MIT-0"
    if name == "ISC":
        return "ISC" if _ISC_NOTICE in words else "0BSD"
    return name


def _letters_and_digits(text: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", text.lower())


def agree(manifest: str, file: str) -> bool:
    """Whether a licence file is one of those that a manifest names: the text does not distinguish `only` from
    `or-later`."""
    names = {re.sub(r"-(?:only|or-later)$", "", part) for part in re.findall(r"[^\s()]+", manifest)}
    return re.sub(r"-(?:only|or-later)$", "", file) in names
