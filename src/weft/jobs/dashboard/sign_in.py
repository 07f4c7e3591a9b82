"""Signing in and out, where the service has API keys."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weft.jobs.api.access.keys import Keyring
from weft.jobs.dashboard.door import SIGN_IN, Visitor, is_tls
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.dashboard.sessions import Sessions


class SignInPage:
    """Handlers of the sign-in page."""

    def __init__(self, keyring: Keyring, sessions: Sessions, pages: DashboardPages) -> None:
        self._keyring = keyring
        self._sessions = sessions
        self._pages = pages

    async def show(self, request: Request) -> Response:
        """Renders the form; visitors who need no key are redirected."""
        visitor = request.scope["caller"]
        where = local_path(request.query_params.get("next", ""))
        if visitor.scopes:
            return RedirectResponse(where, 303, {"Cache-Control": "no-store"})
        return self._sign_in_page(where)

    async def enter(self, request: Request) -> Response:
        """Checks the submitted key, and starts a session."""
        form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
        where = local_path(form.get("next", [""])[-1])
        key = self._keyring.check(form.get("key", [""])[-1].strip())
        if key is None:
            return self._sign_in_page(where, "This key is not valid: it is misspelt, or it was revoked.", 401)
        cookie = self._sessions.begin(key, is_tls=is_tls(request.headers))
        return RedirectResponse(where, 303, {"Cache-Control": "no-store", "Set-Cookie": cookie})

    async def leave(self, request: Request) -> Response:
        """Ends the session."""
        cookie = self._sessions.end(is_tls=is_tls(request.headers))
        return RedirectResponse(SIGN_IN, 303, {"Cache-Control": "no-store", "Set-Cookie": cookie})

    def _sign_in_page(self, where: str, problem: str = "", status: int = 200) -> Response:
        signed_out = Visitor(scopes=frozenset())
        return self._pages.page("sign_in.html", signed_out, {"nav": "", "next": where, "problem": problem}, status)


def local_path(given: str) -> str:
    """A path of this service to redirect to; any URL that could lead to another site becomes the first page."""
    is_local = (
        given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable() and "\\" not in given
    )
    return given if is_local and len(given) < 2000 and not given.startswith(SIGN_IN) else "/"
