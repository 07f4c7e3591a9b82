"""The stage `clone`: a shallow copy of a repository's branch, at `clones/NAME/tree` below the output directory.

`clones/NAME/clone.json` says what the tree is; it is deleted before the tree is touched and written when it is whole,
so that a kill at any point leaves a copy that is made again. A copy that is there is updated, and made again when that
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

from weft import __version__
from weft.pipelines.builtin.modules.errors import GitFailed, RefusedRepository
from weft.pipelines.builtin.modules.repositories.clone_folder import NOTE, CloneFolder, clone_folder_of, folder_of
from weft.pipelines.builtin.modules.repositories.git import Git
from weft.pipelines.builtin.modules.repositories.heads import LastAnswer, RemoteBranch
from weft.pipelines.builtin.modules.repositories.remotes import Remote
from weft.pipelines.builtin.modules.repositories.tree import refuse_links_out
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
_HEAD_REF = "refs/weft/head"
_COMMITS_READ = 500
_last_answer = LastAnswer()


def clone(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Updates or creates the copy of the repository's newest commit."""
    settings = {**DEFAULTS, **context.settings}
    git = git_for(settings, context.remaining_s())
    place = clone_folder_of(item["id"], context)
    wanted = {"url": item.get("url"), "branch": item.get("branch"), "depth": settings["depth"]}
    facts = _facts_if_new_enough(git, place, wanted, _listed_commit(item, settings))
    if facts is not None:
        context.log.info("The local copy is as new as the catalogue says", commit=facts["commit"])
        _refuse_large(facts["bytes"], facts["files"], settings)
    else:
        facts = _update_from_remote(git, place, wanted, item, settings, context)
    # The commit may be a newer one than was asked about: what is there counts.
    note = json.dumps({**wanted, "commit": facts["commit"], "head": facts["branch"]})
    context.files.write(f"{folder_of(item['id'], context)}/{NOTE}", note)
    return facts


def _update_from_remote(
    git: Git,
    place: CloneFolder,
    wanted: Mapping[str, Any],
    item: Mapping[str, Any],
    settings: Mapping[str, Any],
    context: StageContext,
) -> dict[str, Any]:
    """Asks the remote, updates the copy if the remote is newer, and returns the facts about the copy."""
    remote, head = _last_answer.ask(git, item, settings)
    facts = _facts_of_copy(git, place, {**wanted, "commit": head.commit}, head.branch)
    if facts is not None:
        context.log.info("The local copy is as new as the remote", commit=head.commit)
        _refuse_large(facts["bytes"], facts["files"], settings)
        return facts
    _fetch_unless_refused(git, remote, head, place, settings, context)
    return _facts_of_tree(git, place.tree, head.branch)


def _facts_if_new_enough(git: Git, place: CloneFolder, wanted: Mapping[str, Any], listed: str) -> dict[str, Any] | None:
    """The facts about the existing copy, if its commit is no older than the one that the catalogue lists."""
    branch = place.note().get("head")  # a note of an earlier version has none: the remote is asked
    if not listed or not isinstance(branch, str):
        return None
    facts = _facts_of_copy(git, place, wanted, branch)
    return facts if facts is not None and is_as_new(facts["committed_at"], listed) else None


