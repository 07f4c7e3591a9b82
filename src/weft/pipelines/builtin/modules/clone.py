"""The stage `clone`: a shallow copy of a repository's branch, at `clones/NAME/tree` below the output directory.

`clones/NAME/clone.json` says what the tree is; it is deleted before the tree is touched and written when it is whole,
so that a kill at any point leaves a copy that is made again. A copy that is there is updated, and made anew when that
fails; a new one is made beside it and moved to its place. Nothing is read through a tree before its links were checked.

The stage's value depends on the repository alone, never on how it came to be here: what needs it is run again only when
there is a new commit.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from weft.pipelines.builtin.modules.errors import GitFailed, Refused
from weft.pipelines.builtin.modules.git import Git
from weft.pipelines.builtin.modules.heads import Head, ask
from weft.pipelines.builtin.modules.remotes import Remote
from weft.pipelines.builtin.modules.tree import refuse_links_out
from weft.pipelines.stage import StageContext

DEFAULTS: dict[str, Any] = {
    "transports": ["https", "ssh", "file"],
    "allow_private": False,
    "depth": 50,
    "max_bytes": 500_000_000,
    "max_files": 50_000,
    "timeout_s": 300,
    "remote_check": "always",
}
_REF = "refs/weft/head"
_MAX_PACKS = 20  # each update adds one; then the copy is made anew, at its size
_COMMITS_READ = 500


def clone(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Has the repository's newest commit in its place."""
    settings = {**DEFAULTS, **context.settings}
    git = git_for(settings, context.remaining_s())
    place = Place(context.files.path(folder_of(item["id"], context)))
    remote, head = ask(git, item, settings)
    if place.holds(item, head.commit):
        context.log.info("The local copy is as new as the remote", commit=head.commit)
    else:
        context.log.info("Cloning", url=remote.url, branch=head.branch, has_copy=place.tree.exists())
        place.forget()
        _bring(git, remote, head, place, settings, context)
    facts = _facts(git, place.tree, head)
    context.files.write(
        f"{folder_of(item['id'], context)}/clone.json",
        json.dumps({"url": item.get("url"), "branch": item.get("branch"), "commit": facts["commit"]}),
    )
    return facts


