"""Makes git repositories of every kind with real git, and serves them: for tests of the pipeline `modules`.

`Workshop(folder).make("clock", {"README.md": b"…"})` is a bare repository with one commit. Symbolic links, submodules
and trees that no git would write are made through `fast-import` and `hash-object --literally`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LONG_AGO = 1_600_000_000
_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@dataclass(frozen=True)
class Link:
    """A symbolic link to `target`."""

    target: str


@dataclass(frozen=True)
class Submodule:
    """Another repository at this commit."""

    commit: str = "1" * 40


Content = bytes | str | Link | Submodule
Files = Mapping[str, Content]


class Workshop:
    """A folder with bare repositories."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._empty = folder / ".empty.git"
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", "--template=", str(self._empty))

    def url(self, name: str) -> str:
        """Where a repository is, for git."""
        return f"file://{self.folder}/{name}.git"

    def empty(self, name: str) -> Path:
        """A repository without commits."""
        return Path(shutil.copytree(self._empty, self.folder / f"{name}.git"))

    def make(self, name: str, files: Files, branch: str = "main", when: int = LONG_AGO) -> Path:
        """A repository with one commit."""
        path = self.empty(name)
        self.commit(name, files, branch, when)
        return path

    def commit(self, name: str, files: Files, branch: str = "main", when: int = LONG_AGO) -> str:
        """Adds a commit that writes these files; gives its id."""
        path = self.folder / f"{name}.git"
        ref = f"refs/heads/{branch}"
        lines = [f"commit {ref}\ncommitter Ada <ada@example.org> {when} +0000\ndata 1\nx\n".encode()]
        if git(path, "for-each-ref", ref):
            lines.append(f"from {ref}^0\n".encode())
        for file, content in files.items():
            lines.append(_entry(file, content))
        git(path, "fast-import", "--quiet", "--date-format=raw-permissive", stdin=b"".join(lines))
        return git(path, "rev-parse", ref).decode().strip()

    def raw_tree(self, name: str, entries: list[tuple[str, str, bytes]]) -> Path:
        """A repository whose one tree is written as it is given: mode, name, content."""
        path = self.empty(name)
        packed = b""
        for mode, file, content in entries:
            blob = git(path, "hash-object", "-w", "--stdin", stdin=content).decode().strip()
            packed += f"{mode} {file}\0".encode(errors="surrogateescape") + bytes.fromhex(blob)
        self.set_tree(path, packed)
        return path

    def with_hooks_in_its_tree(self, name: str) -> Path:
        """A repository with a file `.git/hooks/post-checkout` in its tree, as an attacker would write it."""
        path = self.empty(name)
        blob = git(path, "hash-object", "-w", "--stdin", stdin=b"#!/bin/sh\ntouch /tmp/owned\n").decode().strip()
        packed = b"100755 post-checkout\0" + bytes.fromhex(blob)
        for folder in (b"hooks", b".git"):
            tree = self._write_tree(path, packed)
            packed = b"40000 " + folder + b"\0" + bytes.fromhex(tree)
        self.set_tree(path, packed)
        return path

    def set_tree(self, path: Path, packed: bytes) -> None:
        """Makes the branch `main` a commit of this tree."""
        tree = self._write_tree(path, packed)
        commit = git(path, "commit-tree", tree, "-m", "x").decode().strip()
        git(path, "update-ref", "refs/heads/main", commit)

    def _write_tree(self, path: Path, packed: bytes) -> str:
        return git(path, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=packed).decode().strip()


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Runs git in a folder."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=_ENVIRONMENT, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _entry(file: str, content: Content) -> bytes:
    if isinstance(content, Submodule):
        return f"M 160000 {content.commit} {file}\n".encode()
    mode = 120000 if isinstance(content, Link) else 100644
    data = content.target if isinstance(content, Link) else content
    data = data.encode() if isinstance(data, str) else data
    return f"M {mode} inline {file}\ndata {len(data)}\n".encode() + data + b"\n"
