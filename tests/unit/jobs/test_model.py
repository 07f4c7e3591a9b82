"""The task model: states, endings, error classes, and the sum that every answer keeps."""

from __future__ import annotations

import itertools

import pytest

from weft.engine.model import end_name
from weft.jobs.crawls import counted
from weft.jobs.model import NEXT, JobProgress, UrlOutcome, ending, error_class, error_text, new_task_id, outcome
from weft.records import Reason
from weft.scraping import TERMINAL, ErrorClass, FinishReason, TaskState

P, F = TaskState.PARTIAL, TaskState.FAILED


def test_a_terminal_state_is_final_and_none_leads_back_to_pending() -> None:
    assert all(not NEXT[state] for state in TERMINAL)
    assert all(TaskState.PENDING not in after for after in NEXT.values())
    assert set(NEXT) == set(TaskState)


def test_discovered_is_the_sum_of_its_parts() -> None:
    progress = JobProgress(completed=1, gone=2, failed=4, refused=8, robots_blocked=3, queued=16, in_flight=32)
    assert progress.discovered == 63
    assert progress.percent(None) == 23.8
    assert JobProgress().percent(None) == 0.0


def test_no_more_is_to_be_done_than_a_limit_of_pages_allows() -> None:
    progress = JobProgress(completed=20, gone=1, failed=2, refused=1, queued=2000)
    assert (progress.within(None), progress.within(40), progress.within(5000)) == (2024, 44, 2024)
    assert progress.within(10) == progress.ended, "pages that were in flight when the limit was reached count"
    assert (progress.percent(None), progress.percent(40), progress.percent(10)) == (1.2, 54.5, 100.0)
    assert JobProgress().percent(20) == 0.0


def test_success_rate_leaves_outcomes_aside() -> None:
    assert JobProgress(completed=3, gone=5, refused=7, failed=1).success_rate == 0.75
    assert JobProgress(gone=5).success_rate is None


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (200, "", None),
        (301, "", None),
        (404, "", ErrorClass.HTTP_4XX),
        (500, "", ErrorClass.HTTP_5XX),
        (503, "retry-after", ErrorClass.HTTP_5XX),
        (429, "retry-after", ErrorClass.HTTP_4XX),
        (0, "timeout", ErrorClass.TIMEOUT),
        (200, "timeout", ErrorClass.TIMEOUT),
        (0, "connect: refused", ErrorClass.CONNECTION),
        (200, "truncated", ErrorClass.CONNECTION),
        (0, "dns", ErrorClass.DNS),
        (0, "tls", ErrorClass.TLS),
        (200, "too_large", ErrorClass.TOO_LARGE),
        (200, "parse_crash", ErrorClass.PARSE),
        (200, "noindex", ErrorClass.ROBOTS),
        (0, "robots: line 3", ErrorClass.ROBOTS),
        (0, "robots-unreachable: dns: the name does not exist", ErrorClass.DNS),
        (0, "robots-unreachable: connect: refused: by the server", ErrorClass.CONNECTION),
        (0, "robots-unreachable: timeout", ErrorClass.TIMEOUT),
        (0, "robots-unreachable: HTTP 503", ErrorClass.HTTP_5XX),
        (0, "robots-unreachable: HTTP 429", ErrorClass.HTTP_4XX),
        (0, "robots-unreachable: breaker at http://a.test/robots.txt", ErrorClass.BLOCKED),
        (0, "robots-unreachable", ErrorClass.BLOCKED),
        (0, "breaker: HTTP 502", ErrorClass.HTTP_5XX),
        (0, "breaker: reset", ErrorClass.CONNECTION),
        (0, "breaker", ErrorClass.BLOCKED),
        (0, "retry-after", ErrorClass.BLOCKED),
        (0, "address: 10.0.0.1", ErrorClass.BLOCKED),
        (0, "who knows", ErrorClass.OTHER),
    ],
)
def test_every_error_has_its_class(status: int, error: str, expected: ErrorClass | None) -> None:
    assert error_class(status, error) is expected


@pytest.mark.parametrize(
    ("status", "error", "name"),
    [
        (200, "", "200"),
        (0, "timeout: 15 s", "0 timeout"),
        (0, "robots: Disallow: / (line 3)", "0 robots"),
        (0, "robots-unreachable: dns: no such name", "0 robots-unreachable: dns"),
        (0, "robots-unreachable: breaker at http://a.test/robots.txt", "0 robots-unreachable: breaker"),
        (0, "breaker: HTTP 502", "0 breaker: HTTP 502"),
        (0, "breaker", "0 breaker"),
    ],
)
def test_an_end_is_counted_with_what_its_class_depends_on(status: int, error: str, name: str) -> None:
    assert end_name(status, error) == name
    assert error_class(status, name.partition(" ")[2]) is error_class(status, error)


