"""Bytes to text: declared, marked, undeclared and wrongly declared encodings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.extract.charset import PRESCAN_BYTES, decode
from weft.extract.labels import _LABELS, decoder_of, encoding_of

RUSSIAN = "Привет, мир! Это обычный русский текст, по которому видно, в какой кодировке страница."


@pytest.mark.parametrize(
    ("label", "encoding"),
    [
        ("utf8", "utf-8"),
        ("UTF-8", "utf-8"),
        (" latin1 ", "windows-1252"),
        ("ISO-8859-1", "windows-1252"),
        ("us-ascii", "windows-1252"),
        ("iso-8859-9", "windows-1254"),
        ("tis-620", "windows-874"),
        ("gb2312", "gbk"),
        ("Shift-JIS", "shift_jis"),
        ("x-sjis", "shift_jis"),
        ("ks_c_5601-1987", "euc-kr"),
        ("unicode", "utf-16le"),
        ("cp437", "ibm437"),
        ("nonsense", None),
        ("", None),
    ],
)
def test_labels_mean_what_the_web_means_by_them(label: str, encoding: str | None) -> None:
    assert encoding_of(label) == encoding


@pytest.mark.parametrize("encoding", sorted(_LABELS))
def test_every_known_encoding_can_be_decoded(encoding: str) -> None:
    assert isinstance(b"<p>abc\xe4\xf6\x81".decode(decoder_of(encoding), "replace"), str)


def test_a_byte_order_mark_wins_over_the_header() -> None:
    assert decode(b"\xef\xbb\xbf\xc3\xa4", "text/html; charset=latin1") == ("ä", "utf-8", "bom")
    for encoding in ("utf-16le", "utf-16be", "utf-32le", "utf-32be"):
        body = ("\ufeff" + "<p>ä").encode(encoding[:6] + "-" + encoding[6:])
        assert decode(body, "text/html; charset=latin1") == ("<p>ä", encoding, "bom")


def test_the_header_wins_over_the_meta() -> None:
    body = "<meta charset=utf-8>ä".encode("latin-1")
    assert decode(body, "text/html; Charset = 'ISO-8859-1' ; x") == ("<meta charset=utf-8>ä", "windows-1252", "header")


@pytest.mark.parametrize("content_type", [None, "text/html", "text/html; charset=", "text/html; charset=nonsense"])
def test_the_meta_counts_where_the_header_says_nothing(content_type: str | None) -> None:
    body = f"<meta charset=koi8-r>{RUSSIAN}".encode("koi8-r")
    assert decode(body, content_type) == (body.decode("koi8-r"), "koi8-r", "meta")


@pytest.mark.parametrize(
    ("markup", "encoding"),
    [
        ("<meta charset=windows-1251>", "windows-1251"),
        ("<META CHARSET = 'windows-1251' />", "windows-1251"),
        ('<meta/charset="windows-1251">', "windows-1251"),
        ("<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>", "windows-1251"),
        ("<meta content='text/html;charset=windows-1251' http-equiv=content-type>", "windows-1251"),
        ("<meta content='text/html; charset=windows-1251'>", None),
        ("<meta name=x content='charset=windows-1251'>", None),
        ("<!-- <meta charset=windows-1251> --><meta charset=koi8-r>", "koi8-r"),
        ("<p title='<meta charset=windows-1251>'><meta charset=koi8-r>", "koi8-r"),
        ("<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        ("<meta charset=windows-1251 charset=koi8-r>", "windows-1251"),
        ("<meta charset=utf-16>", "utf-8"),
        ("<meta charset=utf-16be>", "utf-8"),
        ("<meta charset=x-user-defined>", "windows-1252"),
        ("<?xml version='1.0' encoding='windows-1251'?>", "windows-1251"),
        ("<?xml version='1.0' encoding='utf-16'?>", "utf-8"),
        ("<metacharset=windows-1251>", None),
    ],
)
def test_the_prescan_reads_declarations_as_browsers_do(markup: str, encoding: str | None) -> None:
    charset, source = decode(markup.encode() + b"<p>plain")[1:]
    assert (charset, source) == ((encoding, "meta") if encoding else ("utf-8", "detected"))


def test_a_declaration_beyond_the_prescan_counts_only_when_the_body_is_not_utf8() -> None:
    late = b" " * PRESCAN_BYTES + b"<meta charset=koi8-r>"
    assert decode(late + "ä".encode())[1:] == ("utf-8", "detected")
    assert decode(late + RUSSIAN.encode("koi8-r"))[1:] == ("koi8-r", "meta")


@pytest.mark.parametrize("body", [b"", b"plain", "ä€😀".encode(), "ä".encode() * 99 + b"\xf0\x9f\x98"])
def test_valid_utf8_is_utf8_also_when_cut_in_a_character(body: bytes) -> None:
    assert decode(body)[1:] == ("utf-8", "detected")


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be", "utf-32le", "utf-32be"])
def test_wide_encodings_are_known_by_their_nuls(encoding: str) -> None:
    body = "<p>ä".encode(encoding[:6] + "-" + encoding[6:])
    assert decode(body) == ("<p>ä", encoding, "detected")
    assert decode(body, "text/html; charset=utf-16") == ("<p>ä", encoding, "header")


SAMPLES = {
    "windows-1252": "Die Straße führt über die Brücke, wo früher die Mühle stand. Ça a été très drôle.",
    "windows-1251": RUSSIAN,
    "koi8-u": RUSSIAN,
    "shift_jis": "日本語のページです。文字コードを自動的に判別できるかどうかを確かめます。",
    "euc-jp": "日本語のページです。文字コードを自動的に判別できるかどうかを確かめます。",
    "iso-2022-jp": "日本語のページです。文字コードを自動的に判別できるかどうかを確かめます。",
    "gbk": "这是一个中文网页,用来检查能不能自动识别它的字符编码。今天天气很好。",
    "big5": "這是一個中文網頁,用來檢查能不能自動識別它的字元編碼。今天天氣很好。",
    "euc-kr": "이것은 한국어 페이지입니다. 문자 인코딩을 자동으로 알아낼 수 있는지 확인합니다.",
    "iso-8859-2": "Příliš žluťoučký kůň úpěl ďábelské ódy. Žádná stránka není bez háčků a čárek, říká učitel.",
    "windows-1250": "Příliš žluťoučký kůň úpěl ďábelské ódy. Žádná stránka není bez háčků a čárek, říká učitel.",
    "windows-1253": "Αυτή είναι μια ελληνική σελίδα, για να δούμε αν αναγνωρίζεται η κωδικοποίηση των χαρακτήρων.",
    "windows-1254": "Bu sayfa Türkçe yazılmıştır; karakter kodlamasının doğru tanınıp tanınmadığını görmek için.",
    "windows-1255": "זהו דף בעברית, כדי לבדוק אם קידוד התווים מזוהה נכון גם בלי הצהרה בכותרת.",
    "windows-1256": "هذه صفحة باللغة العربية، لنرى هل يتم التعرف على ترميز الحروف بشكل صحيح.",
}


@pytest.mark.parametrize(("encoding", "text"), SAMPLES.items())
def test_undeclared_encodings_are_detected_by_their_letters(encoding: str, text: str) -> None:
    html = f"<!doctype html><title>{text}</title><p class=x>{text}</p>"
    python = {"koi8-u": "koi8-r", "iso-8859-8-i": "iso-8859-8"}.get(encoding, encoding)
    assert decode(html.encode(python)) == (html, encoding, "detected")


def test_the_language_of_the_page_or_its_domain_helps_the_detection() -> None:
    short = "<html lang=ru><p>\u0422\u0415\u0421\u0422</p>".encode("windows-1251")
    assert decode(short)[1] == "windows-1251"
    greek = "<p>\u039d\u03b1\u03b9</p>".encode("windows-1253")
    assert decode(greek, None, "https://example.gr/x")[1] in ("windows-1253", "iso-8859-7")


@pytest.mark.parametrize("word", ["naïve", "£5", "Düsseldorf", "déjà vu"])
def test_a_few_letters_beyond_ascii_are_western(word: str) -> None:
    for url in ("", "https://example.com/", "https://10.0.0.1/", "https://localhost:80/"):
        assert decode(f"<p>The word {word}</p>".encode("latin-1"), None, url)[1] == "windows-1252"


def test_a_big_body_is_detected_by_a_part_of_it() -> None:
    for text in (SAMPLES["gbk"] * 3000, (SAMPLES["gbk"] + "\n") * 3000):
        assert decode(text.encode("gbk")) == (text, "gbk", "detected")
    late = "<p>plain</p>" * 9000 + f"<p>{RUSSIAN}</p>"
    assert decode(late.encode("windows-1251"))[1] == "windows-1251"


def test_iso_2022_kr_is_known_by_its_escape() -> None:
    text = SAMPLES["euc-kr"]
    assert decode(text.encode("iso2022_kr")) == (text, "iso-2022-kr", "detected")
    assert decode(b"an \x1b[1mescape\x1b[0m of a terminal")[1] == "utf-8"


def test_bytes_that_are_nothing_fall_back_and_never_raise() -> None:
    assert decode(b"caf\xe9", None, "http://[::1]/")[1] == "windows-1252"
    assert decode(b"\x81\x8d\x8f\x90\x9d")[0]


@pytest.mark.parametrize("encoding", sorted(_LABELS))
def test_whatever_is_declared_decoding_does_not_raise(encoding: str) -> None:
    garbage = bytes(range(256)) * 2
    assert decode(garbage, f"text/html; charset={encoding}").source in ("header", "detected", "meta")


@given(st.binary(max_size=300), st.sampled_from([None, "text/html", "text/html; charset=utf-8", "x; charset=gb18030"]))
def test_no_bytes_raise(body: bytes, content_type: str | None) -> None:
    assert isinstance(decode(body, content_type, "https://a.test/").text, str)
