"""What a transfer's result means, for every status and every error that there is."""

from __future__ import annotations

import pytest

from weft.engine.loop.fetcher.verdict import VerdictKind, backoff_s, failure_of, kind_of, site_health
from weft.records import RETRYABLE, FetchResult


def result(status: int = 0, error: str | None = None) -> FetchResult:
    return FetchResult("http://h.test/", status, b"", b"", error, "", 0.0, 0.0, "127.0.0.1", b"")


def expected(status: int) -> VerdictKind:
    if 200 <= status <= 299:
        return VerdictKind.PAGE
    if status in (301, 302, 303, 307, 308):
        return VerdictKind.REDIRECT
    if status in (429, 503):
        return VerdictKind.SLOW_DOWN
    return VerdictKind.RETRY if status == 408 or status >= 500 else VerdictKind.ANSWER


def test_every_status_has_its_kind() -> None:
    assert {status: kind_of(result(status)) for status in range(100, 600)} == {
        status: expected(status) for status in range(100, 600)
    }


@pytest.mark.parametrize("error", sorted(RETRYABLE))
def test_what_may_succeed_later_is_tried_again_whatever_its_status(error: str) -> None:
    assert kind_of(result(200, error)) is kind_of(result(0, error)) is VerdictKind.RETRY


@pytest.mark.parametrize("error", ["tls", "too_large", "headers_too_large", "address"])
def test_what_stays_as_it_is_fails(error: str) -> None:
    assert kind_of(result(0, error)) is VerdictKind.FAILED


def test_a_connection_that_had_ended_is_nobodys_failure() -> None:
    assert kind_of(result(0, "stale")) is VerdictKind.AGAIN
    assert site_health(result(0, "stale")) is None


def test_a_site_is_ill_by_its_gateway_and_its_connections_alone() -> None:
    ill = {status for status in range(100, 600) if site_health(result(status)) is False}
    assert ill == {502, 503, 504}
    assert {status for status in range(100, 600) if site_health(result(status)) is None} == {429}
    for error in ("timeout", "connect", "dns", "reset", "tls"):
        assert site_health(result(200, error)) is False, "an error tells more than the status before it"
    for error in ("truncated", "protocol", "other", "too_large", "address"):
        assert site_health(result(503, error)) is None


def test_failures_are_counted_by_error_or_by_class_of_status() -> None:
    assert failure_of(503, "timeout") == "timeout"
    assert {status: failure_of(status, "") for status in (200, 399, 400, 404, 499, 500, 599)} == {
        200: "", 399: "", 400: "http_4xx", 404: "http_4xx", 499: "http_4xx", 500: "http_5xx", 599: "http_5xx",
    }  # fmt: skip


def test_the_wait_doubles_to_a_minute_and_is_jittered_by_half() -> None:
    assert [backoff_s(1.0, attempt, 1.0) for attempt in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff_s(2.0, 1, 0.0) == 2.0
    assert backoff_s(2.0, 1, 0.5) == 3.0
