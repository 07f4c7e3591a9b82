"""What rows mean to somebody who wanted pages."""

from __future__ import annotations

import pytest

from weft.config import load
from weft.crawl.reports.causes import meaning_of
from weft.fetch.contract import NOT_TLS
from weft.records import RETRYABLE, Reason

PLAIN = load(environment={}).config


@pytest.mark.parametrize(
    ("status", "error", "cause"),
    [
        (200, "", None),
        (302, "", None),
        (404, "", "http_404"),
        (418, "", "http_418"),
        (429, "retry-after", "retry-after"),
        (500, "truncated", "http_500"),
        (200, "truncated", "truncated"),
        (200, "noindex", "noindex"),
        (0, "robots: Disallow: / (line 2)", "robots"),
        (0, "robots-unreachable: dns: no such name", "dns"),
        (0, "robots-unreachable: HTTP 503", "robots-unreachable"),
        (0, "robots-unreachable", "robots-unreachable"),
        (302, "redirect to scope", "redirect-scope"),
        (302, "too_many_redirects", "too_many_redirects"),
        (0, "something new", "something new"),
    ],
)
def test_the_cause_of_a_row(status: int, error: str, cause: str | None) -> None:
    meaning = meaning_of(status, error, PLAIN)
    assert (meaning and meaning.cause) == cause


@pytest.mark.parametrize("error", sorted({*RETRYABLE, *Reason} - {"other"}))
def test_every_reason_and_error_that_a_seed_can_end_with_has_words(error: str) -> None:
    meaning = meaning_of(0, error, PLAIN)
    of_links_alone = {"duplicate", "extension", "length", "syntax", "scheme", "trap", "depth", "dropped"}
    assert meaning is not None and ("it failed (" in meaning.message) == (error in of_links_alone)


def test_a_login_that_was_given_is_not_asked_for_again() -> None:
    given = load(environment={}, flags={"auth": {"a.test": "me:wrong"}}).config
    meaning = meaning_of(401, "", given)
    assert meaning is not None and "`auth` has none that it accepts" in meaning.message


@pytest.mark.parametrize(
    ("detail", "message", "hint"),
    [
        (": SSL certificate problem: expired", "its TLS certificate was not accepted", "`tls_verify=False`"),
        ("", "its TLS certificate was not accepted", "`tls_verify=False`"),
        (": " + NOT_TLS, "no TLS connection could be made (the port does not speak TLS", "Write http://"),
        (": TLS connect error: handshake failure", "no TLS connection could be made (TLS connect error", ""),
    ],
)
def test_only_a_certificate_is_called_one(detail: str, message: str, hint: str) -> None:
    for error in (f"tls{detail}", f"robots-unreachable: tls{detail}"):
        meaning = meaning_of(0, error, PLAIN)
        assert meaning is not None and meaning.cause == "tls" and meaning.message.startswith(message)
        assert meaning.hint.startswith(hint) and bool(meaning.settings) == hint.startswith("`")
