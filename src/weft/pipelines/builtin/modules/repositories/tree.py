"""A checked-out working tree: what is in it, and that no link points out of it.

Invariant: a caller that reads through a `Tree` reads files of the repository only, a bounded number of bytes each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from weft.pipelines.builtin.modules.errors import RefusedRepository

# Folders that hold what others have written, or what was built: neither counted as the repository's own code.
FOREIGN = frozenset({"node_modules", "bower_components", "vendor", "third_party", "dist", "build", "site-packages"})


class Tree:
    """The files of a working tree with their sizes, sorted by path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sizes = dict(sorted(_files_with_sizes(root)))

    def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """Reads at most `limit` bytes of a file."""
        with (self.root / path).open("rb") as file:
            return file.read(limit)

    def text(self, path: str, limit: int = 1_000_000) -> str:
        """Reads the beginning of a file as text; invalid bytes are replaced."""
        return self.read(path, limit).decode("utf-8-sig", errors="replace")

    def at_top(self, matches: Callable[[str], bool]) -> list[str]:
        """The files of the top folder whose names match."""
        return [path for path in self.sizes if "/" not in path and matches(path)]

    def own(self, *suffixes: str) -> Iterator[str]:
        """The repository's own files with one of these suffixes."""
        for path in self.sizes:
            if path.lower().endswith(suffixes) and not FOREIGN.intersection(path.split("/")[:-1]):
                yield path


def refuse_links_out(root: Path) -> None:
    """Raises `RefusedRepository` for the first symbolic link that points out of the tree, or into `.git`.

    The kernel's view is asked, not the texts of the links: `a/b/../../x` leads elsewhere if `a/b` is a link, too.
    """
    inside, repository = root.resolve(), (root / ".git").resolve()
    for path in _all_paths(root):
        if path.is_symlink():
            target = Path(os.path.realpath(path))  # a loop of links ends there, and in `resolve` with an error
            if not target.is_relative_to(inside) or target.is_relative_to(repository):
                shown = str(path.relative_to(root))
                raise RefusedRepository(
                    f"the symbolic link {shown!r} leads out of the repository, to {str(path.readlink())!r}"
                )


def _all_paths(root: Path) -> Iterator[Path]:
    """All paths in a tree, without following links, and without `.git`."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        if here == root and ".git" in folders:
            folders.remove(".git")
        yield from (here / name for name in (*folders, *files))


def _files_with_sizes(root: Path) -> Iterator[tuple[str, int]]:
    for path in _all_paths(root):
        try:
            name = str(path.relative_to(root))
            name.encode()  # one that is no text cannot be in a catalogue
            if path.is_file():
                yield name, path.stat().st_size
        except (OSError, UnicodeError):
            continue
