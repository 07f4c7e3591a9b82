"""Texts as numbers, dates and URLs."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.extract.rules import convert


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), ("$1,234.56", 1234.56), ("1.234,56 €", 1234.56), ("1 234,5", 1234.5), ("-5", -5), ("−5 °C", -5),
        ("10–20", 10), ("1,234", 1234), ("1.234", 1.234), ("0,123", 0.123), (",5", 0.5), ("1,234,567", 1234567),
        ("1.234.567", 1234567), ("EUR12", 12), ("1e3", 1000.0), ("٣٤", 34), ("USD 12.", 12), ("3 4", 3),
        ("10 000 000", 10_000_000), ("4.5/5", 4.5), ("5-3", 5), ("a-7", 7), ("9" * 20, 1e20), ("+8", 8),
    ],
)  # fmt: skip
def test_numbers(text: str, number: float) -> None:
    found = convert.number(text)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize("text", ["", "none", "-", "1.5.2", "12,345.6.7", "1e999", "9" * 60, "..", "½"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(convert.NotConverted):
        convert.number(text)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2024-03-12", "2024-03-12"), ("2024-03-12T10:11:12Z", "2024-03-12T10:11:12+00:00"),
        ("2024-03-12 10:11", "2024-03-12T10:11:00"), ("2024/3/2", "2024-03-02"), ("12 March 2024", "2024-03-12"),
        ("Mar. 12, 2024 at 5:06 pm", "2024-03-12T17:06:00"), ("12.03.2024", "2024-03-12"),
        ("12/25/2024", "2024-12-25"), ("25/12/2024", "2024-12-25"), ("5/5/2024", "2024-05-05"),
        ("Tue, 12 Mar 2024 10:11:12 GMT", "2024-03-12T10:11:12+00:00"), ("1st of May 2024", "2024-05-01"),
        ("Tuesday, March 12, 2024", "2024-03-12"), ("Sept 3, 2024", "2024-09-03"), (" 2024-03-12\n", "2024-03-12"),
        ("12:30 am", None), ("3/4/2024", None), ("31 Feb 2024", None), ("20240312", None), ("2024", None), ("", None),
        ("12 Foo 2024", None), ("2024-13-01", None), ("1 May 2024 13:00 pm", None), ("x" * 200, None),
        ("0/0/2024", None),
    ],
)  # fmt: skip
def test_dates(text: str, date: str | None) -> None:
    if date is not None:
        assert convert.iso_date(text) == date
    else:
        with pytest.raises(convert.NotConverted):
            convert.iso_date(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [("/a", "https://e.org/a"), ("b c", "https://e.org/d/b%20c"), ("//h/x", "https://h/x"), ("?q", "https://e.org/d/?q"),
     ("mailto:x", None), ("http://[", None), ("", None), ("javascript:1", None), ("data:text/html,x", None)],
)  # fmt: skip
def test_urls(text: str, url: str | None) -> None:
    if url is not None:
        assert convert.url(text, "https://e.org/d/") == url
    else:
        with pytest.raises(convert.NotConverted):
            convert.url(text, "https://e.org/d/")


@given(st.text(max_size=60))
def test_any_text_converts_or_is_refused(text: str) -> None:
    with suppress(convert.NotConverted):
        assert isinstance(convert.number(text), int | float)
    with suppress(convert.NotConverted):
        assert convert.iso_date(text)
    with suppress(convert.NotConverted):
        assert convert.url(text, "https://e.org/")


@given(st.floats(min_value=-1e9, max_value=1e9).map(lambda one: round(one, 2)))
def test_a_number_is_read_as_it_was_written_in_english_and_in_german(value: float) -> None:
    english = f"{value:,.2f}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert convert.number(f"$ {english}") == convert.number(f"{german} €") == value


@given(st.datetimes(min_value=datetime(1000, 1, 1)).map(lambda one: one.replace(microsecond=0)))
def test_a_date_is_read_as_it_was_written(value: datetime) -> None:
    for form in ("%Y-%m-%dT%H:%M:%S", "%d %B %Y %H:%M:%S", "%B %d, %Y %H:%M:%S", "%d.%m.%Y %H:%M:%S"):
        assert convert.iso_date(value.strftime(form)) == value.isoformat()
