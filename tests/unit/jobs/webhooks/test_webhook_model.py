"""How a webhook goes on after each attempt, and how deliveries are signed."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
import pytest

from weft.jobs.model import JobProgress, Task, TaskSpec
from weft.jobs.service import ScrapedResult
from weft.jobs.webhooks.forms import LARGEST_BODY, body_of, headers_of
from weft.jobs.webhooks.notification import Notification
from weft.jobs.webhooks.signatures import body_signature, secret_of, signature
from weft.jobs.webhooks.webhook_model import (
    DELAYS_S,
    KEPT_S,
    TRIED_S,
    Attempt,
    Hook,
    HookSpec,
    HookState,
    failed,
    logged,
    succeeded,
)
from weft.scraping import HookEvent, TaskState

HOUR_S = 3600.0


def attempt(at: float, status: int = 500) -> Attempt:
    return Attempt(number=4, event=HookEvent.PAGE, at=at, status=status, error=f"HTTP {status}")


def test_waits_grow_until_a_day_is_over() -> None:
    hook, at, waits = Hook(task="t"), 1000.0, list[float]()
    while (hook := failed(hook, attempt(at), 0.0, None)).state is HookState.OPEN:
        assert hook.next_at is not None
        waits.append(hook.next_at - at)
        at = hook.next_at
    assert tuple(waits[: len(DELAYS_S)]) == DELAYS_S and sum(waits) == TRIED_S
    assert (hook.state, hook.next_at, hook.attempts) == (HookState.GIVEN_UP, None, len(waits) + 1)


def test_a_receiver_may_ask_for_patience_but_not_for_ever() -> None:
    assert failed(Hook(task="t"), attempt(0.0), 60.0, None).next_at == 60.0
    assert failed(Hook(task="t"), attempt(0.0), 1e9, None).next_at == HOUR_S
    assert failed(Hook(task="t"), attempt(0.0), 1.0, None).next_at == DELAYS_S[0]


def test_410_and_the_end_of_the_time_after_a_task_end_a_hook() -> None:
    assert failed(Hook(task="t"), attempt(0.0, 410), 0.0, None).state is HookState.GONE
    assert failed(Hook(task="t"), attempt(KEPT_S), 0.0, 0.0).state is HookState.GIVEN_UP
    assert failed(Hook(task="t"), attempt(KEPT_S - 1), 0.0, 0.0).state is HookState.OPEN


def test_a_success_ends_a_row_of_failures_and_moves_the_cursor() -> None:
    hook = failed(Hook(task="t", cursor=3), attempt(5.0), 0.0, None)
    assert succeeded(hook, 4) == Hook(task="t", cursor=4)
    resent = succeeded(Hook(task="t", cursor=9, resend=(2, 4)), 4)
    assert (resent.cursor, resent.resend) == (9, (2,))
    assert succeeded(Hook(task="t", cursor=9), 4).cursor == 9


def test_a_log_line_remembers_the_first_and_the_last_attempt() -> None:
    line = logged(logged(None, attempt(1.0)), attempt(2.0, 200))
    assert (line.attempts, line.first_at, line.last_at, line.delivered_at, line.status) == (2, 1.0, 2.0, 2.0, 200)
    again = logged(line, attempt(3.0, 503))
    assert (again.attempts, again.delivered_at, again.status) == (3, 2.0, 503)


def test_owners_cannot_sign_for_each_other() -> None:
    mine, yours = secret_of(b"service", "a"), secret_of(b"service", "b")
    assert mine != yours and mine.startswith("whsec_") and mine == secret_of(b"service", "a") != secret_of(b"x", "a")
    assert signature(mine, "i", 1, b"x") != signature(yours, "i", 1, b"x")
    assert len({signature(mine, "i", 1, b"x"), signature(mine, "j", 1, b"x"), signature(mine, "i", 2, b"x")}) == 3
    assert body_signature(mine, b"x") == "sha256=" + hmac.new(mine.encode(), b"x", hashlib.sha256).hexdigest()


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the specification's own libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    found = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(("size", "is_whole"), [(10, True), (LARGEST_BODY, False)])
def test_a_page_that_is_too_large_is_told_without_its_document(size: int, is_whole: bool) -> None:
    spec = TaskSpec(webhook={"url": "http://a.test/"})
    task = Task(id="t", owner="", url="u", url_count=1, spec=spec, created_at=0.0, state=TaskState.RUNNING)
    result = ScrapedResult(
        number=3, url="http://b.test/", status=200, title="", depth=0, fetched_at=0.0, document={"markdown": "x" * size}
    )
    hook_spec = HookSpec(url="http://a.test/", headers={"Webhook-Id": "mine", "X": "y"})
    notification = Notification(task=task, hook_spec=hook_spec, event=HookEvent.PAGE, number=3, at=0.0, result=result)
    body = body_of(notification)
    data = msgspec.json.decode(body)["data"]
    assert (data["url"], "markdown" in data, "omitted" in data) == ("http://b.test/", is_whole, not is_whole)
    headers = dict(headers_of(notification, secret_of(b"s", ""), body, 7))
    assert (headers["webhook-id"], headers["X"], "Webhook-Id" in headers) == ("t-3", "y", False)
    ended = msgspec.structs.replace(task, state=TaskState.PARTIAL, progress=JobProgress(completed=2, failed=1))
    end = Notification(task=ended, hook_spec=hook_spec, event=HookEvent.COMPLETED, number=9, at=0.0)
    assert msgspec.json.decode(body_of(end))["data"]["progress"]["discovered"] == 3
