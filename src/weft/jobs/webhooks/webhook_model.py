"""Webhooks: their receiver and events, the progress of each, and the result of each delivery. No I/O.

Events have the numbers of their task's event stream: 0 is its start, a page has the number of its row, the end has the
task's last one. So a hook is a cursor over stored data, and an event's id and body are the same whenever they are made,
also after a kill.

    OPEN ──► DONE       everything was delivered, and the task has ended
      │ └──► GONE       the receiver has answered 410
      └────► GIVEN_UP   it has failed for a day
    DONE, GONE, GIVEN_UP ──► OPEN by a replay
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from weft.jobs.model import Task
from weft.scraping import HookEvent, TaskState, WebhookOrder

NOTHING = -1  # the cursor of a hook that has delivered nothing
STARTED = 0  # the number of a task's start
# The cursor after a task's end. The end's own number will not do: the engine's last event has it, and the cursor may
# pass it before the store knows that the task has ended.
END = 1 << 62
MOST_METADATA = 16 * 1024  # The limit in bytes.
DEEPEST_METADATA = 32
_HOUR_S = 3600.0
# After each consecutive failure; the last one is repeated.
DELAYS_S = (5.0, 30.0, 120.0, 600.0, 1800.0, _HOUR_S, 2 * _HOUR_S, 4 * _HOUR_S)
TRIED_S = 24 * _HOUR_S  # how long one delivery is retried
KEPT_S = 72 * _HOUR_S  # How long after its task's end a hook is closed, delivered or not.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Headers that the connection or the signature depends on: set by us alone.
_RESERVED_HEADERS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "expect", "te", "trailer", "upgrade"}
)


EVERY = tuple(HookEvent)
ENDS = {
    TaskState.COMPLETED: HookEvent.COMPLETED,
    TaskState.PARTIAL: HookEvent.COMPLETED,
    TaskState.FAILED: HookEvent.FAILED,
    TaskState.CANCELLED: HookEvent.CANCELLED,
}


class HookState(StrEnum):
    """The state of a hook."""

    OPEN = "open"
    DONE = "done"
    GONE = "gone"
    GIVEN_UP = "given_up"


class HookSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The webhook that a caller has submitted, stored as `TaskSpec.webhook`. `headers` may hold secrets: never display
    them."""

    url: str
    events: tuple[HookEvent, ...] = EVERY
    headers: dict[str, str] = {}
    metadata: dict[str, Any] = {}  # returned in every body
    form: str = "weft"  # the format of bodies: see forms.py

    @classmethod
    def of(cls, webhook: WebhookOrder, url: str, form: str = "weft") -> HookSpec:
        """The webhook to store; `url` is its URL in canonical form."""
        events = tuple(dict.fromkeys(webhook.events))
        events = EVERY if events == EVERY else events  # the default, which is not stored
        return cls(url=url, events=events, headers=webhook.headers, metadata=webhook.metadata, form=form)


class Hook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The delivery progress of a task's webhook."""

    task: str
    cursor: int = NOTHING  # number of the last event that was delivered or not wanted
    resend: tuple[int, ...] = ()  # numbers to be delivered again, before the events after the cursor
    state: HookState = HookState.OPEN
    attempts: int = 0  # consecutive failed attempts
    failing_since: float | None = None
    next_at: float | None = None  # time of the next attempt, while it fails
    last_error: str = ""
    version: int = 0  # incremented by every replay: makes what a dispatcher has read outdated


class Attempt(Struct, frozen=True, kw_only=True):
    """One request to a receiver, and its result."""

    number: int
    event: HookEvent
    at: float
    status: int = 0  # 0: no answer
    error: str = ""

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver has accepted it."""
        return 200 <= self.status < 300


class Delivery(Struct, frozen=True, kw_only=True):
    """The result of one event: a line of the delivery log."""

    number: int
    event: HookEvent
    attempts: int
    first_at: float
    last_at: float
    delivered_at: float | None  # the last time, if it was delivered several times
    status: int  # of the last attempt
    error: str


def problem_of_webhook(webhook: WebhookOrder) -> tuple[str, str] | None:
    """The field and the problem of a webhook whose types were checked; None if it is valid."""
    if wrong := _problem_of_headers(webhook.headers):
        return "webhook.headers", wrong
    try:
        size = len(msgspec.msgpack.encode(webhook.metadata))
    except OverflowError:
        return "webhook.metadata", "whole numbers must fit into 64 bits"
    if size > MOST_METADATA:
        return "webhook.metadata", f"at most {MOST_METADATA:,} bytes"
    if not _is_flat(webhook.metadata, DEEPEST_METADATA):
        return "webhook.metadata", f"is nested more than {DEEPEST_METADATA} deep"
    return None


def _is_flat(value: object, depth: int) -> bool:
    """Whether lists and objects in a value are nested at most `depth` deep."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_flat(one, depth - 1) for one in inner)


def _problem_of_headers(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED_HEADERS or name.lower().startswith("webhook-"):
            return f"{name[:100]!r} cannot be sent"
        if not _HEADER_VALUE.fullmatch(value):
            return f"the value of {name!r} cannot be sent"
    return ""


def hook_spec_of(task: Task) -> HookSpec | None:
    """The webhook that a task was submitted with."""
    return None if task.spec.webhook is None else msgspec.convert(task.spec.webhook, HookSpec)


def event_id(task_id: str, number: int) -> str:
    """The id of an event: the same for every attempt."""
    return f"{task_id}-{number}"


def end_number(task: Task) -> int:
    """The number of a terminal task's end; 1 if it never ran."""
    return max(1, task.last_number)


def logged(before: Delivery | None, attempt: Attempt) -> Delivery:
    """The log's line after one more attempt."""
    delivered_at = attempt.at if attempt.is_delivered else before.delivered_at if before else None
    return Delivery(
        number=attempt.number, event=attempt.event, attempts=1 + (before.attempts if before else 0),
        first_at=before.first_at if before else attempt.at, last_at=attempt.at, delivered_at=delivered_at,
        status=attempt.status, error=attempt.error,
    )  # fmt: skip


def succeeded(hook: Hook, number: int) -> Hook:
    """The hook after an event that was delivered, or is not wanted."""
    done = {"attempts": 0, "failing_since": None, "next_at": None, "last_error": ""}
    if number in hook.resend:
        return msgspec.structs.replace(hook, resend=tuple(one for one in hook.resend if one != number), **done)
    return msgspec.structs.replace(hook, cursor=max(hook.cursor, number), **done)


def failed(hook: Hook, attempt: Attempt, retry_after_s: float, ended_at: float | None) -> Hook:
    """The hook after a failed attempt: with its next attempt, or given up.

    `ended_at`: the end of its task. The receiver's Retry-After is respected up to an hour.
    """
    at = attempt.at
    since = hook.failing_since if hook.failing_since is not None else at
    wait_s = max(DELAYS_S[min(hook.attempts, len(DELAYS_S) - 1)], min(retry_after_s, _HOUR_S))
    state = HookState.OPEN
    if attempt.status == 410:
        state = HookState.GONE
    elif at - since >= TRIED_S or (ended_at is not None and at - ended_at >= KEPT_S):
        state = HookState.GIVEN_UP
    next_at = min(at + wait_s, since + TRIED_S) if state is HookState.OPEN else None
    return msgspec.structs.replace(
        hook, state=state, attempts=hook.attempts + 1, failing_since=since, next_at=next_at, last_error=attempt.error
    )
