"""The dashboard of one worker: its routes and what they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, needs
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.access.rates import Rate
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.streams import EventStream, StreamSlots
from weft.jobs.api.worker_metrics import WorkerMetrics
from weft.jobs.dashboard.board import Board
from weft.jobs.dashboard.deliveries import WebhookPages
from weft.jobs.dashboard.door import DashboardAccess
from weft.jobs.dashboard.one_task import TaskPages
from weft.jobs.dashboard.pages import DashboardPages, compressed
from weft.jobs.dashboard.panels import Panel
from weft.jobs.dashboard.service_page import ServicePage
from weft.jobs.dashboard.sessions import Sessions
from weft.jobs.dashboard.sign_in import SignInPage
from weft.jobs.dashboard.site_list import SiteListPage
from weft.jobs.dashboard.task_form import TaskForm
from weft.jobs.dashboard.task_lists import TaskLists
from weft.jobs.reading.hub import Hub, View
from weft.jobs.service import JobService

Endpoint = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """The dashboard's application: its pages behind the access checks of `DashboardAccess`."""

    def __init__(
        self,
        service: JobService,
        settings: ApiSettings,
        keyring: Keyring,
        watcher: WorkerMetrics,
        stream_slots: StreamSlots,
        rate: Rate,
        hub: Hub,
        pages: DashboardPages,
        panels: Sequence[Panel] = (),
    ) -> None:
        self._settings = settings
        self._stream_slots = stream_slots
        self._service = service
        self._board = Board(service, keyring)
        self._hub = hub
        sessions = Sessions(settings.data_dir, keyring)
        self._hooks = WebhookPages(service, self._board, pages)
        self._task = TaskPages(service, self._board, pages, settings, self._hooks)
        self._sites = SiteListPage(service, self._board, pages, rate)
        routes = self._routes(
            pages, TaskLists(service, self._board, pages), TaskForm(service, pages, settings, rate, hub),
            ServicePage(service, self._board, pages, settings, stream_slots, panels),
            SignInPage(keyring, sessions, pages),
        )  # fmt: skip
        self._access = DashboardAccess(
            Router(routes, redirect_slashes=False), pages, settings, keyring, sessions, watcher
        )
        self.owns = self._access.owns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._access(scope, receive, send)

    def _routes(
        self, pages: DashboardPages, lists: TaskLists, ordering: TaskForm, service: ServicePage, signing: SignInPage
    ) -> list[Route]:
        async def static(request: Request) -> Response:
            return pages.static(request)

        one, site = "/tasks/{task_id}", "/sites/{name}"
        get: dict[str, Endpoint] = {
            "/": lists.show, "/new": ordering.show, "/service": service.show, "/sign-in": signing.show,
            "/static/{name}": static, "/live": self._live, one: self._task.show, one + "/pages": self._task.rows,
            one + "/pages/{number}": self._task.page, "/sites": self._sites.show,
            one + "/pages/{number}/{picture}": self._task.picture,
            one + "/results": self._task.results, one + "/live": self._stream_task, one + "/webhook": self._hooks.show,
        }  # fmt: skip
        post: dict[str, Endpoint] = {
            "/new": ordering.send, "/sign-in": signing.enter, "/sign-out": signing.leave,
            one + "/pause": self._task.pause, one + "/resume": self._task.resume, one + "/cancel": self._task.cancel,
            one + "/webhook/replay": self._hooks.replay, site + "/run": self._sites.run,
            site + "/stop": self._sites.stop,
        }  # fmt: skip
        return [
            Route(path, partial(_answer_with, endpoints), methods=list(endpoints))
            for path in dict.fromkeys((*get, *post))
            if (endpoints := {name: of[path] for name, of in (("GET", get), ("POST", post)) if path in of})
        ]

    async def _live(self, request: Request) -> Response:
        """Streams the status of all running tasks, once a second."""
        owner = needs(request, KeyScope.READ).owner
        return self._stream_view(("tasks", owner), "tasks", lambda: self._board.tasks(owner), owner)

    async def _stream_task(self, request: Request) -> Response:
        """Streams the status of one task, once a second."""
        task_id, owner = asked_task(request, KeyScope.READ)
        await self._board.status(task_id, owner)  # raises TaskUnknown if it does not exist or belongs to another key
        return self._stream_view(("task", task_id), "task", lambda: self._task.live(task_id, owner), owner)

    def _stream_view(self, key: tuple[str, str], event: str, make: View, owner: str) -> Response:
        return EventStream(partial(self._hub.view, key, event, make), self._stream_slots, owner, self._settings)


async def _answer_with(endpoints: dict[str, Endpoint], request: Request) -> Response:
    response = await endpoints["GET" if request.method == "HEAD" else request.method](request)
    return compressed(response, request) if type(response) is Response else response
