"""Who calls, for routes of all kinds: what the gate has found out, and what it allows."""

from __future__ import annotations

import re

from starlette.requests import HTTPConnection

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.gate import Caller
from weft.jobs.api.problems import Refusal
from weft.jobs.errors import TaskUnknown

_TASK_ID = re.compile(r"[0-9a-f]{32}")


def caller_of(request: HTTPConnection) -> Caller:
    """As the gate has found."""
    found = request.scope["caller"]
    assert isinstance(found, Caller)
    return found


def needs(request: HTTPConnection, scope: KeyScope) -> Caller:
    """The caller, who may do this; else a Refusal."""
    caller = caller_of(request)
    if scope not in caller.scopes:
        raise Refusal(403, f"this API key may not do this: it lacks the scope {str(scope)!r}")
    return caller


def asked_task(request: HTTPConnection, scope: KeyScope) -> tuple[str, str]:
    """The id of the task in the path, and the owner whose task it must be; TaskUnknown for what is no id."""
    caller, task_id = needs(request, scope), str(request.path_params["task_id"])
    if not _TASK_ID.fullmatch(task_id):
        raise TaskUnknown(task_id)
    return task_id, caller.owner
