"""The client, and the commands that use it, load nothing of the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVER = {"fastapi", "starlette", "pydantic", "uvicorn", "uvloop", "httptools"}


@pytest.mark.parametrize(
    "module", ["weft.client", "weft.cli.service.jobs", "weft.cli.service.keys", "weft.jobs.api.access.keys"]
)
def test_nothing_of_the_extra_is_needed(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert SERVER.isdisjoint(done.stdout.split())
