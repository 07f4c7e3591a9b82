"""Loaded by schemathesis (see test_service.py): every other right case is about a task, a site or a page that there is.

Made from the document alone, nearly all of them would be refused: it cannot say which tasks and sites exist.
"""

from __future__ import annotations

import os
import re
from itertools import count
from typing import Any

import schemathesis

_TASKS = os.environ["SCHEMATHESIS_TASKS"].split()
_SITE = os.environ["SCHEMATHESIS_SITE"]
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SAVED = "saved"  # a site that the test has added
# A selector is no text, and a dependency that is not there is refused.
_NOT_ANY_TEXT = (
    "extract", "include_tags", "exclude_tags", "include", "exclude", "webhook", "formats", "proxies", "schedule",
    "timezone", "depends_on",
)  # fmt: skip
_numbers = count()


@schemathesis.hook  # type: ignore[untyped-decorator, unused-ignore]
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """A case that was made wrong stays wrong, or it would be taken for one that is accepted."""
    number = next(_numbers)
    if number % 2 or (case.meta is not None and case.meta.generation.mode.is_negative):
        return
    if "task_id" in (case.path_parameters or {}) and case.path_parameters["task_id"] not in _TASKS:
        case.path_parameters["task_id"] = _TASKS[number // 2 % len(_TASKS)]
    if "name" in (case.path_parameters or {}) and not _NAME.fullmatch(str(case.path_parameters["name"])):
        case.path_parameters["name"] = _SAVED  # others are names of sites that it has added
    if isinstance(case.body, dict):
        kept = {name: value for name, value in case.body.items() if name not in _NOT_ANY_TEXT}
        if "url" in kept:
            case.body = {**kept, "url": f"{_SITE}/alone/{number}"}
        elif "start_urls" in kept:
            case.body = {**kept, "start_urls": [f"{_SITE}/alone/{number}"], "max_depth": 0}
