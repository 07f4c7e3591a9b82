"""A release, made and installed as its users do: the wheel in a root without a compiler, pipx, uv, the sdist.

The repository is set in a copy. Needs root, debootstrap, the network and ten minutes:
`WEFT_TEST_CHAOS=1 scripts/test tests/chaos/test_installs.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clean_root import make_root, run_in_root, start_confined
from pace import patience

ROOT = Path(__file__).parents[2]
USER = 10001
PATHS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="a campaign: `make chaos`"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `dist` of a release of this tree, made by `scripts/release` in a copy that is ready for one."""
    copy = tmp_path_factory.mktemp("release") / "weft"
    copy.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    for name, before, after in (
        ("pyproject.toml", '"REPOSITORY_URL"', '"https://example.org/weft"'),
        ("CHANGELOG.md", "(unreleased)", "(2030-01-31)"),
    ):
        (copy / name).write_text((copy / name).read_text().replace(before, after, 1))
    (copy / ".venv/bin").mkdir(parents=True)
    (copy / ".venv/bin/python").symlink_to(sys.executable)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "a")):
        subprocess.run(["git", *words], cwd=copy, check=True)
    done = subprocess.run([copy / "scripts/release"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout} {done.stderr}"
    assert "0 of them impolite" in done.stdout
    return copy / "dist"


@pytest.fixture(scope="module")
def wheel(released: Path) -> Path:
    (path,) = released.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(released: Path) -> Path:
    (path,) = released.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("makes a root of its own: needs root")
    root = make_root(tmp_path_factory.mktemp("clean") / "root")
    assert not any((root / "usr/bin" / name).exists() for name in ("cc", "gcc", "make"))
    return root


def install_in_root(root: Path, file: Path, extras: str, at: str) -> None:
    shutil.copy2(file, root / "root" / file.name)
    run_in_root(root, "python3", "-m", "venv", at, environment=PATHS)
    wanted = f"weft{extras} @ file:///root/{file.name}"
    run_in_root(root, f"{at}/bin/pip", "install", "--quiet", wanted, environment=PATHS)


def demo_in_root(root: Path, data: Path, at: str) -> str:
    data.mkdir()
    words = ("weft", "demo", "--pages", "150", "--no-progress")
    with start_confined(
        root, data, *words, user=USER, folder="/data", environment={"PATH": f"{at}/bin:/usr/bin:/bin"}
    ) as demo:
        printed, _ = demo.communicate(timeout=patience(240))
    assert demo.returncode == 0, printed.decode()
    assert {path.stat().st_uid for path in data.rglob("*")} == {USER}
    return printed.decode()


def compiled(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.so") if re.search(r"/weft/(?!.*\.libs)", str(path))]


def test_the_wheel_crawls_in_a_root_without_a_compiler_that_cannot_be_written(
    root: Path, wheel: Path, tmp_path: Path
) -> None:
    """As a user without rights, with one folder to write to."""
    install_in_root(root, wheel, "[serve,pages]", "/opt/wheel")
    assert "0 of them impolite" in demo_in_root(root, tmp_path / "data", "/opt/wheel")
    assert len(compiled(root / "opt/wheel")) == 4


def test_the_sdist_without_a_compiler_crawls_on_python_alone(root: Path, sdist: Path, tmp_path: Path) -> None:
    install_in_root(root, sdist, "", "/opt/sdist")
    assert compiled(root / "opt/sdist") == []
    assert "0 of them impolite" in demo_in_root(root, tmp_path / "data", "/opt/sdist")


def test_the_sdist_with_a_compiler_has_all_that_the_wheel_has(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler here")
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip"] if has_pip() else ["uv", "pip"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", target, sdist], check=True)
    assert len(compiled(target)) == 4


def has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_a_tool_installer_puts_the_command_on_the_path(tool: str, wheel: Path, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not here")
    bin_folder = tmp_path / "bin"
    places = {
        "UV_TOOL_DIR": "uv",
        "UV_TOOL_BIN_DIR": "bin",
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "bin",
        "PIPX_MAN_DIR": "man",
    }
    environment = {**os.environ, **{name: str(tmp_path / folder) for name, folder in places.items()}}
    words = (
        ["uv", "tool", "install", "--python", sys.executable]
        if tool == "uv"
        else ["pipx", "install", "--python", sys.executable]
    )
    subprocess.run([*words, f"weft[serve] @ {wheel.as_uri()}"], env=environment, check=True, capture_output=True)
    done = subprocess.run([bin_folder / "weft", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("weft ")
