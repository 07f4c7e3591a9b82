"""`make release`: what it refuses, and what it does with files.

The release itself, and installing it: tests/chaos/test_installs.py.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSET = "no repository is set: write its address into [project.urls] of pyproject.toml in place of REPOSITORY_URL"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of a project that has what the script reads before it builds."""
    for name in (
        "scripts/release",
        "scripts/release_files.py",
        "pyproject.toml",
        "CHANGELOG.md",
        "src/weft/__init__.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / ".gitignore").write_text(".venv/\n")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    git(tmp_path, "init", "-q")
    return commit(tmp_path)


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def commit(folder: Path) -> Path:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a")
    return folder


def refusal(folder: Path) -> list[str]:
    done = subprocess.run([folder / "scripts/release"], capture_output=True, text=True)
    assert done.returncode == 2 and not (folder / "dist").exists(), done
    return [line.removeprefix("make release: ") for line in done.stderr.splitlines()]


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_release_is_refused_for_each_thing_that_is_missing(repository: Path) -> None:
    change(repository / "CHANGELOG.md", "## 0.1.0 (", "## 0.1.0 (unreleased, ")
    git(repository, "tag", "v9.9.9")
    (repository / "new.py").touch()
    assert refusal(repository) == [
        UNSET,
        "CHANGELOG.md has no heading '## 0.1.0 (YYYY-MM-DD)': give the release its date",
        "there are changes that are not committed: commit or remove them",
        "the tag v9.9.9 is not v0.1.0: correct __version__ in src/weft/__init__.py, or the tag",
    ]


def test_the_repository_alone_is_missing_from_a_tree_that_is_ready(repository: Path) -> None:
    changelog = repository / "CHANGELOG.md"
    lines = changelog.read_text().splitlines()
    changelog.write_text("\n".join("## 0.1.0 (2030-01-31)" if "## 0.1.0 (" in line else line for line in lines))
    git(commit(repository), "tag", "v0.1.0")
    assert refusal(repository) == [UNSET]


def test_links_of_the_readme_lead_to_the_released_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/a/weft"\n')
    readme = tmp_path / "README.md"
    readme.write_text("![A](docs/a.svg) [b](docs/b.md#c) [d](#e) [f](https://example.com/) [g](LICENSE)")
    subprocess.run([sys.executable, ROOT / "scripts/release_files.py", "links", readme, "1.2.3"], check=True)
    at = "https://example.org/a/weft"
    assert readme.read_text() == (
        f"![A]({at}/raw/v1.2.3/docs/a.svg) [b]({at}/blob/v1.2.3/docs/b.md#c) [d](#e) [f](https://example.com/) "
        f"[g]({at}/blob/v1.2.3/LICENSE)"
    )


def built(folder: Path, sdist: list[str], wheel: list[str]) -> subprocess.CompletedProcess[str]:
    source, dist = folder / "source", folder / "dist"
    for path in (source / "src/weft/a.py", source / "src/weft/_a.c", dist / "weft-1.tar.gz"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with tarfile.open(dist / "weft-1.tar.gz", "w:gz") as archive:
        for name in sdist:
            archive.addfile(tarfile.TarInfo(f"weft-1/{name}"), io.BytesIO())
    with zipfile.ZipFile(dist / "weft-1-py3.whl", "w") as wheel_file:
        for name in wheel:
            wheel_file.writestr(name, "")
    script = ROOT / "scripts/release_files.py"
    return subprocess.run([sys.executable, script, "check", dist, source], capture_output=True, text=True)


def test_what_was_built_has_every_file_of_the_source_and_nothing_compiled_in_the_sdist(tmp_path: Path) -> None:
    whole = ["LICENSE", "README.md", "src/weft/a.py", "src/weft/_a.c"]
    assert built(tmp_path, whole, ["weft/a.py", "weft/_a.so", "weft-1.dist-info/METADATA"]).returncode == 0
    done = built(tmp_path, [*whole[1:], "src/weft/_a.so"], ["weft/_a.c"])
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "make release: the sdist lacks LICENSE",
        "make release: the sdist has src/weft/_a.so",
        "make release: the wheel lacks weft/a.py",
        "make release: the wheel has weft/_a.c",
    ]
