"""How the processes of a hand learn that it ends: by a file in its folder, since a task does not hear its signals."""

from __future__ import annotations

from pathlib import Path

from weft.cluster.tasks import HandSide

_NAME = "ending"


def announce_end(folder: Path) -> None:
    """The hand ends when its tasks have ended: those that can return work should."""
    (folder / _NAME).touch()


def ends(side: HandSide) -> bool:
    """Whether the hand of this process ends."""
    return (side.folder.parent / _NAME).exists()
