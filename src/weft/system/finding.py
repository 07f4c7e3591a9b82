"""What a check of the doctor has found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CheckState(enum.StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked; `advice` says what to do, if something is to be done."""

    name: str
    verdict: CheckState
    found: str
    advice: str = ""
