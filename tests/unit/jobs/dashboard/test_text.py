"""How things are written for people: texts of strangers above all."""

from __future__ import annotations

import pytest

from weft.jobs.dashboard import text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("A title", "A title"),
        ("  two \n\t lines  ", "two lines"),
        ("\u202egnp.exe\u202c", "gnp.exe"),
        ("a\u2066b\u2069c\u200fd\u061ce", "a b c d e"),
        ("nul\x00 bell\x07 esc\x1b[31m", "nul bell esc [31m"),
        ("\ufeffmark", "mark"),
        ("שלום", "שלום"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("z" + "\u0301" * 50 + "algo", "z\u0301\u0301\u0301algo"),
        ("", ""),
    ],
)
def test_a_strangers_text_is_one_line_without_marks_that_turn_it(given: str, expected: str) -> None:
    assert text.one_line(given) == expected


@pytest.mark.parametrize("letter", ["x", " ", "\u202e", "ש", "\u0301", "x "])
def test_a_long_text_is_cut(letter: str) -> None:
    found = text.one_line("<b>" + letter * 100_000, 80)
    assert len(found) <= 80
    assert found.endswith("…")


def test_a_paragraph_keeps_its_lines_and_is_cut() -> None:
    assert text.paragraph("# One\n\n\ttwo\u202e", 100) == "# One\n\n    two"
    assert len(text.paragraph("line\n" * 100_000, 500)) <= 500


def test_a_url_is_shown_as_host_and_rest() -> None:
    assert text.split_url("https://example.com:8000/a/b?c=1") == ("example.com:8000", "/a/b?c=1")
    assert text.split_url("") == ("", "")
    assert len("".join(text.split_url("https://example.com/" + "a" * 5000))) <= text.URL


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", "//evil.example", " http://a.test/"])
def test_only_web_addresses_are_links(url: str) -> None:
    assert text.link(url) == ""
    assert text.link("http://a.test/") == "http://a.test/"


def test_numbers_sizes_and_times() -> None:
    assert [text.decimal(one) for one in (0.0, 0.034, 0.4, 12.34, 7.0, 1234.5)] == [
        "0",
        "0.03",
        "0.4",
        "12.3",
        "7",
        "1,234",
    ]
    assert [text.size(one) for one in (0, 999, 1_400_000, 123_456_789)] == ["0 B", "999 B", "1.4 MB", "123 MB"]
    assert [text.duration(one) for one in (0.0, 0.0002, 0.0067)] == ["0.0 s", "1 ms", "7 ms"]
    assert [text.duration(one) for one in (None, 4.21, 65.2, 3725.0)] == ["–", "4.2 s", "1 min 05 s", "1 h 02 min"]
    assert [text.ago(100.0, now) for now in (90.0, 101.0, 140.0, 400.0, 9000.0)] == [
        "now", "now", "40 s ago", "5 min ago", "2 h ago",
    ]  # fmt: skip
    assert (text.percent(None), text.percent(1.0), text.percent(0.973)) == ("–", "100 %", "97.3 %")
