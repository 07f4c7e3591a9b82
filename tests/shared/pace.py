"""How patient a test may be: time limits that follow the machine.

A limit in a test is there against hangs alone, so it may be generous: it is never the thing that is tested. `patience`
turns the seconds that something takes at worst on a quiet machine into the seconds that a test waits for it. The factor
is measured once for a run, from processor work and from the start of a process, and is at least LEAST, because other
work may begin on the machine after it was measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache

# What `_measured_s` takes on a quiet machine of 2024.
REFERENCE_S = 0.06
LEAST = 5.0
MOST = 40.0
# Whoever measures leaves it to the processes that it starts: the workers of one run wait equally long.
VARIABLE = "PACE_OF_THIS_TEST_RUN"


def patience(seconds: float) -> float:
    """The limit for what takes so many seconds at worst on a quiet machine."""
    return seconds * factor()


@cache
def factor() -> float:
    """By how much limits are stretched in this run."""
    if VARIABLE not in os.environ:
        slowest = max(_measured_s() for _ in range(3))
        os.environ[VARIABLE] = f"{min(MOST, LEAST * max(1.0, slowest / REFERENCE_S)):.1f}"
    return float(os.environ[VARIABLE])


def _measured_s() -> float:
    began = time.monotonic()
    sum(number * number % 7 for number in range(500_000))
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return time.monotonic() - began
