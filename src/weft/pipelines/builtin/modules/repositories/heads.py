"""What a remote has: the commit of the branch that is wanted, and where the remote has moved to, if it has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from weft.pipelines.builtin.modules.errors import GitFailed, RefusedRepository
from weft.pipelines.builtin.modules.registries.http import Getter
from weft.pipelines.builtin.modules.repositories.git import Git
from weft.pipelines.builtin.modules.repositories.remotes import Remote, branch_of, remote_of

MAX_MOVES = 5
FRESH_S = 5.0
_SETTINGS_THAT_MATTER = ("transports", "allow_private", "timeout_s")
_SERVICE = "/info/refs?service=git-upload-pack"


@dataclass(frozen=True, slots=True)
class RemoteBranch:
    """A branch of a remote, and its commit. `branch` is empty if the remote's HEAD is not a branch."""

    commit: str
    branch: str

    @property
    def ref(self) -> str:
        """The ref to fetch."""
        return f"refs/heads/{self.branch}" if self.branch else "HEAD"


class LastAnswer:
    """Caches the last answer of a remote: a stage runs right after its fingerprint was computed, and need not ask
    again.
    """

    def __init__(self) -> None:
        self._question: tuple[Any, ...] = ()
        self._at = 0.0
        self._answer: tuple[Remote, RemoteBranch] | Exception | None = None

    def ask(self, git: Git, item: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Remote, RemoteBranch]:
        """Like the function `ask_remote`, but answers from the cache if the same was asked a moment ago."""
        question = (item.get("url"), item.get("branch"), *(str(settings.get(name)) for name in _SETTINGS_THAT_MATTER))
        if self._answer is None or question != self._question or time.monotonic() > self._at + FRESH_S:
            try:
                self._answer = ask(git, item, settings)
            except (RefusedRepository, GitFailed) as error:
                self._answer = error
            self._question, self._at = question, time.monotonic()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def ask(git: Git, item: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Remote, RemoteBranch]:
    """Asks the remote of an item for its newest commit; also returns the remote at the address to which
    it has moved.
    """
    branch = branch_of(item.get("branch"))
    remote = remote_of(item.get("url"), settings)
    for _ in range(MAX_MOVES + 1):
        try:
            listed = git.remote(remote, "ls-remote", "--symref", "--", remote.url, "HEAD", "refs/heads/*")
            return remote, _chosen(listed.decode(errors="replace"), branch)
        except GitFailed as error:
            if error.kind != "redirect":
                raise
            remote = remote_of(moved_to(remote, settings), settings)
    raise RefusedRepository(f"{item.get('url')!r} leads through more than {MAX_MOVES} redirects")


def moved_to(remote: Remote, settings: Mapping[str, Any]) -> str:
    """The URL to which a server redirects requests for a repository; empty if it does not."""
    asked = remote.url.rstrip("/") + _SERVICE
    with Getter(allow_private=bool(settings.get("allow_private", False)), max_bytes=1_000_000) as getter:
        answer = getter.get(asked)
    target = urljoin(asked, answer.headers.get("location", ""))
    if not target.endswith(_SERVICE) or target == asked:
        raise GitFailed("redirect", f"{remote.url!r} redirects to {target[:200]!r}, which is no git remote")
    return target.removesuffix(_SERVICE)


def _chosen(listed: str, branch: str) -> RemoteBranch:
    """Selects the wanted branch from the lines of `git ls-remote --symref`."""
    default, commits = "", {}
    for line in listed.splitlines():
        what, _, name = line.partition("\t")
        if what.startswith("ref: ") and name == "HEAD":
            default = what.removeprefix("ref: refs/heads/")
        elif name:
            commits[name] = what
    if not commits:
        raise RefusedRepository("the repository is empty: it has no commits")
    if branch:
        if (commit := commits.get(f"refs/heads/{branch}")) is None:
            raise RefusedRepository(f"there is no branch {branch!r}; {_list_branches(commits)}")
        return RemoteBranch(commit, branch)
    if "HEAD" not in commits:
        raise RefusedRepository(f"there is no default branch: name one as `branch`; {_list_branches(commits)}")
    return RemoteBranch(commits["HEAD"], default if f"refs/heads/{default}" in commits else "")


def _list_branches(commits: Mapping[str, str]) -> str:
    names = [name.removeprefix("refs/heads/") for name in commits if name.startswith("refs/heads/")]
    if not names:
        return "it has no branches"
    return "there are: " + ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
