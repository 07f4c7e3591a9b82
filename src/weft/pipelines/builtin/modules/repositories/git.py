"""Runs git, hardened: nothing is asked, no hook, helper or submodule runs, no configuration but this one is read.

Every git process of the pipeline is started here. The repository is always named (`--git-dir`): with a broken one git
would look for another in the folders above, and change that.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from weft.errors import Missing
from weft.pipelines.builtin.modules.errors import GitFailed, RefusedRepository
from weft.pipelines.builtin.modules.repositories.process import FinishedProgram, TooMuchOutput, run
from weft.pipelines.builtin.modules.repositories.remotes import Remote

OLDEST = (2, 37)  # the first with http.curloptResolve: an older one would ignore the addresses it is tied to
_PASSED_VARIABLES = ("PATH", "TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR")
_DEV_NULL = "/dev/null"
_CONFIG = (
    f"core.hooksPath={_DEV_NULL}",
    "core.fsmonitor=false",
    "core.symlinks=true",
    "core.autocrlf=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.askPass=",
    "core.sshCommand=",
    "core.bigFileThreshold=16m",  # larger ones are streamed, not held in memory
    "credential.helper=",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.unpackLimit=1",  # always one pack: its size is what the limit of a file's size stops
    "fetch.writeCommitGraph=false",
    "transfer.fsckObjects=true",
    # Old repositories have these, and they do no harm.
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.fsck.badTimezone=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.badDate=ignore",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
    "index.threads=1",
    "checkout.workers=1",
    "advice.detachedHead=false",
    "http.followRedirects=false",
    "http.proxy=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "protocol.version=2",
)
# What git says (in English, by LC_ALL), as a word and what it means for a reader of the report.
_FAILURE_KINDS: tuple[tuple[str, str, str], ...] = (
    (
        "login",
        r"could not read Username|Authentication failed|prompts disabled|Permission denied \(|HTTP 401|error: 40[13]\b",
        "it needs a login, and none is ever asked for",
    ),
    ("host-key", r"Host key verification failed", "its ssh host key is not known on this machine"),
    (
        "missing",
        r"[Rr]epository .*not found|does not exist|does not appear to be a git|error: 404|not a git repo|No such file",
        "there is no repository",
    ),
    (
        "too-large",
        r"File too large",
        "it is larger than the limit (`clone.max_bytes`)",
    ),
    (
        "unsafe",
        r"hasDot|gitmodules|fsck error|invalid path|badTree|object corrupt|fullPathname",
        "git refuses what is in it",
    ),
    ("redirect", r"error: 30[12378]\b", "it is somewhere else"),
    ("tls", r"SSL|certificate", "its certificate does not verify"),
    (
        "unreachable",
        r"resolve host|Failed to connect|Connection (?:refused|timed out|reset)|unreachable|timed out|error: 5\d\d",
        "its server cannot be reached",
    ),
)
_FAILURE_PATTERNS = tuple((kind, re.compile(pattern), meaning) for kind, pattern, meaning in _FAILURE_KINDS)


class Git:
    """Git for one item: its time limit and the size that one file may have."""

    def __init__(self, *, timeout_s: float, max_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    def init(self, tree: Path) -> None:
        """Makes an empty repository, without the hooks that a template would bring."""
        self._run(["init", "--quiet", "--template=", "--initial-branch=weft", "--", str(tree)], None, None)

    def in_repository(self, tree: Path, *arguments: str) -> bytes:
        """Runs a command in the repository of a working tree; returns its output."""
        return self._run([f"--git-dir={tree / '.git'}", f"--work-tree={tree}", *arguments], None, tree)

    def remote(self, remote: Remote, *arguments: str, tree: Path | None = None) -> bytes:
        """Runs a command that talks to a remote, which is tied to the addresses that were judged."""
        where = [] if tree is None else [f"--git-dir={tree / '.git'}", f"--work-tree={tree}"]
        return self._run([*where, *arguments], remote, tree)

    def _run(self, arguments: Sequence[str], remote: Remote | None, folder: Path | None) -> bytes:
        config = [*_CONFIG, *(remote.config() if remote else ())]
        command = [program(), *(part for entry in config for part in ("-c", entry)), *arguments]
        verb = next(word for word in arguments if not word.startswith("-"))
        try:
            done = run(
                command,
                environment=environment(remote),
                timeout_s=self._timeout_s,
                folder=folder or Path("/"),
                max_file_bytes=self._max_bytes,
            )
        except TooMuchOutput as error:
            raise RefusedRepository(str(error)) from None
        if done.is_late:
            raise GitFailed("timeout", f"git {verb} took longer than {self._timeout_s:g} s (`clone.timeout_s`)")
        if done.code:
            raise failure(verb, done)
        return done.output


def environment(remote: Remote | None = None) -> dict[str, str]:
    """The environment variables for git. HOME is empty: libcurl would read logins from a .netrc there."""
    return {
        **{name: value for name in _PASSED_VARIABLES if (value := os.environ.get(name))},
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": _DEV_NULL,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_ALLOW_PROTOCOL": remote.transport if remote else "none",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        **(remote.environment() if remote else {}),
    }


def failure(verb: str, done: FinishedProgram) -> GitFailed:
    """The error for a failed git command, with a message of one line."""
    lines = [line for line in done.error.splitlines() if line.strip()]
    for kind, pattern, meaning in _FAILURE_PATTERNS:
        if line := next((line for line in lines if pattern.search(line)), None):
            return GitFailed(kind, f"{meaning}: git {verb}: {_plain(line)}")
    last = next((line for line in reversed(lines) if line.startswith("fatal: ")), (lines or [""])[-1])
    return GitFailed("git", f"git {verb}: {_plain(last) or f'it ended with code {done.code}'}")


def _plain(line: str) -> str:
    return re.sub(r"^(?:fatal|error|remote): ", "", line)[:300]


@cache
def program() -> str:
    """The path of git; raises `Missing` if there is none, or only one that is too old to be hardened."""
    path = shutil.which("git")
    if path is None:
        raise Missing("git", "install it with your system's packages")
    done = run([path, "--version"], environment=environment(), timeout_s=30)
    version = re.search(rb"(\d+)\.(\d+)", done.output)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise Missing(
            f"git {OLDEST[0]}.{OLDEST[1]} or newer", f"{path} is {done.output.decode(errors='replace').strip()}"
        )
    return path