def test_a_task_whose_site_cannot_be_reached_has_failed_by_the_class_of_the_cause() -> None:
    progress, classes = counted({"0 robots-unreachable: dns": 1}, queued=0, in_flight=0)
    assert ending(progress, FinishReason.DONE, True) == (F, FinishReason.TOO_MANY_ERRORS)
    assert (progress.failed, progress.refused, classes) == (1, 0, {"dns": 1})


LOST = {Reason.BREAKER, Reason.RETRY_AFTER, Reason.ROBOTS_UNREACHABLE, Reason.BUDGET}


@pytest.mark.parametrize("reason", Reason)
def test_what_was_decided_is_refused_and_what_is_lost_has_failed(reason: Reason) -> None:
    assert outcome(0, str(reason)) is (UrlOutcome.FAILED if reason in LOST else UrlOutcome.REFUSED)


@pytest.mark.parametrize(
    "error",
    [
        "0 breaker", "0 breaker: HTTP 502", "0 retry-after", "503 retry-after", "0 robots-unreachable: connect", "502",
        "404 truncated", "200 decode", "200 wrong_length", "200 too_large", "200 parse_crash", "0 dropped", "0 budget",
        "301 too_many_redirects", "0 timeout",
    ],
)  # fmt: skip
def test_no_task_is_complete_that_has_lost_a_page(error: str) -> None:
    progress, classes = counted({"200": 1, error: 12}, queued=0, in_flight=0)
    assert ending(progress, FinishReason.DONE, True)[0] is P
    assert (progress.success_rate, sum(classes.values())) == (0.0769, 12)


def test_what_gave_no_page_says_why() -> None:
    assert (error_text(404, ""), error_text(0, "dns: x")) == ("HTTP 404", "dns: x")


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (200, "", UrlOutcome.COMPLETED),
        (302, "", None),
        (410, "", UrlOutcome.GONE),
        (403, "", UrlOutcome.FAILED),
        (404, "truncated", UrlOutcome.FAILED),
        (200, "noindex", UrlOutcome.REFUSED),
    ],
)
def test_a_row_has_one_outcome(status: int, error: str, expected: UrlOutcome | None) -> None:
    assert outcome(status, error) is expected


@pytest.mark.parametrize(
    ("progress", "reason", "state", "finish"),
    [
        (JobProgress(completed=3), FinishReason.DONE, TaskState.COMPLETED, FinishReason.DONE),
        (JobProgress(completed=3, gone=2, refused=1, robots_blocked=1), FinishReason.DONE, "COMPLETED", "done"),
        (JobProgress(gone=2), FinishReason.DONE, "COMPLETED", "done"),
        (JobProgress(refused=2, robots_blocked=2), FinishReason.DONE, "COMPLETED", "done"),
        (JobProgress(refused=2), FinishReason.DONE, "FAILED", "refused"),
        (JobProgress(completed=3, failed=1), FinishReason.DONE, P, "done"),
        (JobProgress(completed=3, queued=9), FinishReason.MAX_PAGES, "COMPLETED", "max_pages"),
        (JobProgress(completed=3, queued=9), FinishReason.DONE, P, "done"),
        (JobProgress(failed=1, gone=1), FinishReason.DONE, F, "too_many_errors"),
        (JobProgress(completed=3, queued=1), FinishReason.DEADLINE, P, "deadline"),
        (JobProgress(), FinishReason.DEADLINE, P, "deadline"),
        (JobProgress(completed=3), FinishReason.CANCELLED, "CANCELLED", "cancelled"),
        (JobProgress(), FinishReason.EXPIRED, F, "expired"),
        (JobProgress(completed=1), FinishReason.ERROR, F, "error"),
    ],
)
def test_a_task_ends_by_what_became_of_its_pages(
    progress: JobProgress, reason: FinishReason, state: str, finish: str
) -> None:
    assert ending(progress, reason, True) == (state, finish)
    strict = ending(progress, reason, False)
    assert strict == (F if state == P else state, finish)


def test_every_ending_is_a_step_that_a_running_task_may_take() -> None:
    counts = itertools.product((0, 1), repeat=4)
    for completed, gone, failed, refused in counts:
        progress = JobProgress(completed=completed, gone=gone, failed=failed, refused=refused)
        for reason, ok in itertools.product(FinishReason, (True, False)):
            assert ending(progress, reason, ok)[0] in NEXT[TaskState.RUNNING]


def test_ids_are_long_and_differ() -> None:
    assert len({new_task_id() for _ in range(100)}) == 100
    assert len(new_task_id()) == 32
