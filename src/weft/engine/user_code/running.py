"""A user's code in a running crawl: its calls, and the handling of the requests and items that it returns.

Pure, except for the frontier's notes, which hold the spider's state. Requests of the code are treated as seeds are:
scope, patterns, depth and robots.txt apply, rules about links (extensions, traps) do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from weft import urls
from weft.credentials import HARMLESS
from weft.engine.admission.rules import AdmissionRules
from weft.engine.user_code.calls import (
    STATE,
    Call,
    CallResult,
    Description,
    MadeRequest,
    PageOutput,
    RequestSpec,
    decode_output,
    decode_spec,
    encode,
    encode_output,
    encode_spec,
)
from weft.errors import BadInput, BadUrl
from weft.frontier.contract import Frontier, NotesPart
from weft.records import Found, Lease, Reason, Row, RowOutput

CALLBACKS = "spider_callbacks"
STARTED, STARTED_ALL = "spider_started", "all"
PLAIN_REQUEST = RequestSpec()
_BECOMES_GET = frozenset({301, 302, 303})
Refuse = Callable[[str, str], None]


class DrawnPage(NamedTuple):
    """The parts of a page beside its rendered form."""

    original: bytes  # the response, without its content codings
    screenshot: bytes


class RunningSpider:
    """The user's code of one crawl, on the engine's side."""

    def __init__(self, description: Description, rules: AdmissionRules, notes: NotesPart) -> None:
        self.description = description
        self._callbacks = set(notes.note(CALLBACKS).split())
        self._rules = rules
        self._notes = notes
        self._allowed = frozenset(domain.lower().strip().lstrip(".") for domain in description.allowed_domains)
        self.is_starting = False  # its first requests are still being read

    # ── a request on its way out ───────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def spec_of(lease: Lease) -> RequestSpec:
        """The parts of a lease's request beyond its URL."""
        return decode_spec(lease.request) if lease.request else PLAIN_REQUEST

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def call(
        self,
        kind: str,
        lease: Lease,
        status: int,
        head: bytes,
        fetched_at: float,
        error: str = "",
        detail: str = "",
        drawn: DrawnPage | None = None,
        address: str = "",
    ) -> bytes:
        """The call for an answer, or for a failure. `drawn`: the page in the message was rendered by a browser."""
        spec = self.spec_of(lease)
        if spec.body is not None and not self.description.reads_requests:
            spec = msgspec.structs.replace(spec, body=None)
        led = tuple(lease.about.split()) if lease.hops else ()
        call = Call(kind, spec, lease.url, led, status, head, lease.depth, fetched_at, error, detail, address=address)
        if drawn is not None:
            call.is_rendered, call.original, call.screenshot = True, drawn.original, drawn.screenshot
        return encode(call)

    def keep_state(self, result: CallResult) -> None:
        """Keeps the spider's state if a call has changed it."""
        if result.state is not None:
            self._notes.note(STATE, result.state.decode())

    # ── what comes back ────────────────────────────────────────────────────────────────────────────────────────────

    def requests_of_page(self, lease: Lease, made: Sequence[MadeRequest], refuse: Refuse) -> list[Found]:
        """The requests of a page's call, ready for admission; `refuse` is called for the others."""
        found = []
        for index, one in enumerate(made):
            admitted = self._check_request(one, lease.url, lease.depth + 1, lease.item, f"{lease.item}.{index}", refuse)
            if admitted is not None:
                found.append(admitted)
        return found

    def requests_of_start(self, made: Sequence[MadeRequest], position: int, refuse: Refuse) -> list[Found]:
        """The first requests, ready for admission; `position` is that of the first of them."""
        found = (self._check_request(one, "", 0, 0, f"start.{position + at}", refuse) for at, one in enumerate(made))
        return [one for one in found if one is not None]

    def _check_request(
        self, made: MadeRequest, base: str, depth: int, parent: int, place: str, refuse: Refuse
    ) -> Found | None:
        try:
            url = self._rules.rewritten(urls.join(base, made.url) if base else urls.seed(made.url))
        except BadUrl as bad:
            refuse(made.url, bad.reason)
            return None
        spec = made.spec
        reason = self.refusal(url, spec) or self._rules.refusal(
            url, depth, is_link=made.is_link, included=not made.is_link
        )
        if reason is not None:
            refuse(url, reason)
            return None
        self._note_callback(spec.callback)
        self._note_callback(spec.errback)
        key = place if not made.unique else seen_key_of(request_name(spec), url)
        return Found(url, depth, parent, priority=made.priority, key=key, request=encode_spec(spec))

    def _note_callback(self, name: str) -> None:
        """Notes a callback that queued requests may need: a resume checks that it exists."""
        if name and name not in self._callbacks:
            self._callbacks.add(name)
            self._notes.note(CALLBACKS, " ".join(sorted(self._callbacks)))

    def refusal(self, url: str, spec: RequestSpec) -> Reason | None:
        """Whether a request's URL is beyond the domains that the spider allows."""
        if not self._allowed or spec.offsite:
            return None
        host = urls.host_of(url)
        while host:
            if host in self._allowed:
                return None
            host = host.partition(".")[2]
        return Reason.SCOPE

    def redirect_request(self, lease: Lease, status: int, found: Found) -> Found | None:
        """A redirect's target with its request (RFC 9110 §15.4); None if it would carry a body to another origin.
        Headers that may contain credentials are not sent to another origin either.
        """
        spec = self.spec_of(lease)
        if spec.cookies:  # they are in the jar already
            spec = msgspec.structs.replace(spec, cookies=())
        if not spec.is_plain and (status == 303 or (status in _BECOMES_GET and spec.method == "POST")):
            spec = msgspec.structs.replace(spec, method="GET", body=None, idempotent=True, headers={})
        if not is_same_origin(lease.url, found.url):
            if spec.body is not None:
                return None
            kept = {name: value for name, value in spec.headers.items() if name.lower() in HARMLESS}
            spec = msgspec.structs.replace(spec, headers=kept)
        request = encode_spec(spec) if lease.request else b""
        return msgspec.structs.replace(found, key=f"{lease.item}>{found.hops}", request=request)

    def output_for_row(
        self, lease: Lease, result: CallResult | None, error: str = "", traceback: str = ""
    ) -> RowOutput:
        """What is stored of a page's call, beside the page's row."""
        items = result.items if result is not None else []
        output = PageOutput(
            [msgspec.Raw(item) for item in items],
            result.objects if result is not None else [],
            without_secrets(self.spec_of(lease)) if lease.request else None,
            error or (result.error if result is not None else ""),
            traceback or (result.traceback if result is not None else ""),
        )
        return RowOutput(len(items), encode_output(output))

    @staticmethod
    def request_of(lease: Lease) -> str:
        """The request in the form of `Row.request`."""
        return request_name(RunningSpider.spec_of(lease)) if lease.request else ""


