"""The names by which pages call character encodings, and the encoding that each one means.

Owns the label table of the WHATWG Encoding Standard, under which `latin1` and `ascii` are windows-1252, because that
is what pages mean by them. Encodings the standard leaves out, but Python decodes and old pages use, come after it.

Invariant: `encoding_of` has every label of the standard, ignores case and surrounding whitespace, and never returns an
encoding that `decoder_of` cannot decode.
"""

from __future__ import annotations

from functools import lru_cache

from weft.extract.turbo import register_decoders

# encoding -> its labels besides its own name
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8",
    "ibm866": "866 cp866 csibm866",
    "iso-8859-2": "csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso-8859-3": "csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso-8859-4": "csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso-8859-5": "csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso-8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i "
    "iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso-8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso-8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
    "iso_8859-8:1988 visual",
    "iso-8859-8-i": "csiso88598i logical",
    "iso-8859-10": "csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso-8859-13": "iso8859-13 iso885913",
    "iso-8859-14": "iso8859-14 iso885914",
    "iso-8859-15": "csisolatin9 iso8859-15 iso885915 iso_8859-15 l9",
    "iso-8859-16": "",
    "koi8-r": "cskoi8r koi koi8 koi8_r",
    "koi8-u": "koi8-ru",
    "macintosh": "csmacintosh mac x-mac-roman",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "windows-1250": "cp1250 x-cp1250",
    "windows-1251": "cp1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii x-cp1252",
    "windows-1253": "cp1253 x-cp1253",
    "windows-1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
    "x-cp1254",
    "windows-1255": "cp1255 x-cp1255",
    "windows-1256": "cp1256 x-cp1256",
    "windows-1257": "cp1257 x-cp1257",
    "windows-1258": "cp1258 x-cp1258",
    "x-mac-cyrillic": "x-mac-ukrainian",
    "gbk": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk",
    "gb18030": "",
    "big5": "big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese x-euc-jp",
    "iso-2022-jp": "csiso2022jp",
    "shift_jis": "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis",
    "euc-kr": "cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
    "utf-16be": "unicodefffe",
    "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16",
    "x-user-defined": "",
    # Not in the standard, or refused there for the safety of scripts, which are not run here.
    "iso-2022-kr": "csiso2022kr",
    "hz-gb-2312": "hz",
    "utf-32be": "ucs-4be",
    "utf-32le": "utf-32 ucs-4 ucs-4le",
    "utf-7": "unicode-1-1-utf-7",
    "johab": "cp1361 ms1361",
    "ibm437": "cp437 437",
    "ibm850": "cp850 850",
    "ibm852": "cp852 852",
    "ibm855": "cp855 855",
    "ibm862": "cp862 862",
    "ibm864": "cp864 864",
    "koi8-t": "",
    "ptcp154": "csptcp154 pt154 cp154 cyrillic-asian",
    "x-mac-centraleurroman": "x-mac-ce maccentraleurope",
    "x-mac-greek": "",
    "x-mac-turkish": "",
}

# Where the WHATWG decoder is not the registered `whatwg-*` codec of the same name: Python's codec.
_PYTHON = {
    "utf-8": "utf-8",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
    "utf-7": "utf-7",
    "iso-2022-kr": "iso2022_kr",
    "hz-gb-2312": "hz",
    "johab": "johab",
    "ibm437": "cp437",
    "ibm850": "cp850",
    "ibm852": "cp852",
    "ibm855": "cp855",
    "ibm862": "cp862",
    "ibm864": "cp864",
    "koi8-t": "koi8_t",
    "ptcp154": "ptcp154",
    "x-mac-centraleurroman": "mac_latin2",
    "x-mac-greek": "mac_greek",
    "x-mac-turkish": "mac_turkish",
}

_ENCODINGS = {label: name for name, labels in _LABELS.items() for label in (name, *labels.split())}


@lru_cache(maxsize=1024)
def encoding_of(label: str) -> str | None:
    """The encoding a label means, lower-case; None for an unknown label."""
    return _ENCODINGS.get(label.strip("\t\n\f\r ").lower())


@lru_cache(maxsize=128)
def decoder_of(encoding: str) -> str:
    """The name of the Python codec that decodes an encoding as the standard says."""
    if encoding in _PYTHON:
        return _PYTHON[encoding]
    register_decoders()
    return "whatwg-" + encoding
