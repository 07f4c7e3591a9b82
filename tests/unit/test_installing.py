"""The command that an error gives to install an extra works where it is given."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

import weft

ASK = "from weft.errors import installing; print(installing('weft[redis]'))"
SOURCES = str(Path(weft.__file__).parent.parent)


def asked(python: Path, path: Path) -> str:
    done = subprocess.run(
        [python, "-c", ASK], env={"PATH": str(path), "PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without pip."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def test_uv_installs_where_there_is_no_pip(bare: Path, tmp_path: Path) -> None:
    assert asked(bare, tmp_path) == f"{bare} -m ensurepip && {bare} -m pip install 'weft[redis]'"
    (tmp_path / "uv").touch(mode=0o755)
    assert asked(bare, tmp_path) == f"uv pip install --python {bare} 'weft[redis]'"


def test_pip_installs_where_there_is_one(bare: Path, tmp_path: Path) -> None:
    (site,) = bare.parent.parent.glob("lib/python*/site-packages")
    (site / "pip").mkdir()
    (site / "pip" / "__init__.py").touch()
    (tmp_path / "uv").touch(mode=0o755)
    assert asked(bare, tmp_path) == f"{bare} -m pip install 'weft[redis]'"


def test_this_python_is_named() -> None:
    from weft.errors import Missing

    said = str(Missing.of_extra("pyarrow", "parquet"))
    assert said.startswith("pyarrow is not installed: it comes with the extra 'parquet': ") and sys.executable in said
