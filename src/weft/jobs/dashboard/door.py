"""Access checks for every request to the dashboard: who the visitor is, and which page sent the request.

The rules are those of the API (`api/gate.py`), for browsers: without keys only loopback names are accepted as hosts;
with keys a cookie identifies the visitor, and one without it is sent to the sign-in page. Any site's page can send a
form, so a request that changes something must come from one of our own pages, as the browser's Origin or
Sec-Fetch-Site says.

Every answer carries a content security policy that allows scripts and styles of this origin alone, none of them inline:
text of scraped pages cannot become code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.jobs.api.access.gate import (
    SAFE_HEADERS,
    Caller,
    GatedResponse,
    body_of,
    check_origin,
    guarded,
    headers_of,
    replay,
)
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.problems import Refusal
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.worker_metrics import WorkerMetrics
from weft.jobs.dashboard.sessions import Sessions

if TYPE_CHECKING:  # import cycle: the pages know visitors
    from weft.jobs.dashboard.pages import DashboardPages

FORM = "application/x-www-form-urlencoded"
SIGN_IN = "/sign-in"
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types weft"
)
_HEADERS = (
    *SAFE_HEADERS,
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    # With `no-referrer` a browser would also send `Origin: null` with its own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_DASHBOARD_PATHS = frozenset({"", "tasks", "new", "sites", "service", "live", "sign-in", "sign-out", "static"})
_OPEN_DASHBOARD_PATHS = frozenset({"sign-in", "static"})


class Visitor(Caller, frozen=True):
    """A caller in a browser, with the name of the key that they have signed in with."""

    name: str = ""


class DashboardAccess:
    """ASGI middleware: checks access, then calls the dashboard's routes."""

    def __init__(
        self,
        app: ASGIApp,
        errors: DashboardPages,
        settings: ApiSettings,
        keyring: Keyring,
        sessions: Sessions,
        watcher: WorkerMetrics,
    ) -> None:
        self._app = app
        self._errors = errors
        self._settings = settings
        self._keyring = keyring
        self._sessions = sessions
        self._watcher = watcher

    @staticmethod
    def owns(path: str) -> bool:
        """Whether a path belongs to the dashboard."""
        return _first_path_segment(path) in _DASHBOARD_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        answer = GatedResponse(send, _HEADERS)
        await guarded(
            self._check_and_call(scope, receive, answer), scope, answer, self._watcher,
            lambda refusal: self._errors.error(refusal, scope.get("caller"))(scope, receive, answer), "page",
        )  # fmt: skip

    async def _check_and_call(self, scope: Scope, receive: Receive, answer: GatedResponse) -> None:
        headers = headers_of(scope)
        visitor = self._find_visitor(scope, headers)
        if visitor is None:
            await self._redirect_to_sign_in(scope, headers)(scope, receive, answer)
            return
        scope["caller"] = visitor
        if scope["method"] not in ("GET", "HEAD"):
            check_own_page(headers)
            receive = replay(await body_of(headers, receive, self._settings, FORM))
        await self._app(scope, receive, answer)

    def _find_visitor(self, scope: Scope, headers: Mapping[str, str]) -> Visitor | None:
        """The visitor who sent a request; None if they must sign in first."""
        if self._keyring.is_empty:
            check_origin(scope["method"], headers)
            return Visitor()
        key = self._sessions.key_of(_cookie_header(scope))
        if key is not None:
            return Visitor(key.id, frozenset(key.scopes), key.name)
        return Visitor(scopes=frozenset()) if _first_path_segment(scope["path"]) in _OPEN_DASHBOARD_PATHS else None

    @staticmethod
    def _redirect_to_sign_in(scope: Scope, headers: Mapping[str, str]) -> Response:
        if scope["method"] != "GET" or headers.get("accept", "").startswith("text/event-stream"):
            raise Refusal(401, "you are not signed in, or no longer: sign in, and try again")
        path = scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
        where = SIGN_IN if path == "/" else f"{SIGN_IN}?next={quote(path, safe='/')}"
        return RedirectResponse(where, 303, {"Cache-Control": "no-store"})


def check_own_page(headers: Mapping[str, str]) -> None:
    """Refuses a form that was not sent by a page of this service; browsers send its origin with every form."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin", "none"):
        raise Refusal.of_field("Sec-Fetch-Site", "another site's page made this request: it is refused", 403)
    if origin is not None:
        parts = urlsplit(origin.lower())
        if parts.scheme not in ("http", "https") or parts.netloc != headers.get("host", "").lower():
            raise Refusal.of_field("Origin", "is another site's: its pages may not use this service", 403)
    elif site != "same-origin":
        raise Refusal.of_field("Origin", "is missing: a browser sends it with every form", 403)


def is_tls(headers: Mapping[str, str]) -> bool:
    """Whether the browser uses TLS, by the headers: a reverse proxy may have terminated it."""
    return headers.get("origin", "").lower().startswith("https://")


def _cookie_header(scope: Scope) -> str:
    return ";".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")


def _first_path_segment(path: str) -> str:
    return path[1:].partition("/")[0]