def check_callbacks(frontier: Frontier, description: Description) -> None:
    """Refuses code that lacks a method which queued requests may name."""
    named = frontier.notes.note(CALLBACKS).split()
    if missing := sorted(set(named) - set(description.callbacks)):
        raise BadInput(
            f"{description.title} has no method {missing[0]!r} any more, and requests in the queue name it as their "
            "callback: give it back (it may call another one), or start over with `fresh=True`"
        )


def without_secrets(spec: RequestSpec) -> RequestSpec:
    """A request in the form that is stored: without its body, its cookies and headers that may contain credentials."""
    kept = {name: value for name, value in spec.headers.items() if name.lower() in HARMLESS}
    return msgspec.structs.replace(spec, body=None, headers=kept, cookies=())


def request_name(spec: RequestSpec) -> str:
    """Method and digest of the body; empty for a plain GET."""
    if spec.is_plain:
        return ""
    return f"{spec.method} {sha256(spec.body).hexdigest() if spec.body is not None else ''}".strip()


def seen_key_of(request: str, url: str) -> str:
    """The key of a request in the seen set; empty: its URL."""
    return sha256(f"{request} {url}".encode()).hexdigest()[:32] if request else ""


def found_from_output(row: Row, output: RowOutput | None, *, hops: int = 0) -> Found | None:
    """A stored page's URL in the form in which it was found, with its request; None if the request's body is lost."""
    if row.request:
        return None
    spec = decode_output(output.data).request if output is not None else None
    request = encode_spec(spec) if spec is not None else b""
    return Found(row.url, row.depth, row.parent, hops, request=request)


def is_same_origin(one: str, other: str) -> bool:
    """Whether two URLs have one origin, or the second has the first's host and port over https."""
    first, second = urls.origin_of(one), urls.origin_of(other)
    return first == second or (
        first.startswith("http:") and second == ("https" + first.removeprefix("http")).removesuffix(":443")
    )
