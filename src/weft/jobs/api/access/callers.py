"""Access checks for route handlers: who the caller is, and whether its key grants a scope."""

from __future__ import annotations

import re

from starlette.requests import HTTPConnection

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.gate import Caller
from weft.jobs.api.problems import Refusal
from weft.jobs.errors import TaskUnknown

_TASK_ID = re.compile(r"[0-9a-f]{32}")


def caller_of(request: HTTPConnection) -> Caller:
    """The caller, as the gate has stored it in the request's scope."""
    caller = request.scope["caller"]
    assert isinstance(caller, Caller)
    return caller


def needs(request: HTTPConnection, scope: KeyScope) -> Caller:
    """The caller, if its key grants `scope`; raises Refusal (403) otherwise."""
    caller = caller_of(request)
    if scope not in caller.scopes:
        raise Refusal(403, f"this API key may not do this: it lacks the scope {str(scope)!r}")
    return caller


def asked_task(request: HTTPConnection, scope: KeyScope) -> tuple[str, str]:
    """The task id in the path, and the owner that the task must have; raises TaskUnknown for an invalid id."""
    caller, task_id = needs(request, scope), str(request.path_params["task_id"])
    if not _TASK_ID.fullmatch(task_id):
        raise TaskUnknown(task_id)
    return task_id, caller.owner
