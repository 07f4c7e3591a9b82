"""Loaded by schemathesis (see test_service.py): every other right case is about a task that there is, or about a page.

Made from the document alone, nearly all of them would be refused: it cannot say which tasks and sites exist.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import schemathesis

_TASKS = os.environ["SCHEMATHESIS_TASKS"].split()
_SITE = os.environ["SCHEMATHESIS_SITE"]
_NOT_ANY_TEXT = ("extract", "include_tags", "exclude_tags", "include", "exclude", "webhook")  # a selector is no text
_numbers = count()


@schemathesis.hook  # type: ignore[untyped-decorator, unused-ignore]
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """A case that was made wrong stays wrong, or it would be taken for one that is accepted."""
    number = next(_numbers)
    if number % 2 or (case.meta is not None and case.meta.generation.mode.is_negative):
        return
    if "task_id" in (case.path_parameters or {}) and case.path_parameters["task_id"] not in _TASKS:
        case.path_parameters["task_id"] = _TASKS[number // 2 % len(_TASKS)]
    if isinstance(case.body, dict) and "url" in case.body:
        kept = {name: value for name, value in case.body.items() if name not in _NOT_ANY_TEXT}
        case.body = {**kept, "url": f"{_SITE}/alone/{number}"}
