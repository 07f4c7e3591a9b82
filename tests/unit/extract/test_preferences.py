"""What pages state about the use of their content is kept as stated, and summed up without softening it."""

from __future__ import annotations

import pytest

from weft.extract.page import extract
from weft.extract.preferences import Preferences, preferences


def stated(html: str = "", *headers: tuple[str, str]) -> Preferences:
    page = extract(f"<html><head>{html}</head><body>x</body></html>".encode(), "https://a.test/", "text/html")
    return preferences(headers, page.document)


def test_a_page_that_says_nothing_has_no_preferences() -> None:
    assert (
        stated('<meta name="robots" content="noindex, nofollow"><meta name="description" content="noai">')
        == Preferences()
    )
    assert preferences([("Content-Type", "text/html")]).ai_training is None


@pytest.mark.parametrize(
    ("html", "header", "found"),
    [
        ('<meta name="robots" content="index, NOAI">', None, (True, False)),
        ('<meta name=" Robots " content="noimageai,noai">', None, (True, True)),
        ('<meta name="weft" content="noai">', None, (True, False)),
        ('<meta name="googlebot" content="noai">', None, (False, False)),
        ("", "noai, noimageai", (True, True)),
        ("", "weft: noai", (True, False)),
        ("", "otherbot: noai", (False, False)),
        ("", "max-snippet: 20, noimageai", (False, True)),
        ('<meta name="robots" content="noaix, nonoai">', None, (False, False)),
    ],
)
def test_robots_directives(html: str, header: str | None, found: tuple[bool, bool]) -> None:
    said = stated(html, *([("X-Robots-Tag", header)] if header else []))
    assert (said.noai, said.noimageai) == found


@pytest.mark.parametrize(
    ("html", "headers", "reserved", "policy"),
    [
        ('<meta name="tdm-reservation" content="1">', [], True, None),
        ('<meta name="TDM-Reservation" content=" 0 ">', [], False, None),
        ("", [("TDM-Reservation", "1"), ("tdm-policy", "https://a.test/p.json")], True, "https://a.test/p.json"),
        ('<meta name="tdm-reservation" content="0">', [("tdm-reservation", "1")], False, None),
        ('<meta name="tdm-reservation" content="yes">', [("tdm-reservation", "1")], True, None),
        (
            '<meta name="tdm-policy" content="https://a.test/meta">',
            [("tdm-policy", "https://a.test/head")],
            None,
            "https://a.test/meta",
        ),
        ("", [("tdm-reservation", "true"), ("tdm-policy", "  ")], None, None),
    ],
)
def test_text_and_data_mining(
    html: str, headers: list[tuple[str, str]], reserved: bool | None, policy: str | None
) -> None:
    said = stated(html, *headers)
    assert (said.tdm_reservation, said.tdm_policy) == (reserved, policy)


def test_dictionaries_are_kept_as_stated_over_all_their_lines() -> None:
    said = stated(
        "", ("Content-Usage", "train-ai=n,  search=y"), ("content-usage", "other=y"), ("Content-Signal", "ai-train=no")
    )
    assert (said.content_usage, said.content_signal) == ("train-ai=n, search=y, other=y", "ai-train=no")


@pytest.mark.parametrize(
    ("name", "value", "training"),
    [
        ("Content-Usage", "train-ai=n", False),
        ("Content-Usage", "TRAIN-AI=Y", True),
        ("Content-Usage", "search=n", None),
        ("Content-Usage", 'train-ai=n;exception="x=y", search=y', False),
        ("Content-Usage", "train-ai=y, train-genai=n", False),
        ("Content-Usage", "train-ai=n, train-ai=y", True),
        ("Content-Usage", "train-ai", None),
        ("Content-Usage", "train-ai=perhaps", None),
        ("Content-Signal", "search=yes, ai-train=no", False),
        ("Content-Signal", "ai-input=no", None),
        ("Content-Signal", "ai-train=yes", True),
        ("TDM-Reservation", "1", False),
        ("TDM-Reservation", "0", None),
        ("X-Robots-Tag", "noai", False),
        ("X-Robots-Tag", "noimageai", None),
        ("Content-Usage", "", None),
        ("Content-Usage", "=;,==,", None),
    ],
)
def test_training_is_summed_up(name: str, value: str, training: bool | None) -> None:
    assert stated("", (name, value)).ai_training is training


def test_one_no_outweighs_any_yes() -> None:
    yes, no = ("Content-Usage", "train-ai=y"), ("Content-Signal", "ai-train=no")
    assert stated("", yes).ai_training is True
    assert stated("", yes, no).ai_training is False
    assert stated('<meta name="robots" content="noai">', yes).ai_training is False
    assert stated('<meta name="tdm-reservation" content="1">', yes).ai_training is False


def test_long_values_are_cut() -> None:
    said = stated("", ("Content-Usage", "a=y," * 10_000), ("tdm-policy", "x" * 10_000))
    assert len(said.content_usage or "") == len(said.tdm_policy or "") == 500
