"""The result of one check of `weft doctor`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CheckState(enum.StrEnum):
    """The outcome of a check: `problem` prevents `weft up` with these settings, `warning` does not."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `advice` is what to do, if anything."""

    name: str
    verdict: CheckState
    found: str
    advice: str = ""