def is_as_new(committed_at: str | None, listed: str) -> bool:
    """Whether a commit is no older than a date of a catalogue: a day (then days are compared, in UTC) or a time, which
    is UTC if it names no zone, or seconds since 1970. False if either cannot be read."""
    try:
        when = datetime.fromtimestamp(int(listed), UTC) if listed.isdigit() else datetime.fromisoformat(listed)
        local = datetime.fromisoformat(committed_at or "")
    except (ValueError, OverflowError, OSError):
        return False
    if len(listed) == len("2026-01-31") and not listed.isdigit():
        return local.astimezone(UTC).date() >= when.date()
    return local >= (when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def _listed_commit(item: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The date of the last commit in the catalogue; empty unless the settings trust it."""
    known = item.get("last_commit") or item.get("lastCommit")
    return str(known).strip() if known and settings["remote_check"] == "catalogue" else ""


def newest_commit(item: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprint of `clone`: the commit that the remote's branch is at.

    A remote that cannot be asked has a fingerprint, too: the stage then runs, and its failure is the item's.
    """
    settings = {**DEFAULTS, **settings}
    if listed := _listed_commit(item, settings):
        return {"last_commit": listed}
    try:
        _, head = _last_answer.ask(git_for(settings, 60.0), item, settings)
    except (RefusedRepository, GitFailed) as error:
        return {"problem": str(error)}
    return {"commit": head.commit, "branch": head.branch}


def git_for(settings: Mapping[str, Any], remaining_s: float | None) -> Git:
    """A git runner with the limits of the settings, and no more time than the item has left."""
    timeout_s = float(settings["timeout_s"])
    if remaining_s is not None:
        timeout_s = max(1.0, min(timeout_s, remaining_s - 2.0))  # to say so before the pool ends the worker
    return Git(timeout_s=timeout_s, max_bytes=int(settings["max_bytes"]))


def _facts_of_copy(git: Git, place: CloneFolder, wanted: Mapping[str, Any], branch: str) -> dict[str, Any] | None:
    """The facts about the existing copy, if it has the wanted commit and git can read it."""
    note = place.note()
    if any(name not in note or note[name] != value for name, value in wanted.items()):
        return None
    try:
        return _facts_of_tree(git, place.tree, branch)
    except GitFailed:
        return None


def _fetch_unless_refused(
    git: Git, remote: Remote, head: RemoteBranch, place: CloneFolder, settings: Mapping[str, Any], context: StageContext
) -> None:
    """Fetches a commit, unless it was refused before under the same limits."""
    verdict = [remote.url, head.commit, settings["max_bytes"], settings["max_files"], __version__]
    if (why := place.refused(verdict)) is not None:
        raise RefusedRepository(why)
    context.log.info("Cloning", url=remote.url, branch=head.branch, has_copy=place.tree.exists())
    place.forget()
    try:
        _fetch_into_copy(git, remote, head, place, settings, context)
    except RefusedRepository as error:
        place.refuse(verdict, str(error))
        raise


def _fetch_into_copy(
    git: Git, remote: Remote, head: RemoteBranch, place: CloneFolder, settings: Mapping[str, Any], context: StageContext
) -> None:
    if place.can_be_updated():
        try:
            return _fetch_tree(git, remote, head, place.tree, settings)
        except GitFailed as error:
            if error.kind == "timeout":
                raise
            context.log.warning("The copy could not be updated and is made again", error=str(error))
    new = place.folder / f"new-{os.getpid()}"
    try:
        git.init(new)
        _fetch_tree(git, remote, head, new, settings)
        place.replace(new)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _fetch_tree(git: Git, remote: Remote, head: RemoteBranch, tree: Path, settings: Mapping[str, Any]) -> None:
    """Updates a tree to the remote's newest commit; checks it before and after its files are written."""
    refspec = f"+{head.ref}:{_HEAD_REF}"
    always = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force")
    depths = [[f"--depth={settings['depth']}"], []]
    for depth in depths:
        try:
            git.remote(remote, *always, *depth, "--", remote.url, refspec, tree=tree)
            break
        except GitFailed as error:
            if error.kind in ("unsafe", "too-large"):
                raise RefusedRepository(str(error)) from None
            if not depth or "dumb http" not in str(error):  # a server of plain files cannot cut the history
                raise
    entries = _files_of_commit(git, tree)
    _refuse_large(sum(size for _, size, _ in entries), len(entries), settings)
    git.in_repository(tree, "checkout", "--quiet", "--force", "--detach", _HEAD_REF)
    git.in_repository(tree, "clean", "-ffdxq")
    refuse_links_out(tree)


def _files_of_commit(git: Git, tree: Path) -> list[tuple[str, int, str]]:
    """The files of the fetched commit (mode, size, path), read before any is written."""
    entries = []
    for line in git.in_repository(tree, "ls-tree", "-r", "-l", "-z", "--full-tree", _HEAD_REF).split(b"\0"):
        if line:
            facts, _, path = line.partition(b"\t")
            mode, _, _, size = facts.split()
            entries.append((mode.decode(), 0 if size == b"-" else int(size), path.decode(errors="replace")))
    return entries


def _refuse_large(total_bytes: int, files: int, settings: Mapping[str, Any]) -> None:
    """Refuses a commit that is too large before it is unpacked: a pack of a megabyte can hold a gigabyte of zeros."""
    if total_bytes > int(settings["max_bytes"]):
        raise RefusedRepository(f"its files have {total_bytes:,} bytes, more than the limit (`clone.max_bytes`)")
    if files > int(settings["max_files"]):
        raise RefusedRepository(f"it has {files:,} files, more than the limit (`clone.max_files`)")


def _facts_of_tree(git: Git, tree: Path, branch: str) -> dict[str, Any]:
    entries = _files_of_commit(git, tree)
    output = git.in_repository(tree, "log", "-z", f"--max-count={_COMMITS_READ}", "--format=%H %ct %ae", _HEAD_REF)
    commits = [line.split(" ", 2) for line in output.decode(errors="replace").split("\0") if line]
    is_cut = (tree / ".git" / "shallow").exists() or len(commits) == _COMMITS_READ
    return {
        "commit": commits[0][0],
        "branch": branch,
        "committed_at": _commit_time_text(commits[0][1]),
        "files": len(entries),
        "bytes": sum(size for _, size, _ in entries),
        "submodules": [path for mode, _, path in entries if mode == "160000"],
        "history": {
            "commits": len(commits),
            "authors": len({author for _, _, author in commits}),
            "is_cut": is_cut,
            "since": _commit_time_text(commits[-1][1]),
            "dates": [_commit_time_text(when) for _, when, _ in commits[:50]],
        },
    }


def _commit_time_text(seconds: str) -> str | None:
    """The time of a commit as text; None for an impossible one, since its author may write any number."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
