"""Where the copies of repositories are, below the output directory, and what is known of each.

    clones/NAME/tree          the working tree, with its `.git`
    clones/NAME/clone.json    what the tree is: there only while the tree is whole and checked
    clones/NAME/refused.json  which commit was refused, under which limits, and why
    clones/NAME/new-PID       a copy in the making; old-PID: one that is being replaced

The stage `clone` writes here; the stages that need it read `tree` through `tree_of`.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from weft.pipelines.builtin.modules.errors import RefusedRepository
from weft.pipelines.stage import StageContext

NOTE = "clone.json"
_MAX_PACKS = 20  # each update adds one; then the copy is made again, at its size


def folder_of(item_id: str | int, context: StageContext) -> str:
    """The path of an item's copy, relative to the output directory."""
    return f"clones/{context.files.name_for(item_id)}"


def clone_folder_of(item_id: str | int, context: StageContext) -> CloneFolder:
    """The folder of an item's copy."""
    return CloneFolder(context.files.path(folder_of(item_id, context)))


def tree_of(item_id: str | int, context: StageContext) -> Path:
    """The tree that `clone` has left for the stages that need it."""
    place = clone_folder_of(item_id, context)
    if place.commit() != context.results["clone"]["commit"]:
        raise RefusedRepository(f"{place.tree} is no longer what was cloned: delete {place.folder} and run again")
    return place.tree


class CloneFolder:
    """The folder of one repository's copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self._note = folder / NOTE
        self._refusal = folder / "refused.json"

    def note(self) -> dict[str, Any]:
        """The content of `clone.json`; empty if the tree is not complete."""
        try:
            note = json.loads(self._note.read_bytes())
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) and (self.tree / ".git").is_dir() else {}

    def commit(self) -> str:
        """The commit of the tree."""
        return str(self.note().get("commit", ""))

    def forget(self) -> None:
        """Marks the tree as incomplete before it is changed, and deletes what a kill has left."""
        self._note.unlink(missing_ok=True)
        self._refusal.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in (*self.folder.glob("new-*"), *self.folder.glob("old-*")):
            shutil.rmtree(leftover, ignore_errors=True)

    def refuse(self, verdict: list[Any], why: str) -> None:
        """Stores why a commit was refused under these limits, so that the next run need not fetch it again."""
        self._refusal.write_text(json.dumps({"verdict": verdict, "why": why}))

    def refused(self, verdict: list[Any]) -> str | None:
        """Why a commit was refused under these limits before; None if it was not."""
        try:
            known = json.loads(self._refusal.read_bytes())
            return str(known["why"]) if known["verdict"] == verdict else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def can_be_updated(self) -> bool:
        """Whether there is a repository that can be updated."""
        packs = self.tree / ".git" / "objects" / "pack"
        return packs.is_dir() and len(list(packs.glob("*.pack"))) < _MAX_PACKS

    def replace(self, new: Path) -> None:
        """Replaces the old tree by a new one."""
        old = self.folder / f"old-{os.getpid()}"
        if self.tree.exists():
            self.tree.rename(old)
        new.rename(self.tree)
        shutil.rmtree(old, ignore_errors=True)
