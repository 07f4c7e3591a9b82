"""Registrable domains by a list of our own making: the one that ships has not every kind of rule at any time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.metadata import version

import publicsuffixlist
import pytest
from publicsuffixlist import PublicSuffixList

from weft import urls

# `every` is a suffix by itself, and so is every name under it, but for `free.every`.
RULES = "com\nuk\nco.uk\nhosted.at.cloud.com\nevery\n*.every\n!free.every\n"
CACHED = (urls._suffixes, urls._rules, urls._plain_suffixes, urls._longer_suffixes, urls.domain, urls.suffix)


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = PublicSuffixList(io.BytesIO(RULES.encode()), accept_unknown=False)
    for one in CACHED:
        one.cache_clear()
    kept = urls._suffixes
    rules = urls._rules
    monkeypatch.setattr(urls, "_suffixes", lambda: made)
    monkeypatch.setattr(urls, "_rules", lambda: frozenset(RULES.split()))
    yield
    monkeypatch.setattr(urls, "_suffixes", kept)
    monkeypatch.setattr(urls, "_rules", rules)
    for one in CACHED:
        one.cache_clear()


@pytest.mark.usefixtures("own_rules")
def test_the_quick_way_is_for_suffixes_of_one_label_alone() -> None:
    assert urls._plain_suffixes() == {"com", "uk"}


@pytest.mark.usefixtures("own_rules")
@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("a.b.com", "b.com"),
        ("b.com", "b.com"),
        ("com", "com"),
        ("a.b.uk", "b.uk"),
        ("a.b.co.uk", "b.co.uk"),
        ("x.a.hosted.at.cloud.com", "a.hosted.at.cloud.com"),
        ("x.at.cloud.com", "cloud.com"),
        ("co.uk", "co.uk"),
        ("a.b.every", "a.b.every"),
        ("z.a.b.every", "a.b.every"),
        ("a.free.every", "free.every"),
        ("a.b.unknown", "a.b.unknown"),
    ],
)
def test_both_ways_give_the_same(host: str, domain: str) -> None:
    assert urls.domain(host) == domain
    assert str(urls._suffixes().privatesuffix(host) or host) == domain


@pytest.mark.parametrize(
    ("host", "is_address"),
    [
        ("127.0.0.1", True),
        ("255.255.255.255", True),
        ("::1", True),
        ("127.0.0.256", False),
        ("127.0.1", False),
        ("h1", False),
        ("127.0.0.1.com", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_what_is_an_address(host: str, is_address: bool) -> None:
    assert urls._is_address(host) is is_address


@pytest.mark.usefixtures("own_rules")
@pytest.mark.parametrize(
    ("host", "suffix"),
    [
        ("a.b.com", "com"), ("a.b.co.uk", "co.uk"), ("co.uk", "co.uk"), ("a.b.every", "b.every"),
        ("free.every", "every"), ("a.b.com.", "com"), ("a.unknown", ""), ("127.0.0.1", ""), ("[::1]", ""), ("h1", ""),
    ],
)  # fmt: skip
def test_the_suffix_of_a_host_is_the_longest_that_names_are_given_under(host: str, suffix: str) -> None:
    assert urls.suffix(host) == suffix


@pytest.mark.parametrize("does_tell", [True, False])
def test_the_version_of_the_list_is_known_whether_its_module_tells_it_or_not(
    monkeypatch: pytest.MonkeyPatch, does_tell: bool
) -> None:
    if not does_tell:
        monkeypatch.delattr(publicsuffixlist, "__version__", raising=False)
    assert urls.suffix_list_version() == version("publicsuffixlist")
