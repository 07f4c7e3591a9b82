"""Requests and results as they are sent between brain and hand: plain JSON values.

Times are ages, never times of a clock: clocks of two machines do not compare. A body is in the result, or beside it
under the request's id; then the result, which is signed, contains its SHA-256.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from weft.config import FetchSection
from weft.credentials import harmless
from weft.records import FetchResult

INLINE_BYTES = 256 * 1024
BATCH = 20  # requests in one task
LATE = "late"  # the error of a request whose task came too late to be begun
# Settings of a crawl that a hand does not get: secrets, which are sent with the requests that need them, and tasks of
# the brain.
_KEPT_HERE = ("auth", "proxies", "proxy_sticky", "proxy_apart", "direct_fallback", "hands", "workers")


class RemoteRequest(Struct, frozen=True, omit_defaults=True):
    """One request of a task."""

    id: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    keep_bytes: int = 0
    filtered: bool = False
    is_first: bool = False
    body: bytes | None = None
    method: str = ""
    timeout_s: float = 0.0  # for the whole transfer; 0: as the settings say


class FetchTask(Struct, frozen=True):
    """Up to BATCH requests, no two of one politeness key. `claims`: the ids, claimed at the broker before a byte is
    sent. After its begin a task has `run_s`; nothing is sent, and no transfer goes on, in the last `margin_s` of it, so
    that a machine that is slow to notice the time is still within it.
    """

    slot: str
    epoch: int
    claims: tuple[str, ...]
    requests: tuple[RemoteRequest, ...]
    section: dict[str, Any]
    run_s: float
    most_bytes: int  # total size of bodies that all hands have on the broker
    is_shared: bool  # whether the brain reads the shared folder, too
    margin_s: float = 0.0


class LargeBody(Struct, frozen=True):
    """A body beside its result."""

    size: int
    sha256: str
    is_shared: bool = False  # in the shared folder, else on the broker


class RemoteResult(Struct, frozen=True, omit_defaults=True):
    """The result of one request, as its hand reports it."""

    id: str
    slot: str
    epoch: int
    hand: str
    status: int
    head: bytes
    error: str | None
    detail: str
    age_s: float  # since its end
    took_s: float
    ip: str
    request_head: bytes
    body: bytes = b""
    large: LargeBody | None = None
    surplus: bool = False
    was_sent: bool = True


def settings_for_hands(section: FetchSection) -> dict[str, Any]:
    """The settings of requests that a hand needs."""
    own = {
        name: getattr(section, name)
        for name in section.__struct_fields__
        if name not in _KEPT_HERE and name[:6] != "render"
    }
    own["headers"] = harmless(section.headers)
    changed = {name: value for name, value in own.items() if value != getattr(FetchSection(), name)}
    names = dict(zip(FetchSection.__struct_fields__, FetchSection.__struct_encode_fields__, strict=True))
    builtins: dict[str, Any] = msgspec.to_builtins({names[name]: value for name, value in changed.items()})
    return builtins


def section_of(settings: dict[str, Any]) -> FetchSection:
    """The settings for the hand's client; msgspec.ValidationError for invalid ones."""
    return msgspec.convert(settings, FetchSection)


def fetch_result(result: RemoteResult, url: str, body: Any, came: float, sent: float) -> FetchResult:
    """A result on the clock of this machine: it arrived at `came`, its request was sent no earlier than `sent`."""
    ended = max(sent, came - max(0.0, result.age_s))
    started = max(sent, ended - max(0.0, result.took_s))
    return FetchResult(
        url, result.status, result.head, body, result.error, result.detail, started, ended, result.ip,
        result.request_head, result.surplus, was_sent=result.was_sent,
    )  # fmt: skip
