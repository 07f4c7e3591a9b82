"""The progress of queueing stored URLs again: in steps, each noted together with its URLs, so that a kill costs one
step.

The note is `WHAT ITEM` while it is under way (all up to this item are queued), and `WHAT` when it is over. `WHAT` has
no space: the run that wants it, or a name of what is queued.
"""

from __future__ import annotations

from typing import NamedTuple

URLS_PER_STEP = 1000  # URLs


class RevisitWalk(NamedTuple):
    """What is queued again, and after which item the walk continues."""

    what: str
    after: int = 0
    is_over: bool = False

    @classmethod
    def parse_note(cls, note: str | None, what: str, *, continues: bool) -> RevisitWalk:
        """The walk of a note; `continues`: one that was begun under another name is the same."""
        begun, _, last = (note or "").partition(" ")
        if last and (continues or begun == what):
            return cls(what, int(last))
        return cls(what, 0, bool(note) and begun == what)

    def note_at(self, item: int) -> str:
        """The note when all up to an item are queued."""
        return f"{self.what} {item}"


def is_walk_unfinished(note: str | None) -> bool:
    """Whether the walk was begun and is not over."""
    return " " in (note or "")