def newest_commit(item: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprint of `clone`: the commit that the remote's branch is at.

    A remote that cannot be asked has a fingerprint, too: the stage then runs, and its failure is the item's.
    """
    settings = {**DEFAULTS, **settings}
    known = item.get("last_commit") or item.get("lastCommit")
    if settings["remote_check"] == "catalogue" and known:
        return {"last_commit": str(known)}
    try:
        _, head = ask(git_for(settings, 60.0), item, settings)
    except (Refused, GitFailed) as error:
        return {"problem": str(error)}
    return {"commit": head.commit, "branch": head.branch}


def folder_of(item_id: str | int, context: StageContext) -> str:
    """Where an item's copy is, below the output directory."""
    return f"clones/{context.files.name_for(item_id)}"


def tree_of(item_id: str | int, context: StageContext) -> Path:
    """The tree that `clone` has left for the stages that need it."""
    place = Place(context.files.path(folder_of(item_id, context)))
    if place.commit() != context.results["clone"]["commit"]:
        raise Refused(f"{place.tree} is no longer what was cloned: delete {place.folder} and run again")
    return place.tree


def git_for(settings: Mapping[str, Any], remaining_s: float | None) -> Git:
    """Git with the settings' limits, and no more time than the item has left."""
    timeout_s = float(settings["timeout_s"])
    if remaining_s is not None:
        timeout_s = max(1.0, min(timeout_s, remaining_s - 2.0))  # to say so before the pool ends the worker
    return Git(timeout_s=timeout_s, max_bytes=int(settings["max_bytes"]))


class Place:
    """The folder of one repository's copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self._note = folder / "clone.json"

    def note(self) -> dict[str, Any]:
        """What `clone.json` says; empty if the tree is not whole."""
        try:
            note = json.loads(self._note.read_bytes())
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) and (self.tree / ".git").is_dir() else {}

    def commit(self) -> str:
        """The commit that the tree is at."""
        return str(self.note().get("commit", ""))

    def holds(self, item: Mapping[str, Any], commit: str) -> bool:
        """Whether the tree is this commit of this repository."""
        wanted = {"url": item.get("url"), "branch": item.get("branch"), "commit": commit}
        return self.note() == wanted

    def forget(self) -> None:
        """Before the tree is changed: what is there is not whole any more. Clears what was left by a kill, too."""
        self._note.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in (*self.folder.glob("new-*"), *self.folder.glob("old-*")):
            shutil.rmtree(leftover, ignore_errors=True)

    def can_be_updated(self) -> bool:
        """Whether there is a repository to go on from."""
        packs = self.tree / ".git" / "objects" / "pack"
        return packs.is_dir() and len(list(packs.glob("*.pack"))) < _MAX_PACKS

    def replace(self, new: Path) -> None:
        """Puts a new tree in the place of the old one."""
        old = self.folder / f"old-{os.getpid()}"
        if self.tree.exists():
            self.tree.rename(old)
        new.rename(self.tree)
        shutil.rmtree(old, ignore_errors=True)


def _bring(
    git: Git, remote: Remote, head: Head, place: Place, settings: Mapping[str, Any], context: StageContext
) -> None:
    if place.can_be_updated():
        try:
            return _fetch(git, remote, head, place.tree, settings)
        except GitFailed as error:
            if error.kind == "timeout":
                raise
            context.log.warning("The copy could not be updated and is made anew", error=str(error))
    new = place.folder / f"new-{os.getpid()}"
    try:
        git.init(new)
        _fetch(git, remote, head, new, settings)
        place.replace(new)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _fetch(git: Git, remote: Remote, head: Head, tree: Path, settings: Mapping[str, Any]) -> None:
    """Brings a tree to the remote's newest commit; checks it before and after its files are written."""
    refspec = f"+{head.ref}:{_REF}"
    always = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force")
    try:
        git.remote(remote, *always, f"--depth={settings['depth']}", "--", remote.url, refspec, tree=tree)
    except GitFailed as error:
        if "dumb http" not in str(error):  # a server of plain files cannot cut the history
            raise
        git.remote(remote, *always, "--", remote.url, refspec, tree=tree)
    _refuse_large(_entries(git, tree), settings)
    git.in_repository(tree, "checkout", "--quiet", "--force", "--detach", _REF)
    git.in_repository(tree, "clean", "-ffdxq")
    refuse_links_out(tree)


def _entries(git: Git, tree: Path) -> list[tuple[str, int, str]]:
    """The files of the commit, before they are written: mode, size, path."""
    found = []
    for line in git.in_repository(tree, "ls-tree", "-r", "-l", "-z", "--full-tree", _REF).split(b"\0"):
        if line:
            facts, _, path = line.partition(b"\t")
            mode, _, _, size = facts.split()
            found.append((mode.decode(), 0 if size == b"-" else int(size), path.decode(errors="replace")))
    return found


def _refuse_large(entries: list[tuple[str, int, str]], settings: Mapping[str, Any]) -> None:
    """A pack of a megabyte can hold a gigabyte of zeros: the sizes are known before anything is unpacked."""
    total = sum(size for _, size, _ in entries)
    if total > int(settings["max_bytes"]):
        raise Refused(f"its files have {total:,} bytes, more than the limit (`clone.max_bytes`)")
    if len(entries) > int(settings["max_files"]):
        raise Refused(f"it has {len(entries):,} files, more than the limit (`clone.max_files`)")


def _facts(git: Git, tree: Path, head: Head) -> dict[str, Any]:
    entries = _entries(git, tree)
    output = git.in_repository(tree, "log", "-z", f"--max-count={_COMMITS_READ}", "--format=%H %ct %ae", _REF)
    commits = [line.split(" ", 2) for line in output.decode(errors="replace").split("\0") if line]
    is_cut = (tree / ".git" / "shallow").exists() or len(commits) == _COMMITS_READ
    return {
        "commit": commits[0][0],
        "branch": head.branch,
        "committed_at": _iso(commits[0][1]),
        "files": len(entries),
        "bytes": sum(size for _, size, _ in entries),
        "submodules": [path for mode, _, path in entries if mode == "160000"],
        "history": {
            "commits": len(commits),
            "authors": len({author for _, _, author in commits}),
            "is_cut": is_cut,
            "since": _iso(commits[-1][1]),
            "dates": [_iso(when) for _, when, _ in commits[:50]],
        },
    }


def _iso(seconds: str) -> str | None:
    """A commit's time; whoever makes a commit may write any number there."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
