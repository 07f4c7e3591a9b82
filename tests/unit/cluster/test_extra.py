"""The commands of a cluster where its extra is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft.cluster.key import make_key

SCRIPT = "import sys\nsys.modules[sys.argv.pop(1)] = None\nfrom weft.cli.main import main\nsys.exit(main())"


@pytest.mark.parametrize(
    ("missing", "command"),
    [("celery", ["cluster", "status"]), ("celery", ["worker"]), ("kombu", ["worker"]), ("redis", ["worker"])],
)
def test_without_its_extra_one_line_says_how_to_install_it(tmp_path: Path, missing: str, command: list[str]) -> None:
    make_key(tmp_path / "cluster.key")
    flags = ["--broker", "redis://127.0.0.1:1/0", "--key-file", str(tmp_path / "cluster.key")]
    words = [sys.executable, "-c", SCRIPT, missing, *command, *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith("weft: ")
    assert "weft[cluster]" in line
