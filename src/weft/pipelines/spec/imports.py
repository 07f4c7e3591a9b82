"""The author's own modules that a stage's module imports, read from the source: nothing is imported to find them.

A stage's code version is the content of these files. Own is what lies in the folder that the stage's package is
imported from, beside the pipeline's file, or in the current directory; of an installed package, that package alone. The
standard library, other installed packages and Weft itself are not: their changes are a matter of versions.

Invariant: the same files with the same content give the same list, whatever was imported before.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from weft.errors import BadInput

MOST_FILES = 5_000
_INSTALLED_FOLDERS = ("site-packages", "dist-packages")
_ENVIRONMENT_NAMES = ("environ", "environb", "getenv")


class OutsideRead(NamedTuple):
    """A line of code that reads something which is not part of a cache key."""

    path: Path
    line: int
    what: str
    """`environment`, or `file`."""


class OwnModule(NamedTuple):
    """A module that the pipeline's author has written."""

    name: tuple[str, ...]
    """Its name in parts."""
    path: Path

    @property
    def package(self) -> tuple[str, ...]:
        return self.name if self.path.name == "__init__.py" else self.name[:-1]


def own_files(path: Path, module: str, folders: Sequence[Path]) -> list[Path]:
    """The file of a module, and of every own module that it imports, directly or through others."""
    return [one.path for one in own_modules(path, module, folders)]


def own_modules(path: Path, module: str, folders: Sequence[Path]) -> list[OwnModule]:
    """Like `own_files`, with the names of the modules."""
    first = OwnModule(tuple(module.split(".")) if module else (path.stem,), path)
    if first.name[0] == "weft":
        return [first]
    root = _root_of(first)
    is_installed = root.name in _INSTALLED_FOLDERS or root == Path(ast.__file__).parent
    roots = [root] if is_installed else [root, *(one for one in folders if one != root)]
    only = {first.name[0]} if is_installed else None
    modules, waiting = {path: first}, [first]
    while waiting:
        for imported in _imported_names(waiting.pop()):
            for other in _locate_import(imported, roots, only):
                if other.path not in modules:
                    modules[other.path] = other
                    waiting.append(other)
        if len(modules) > MOST_FILES:
            raise BadInput(f"{path} imports more than {MOST_FILES:,} files of its own: give its stage a `version`")
    return list(modules.values())


def outside_reads(path: Path) -> list[OutsideRead]:
    """Where a file reads the environment, or a data file that it names."""
    tree = _parse_file(path)
    if tree is None:
        return []
    reads = (
        (node.lineno, what) for node in ast.walk(tree) if (what := _what_it_reads(node)) and isinstance(node, ast.expr)
    )
    return [OutsideRead(path, line, what) for line, what in sorted(reads)]


def _what_it_reads(node: ast.AST) -> str:
    """What an expression reads (environment or file); empty if nothing known."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
        return "environment" if node.attr in _ENVIRONMENT_NAMES else ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return "file" if node.id == "__file__" else "environment" if node.id in _ENVIRONMENT_NAMES else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open" and node.args:
        mode = node.args[1] if len(node.args) > 1 else None
        is_written = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and not mode.value.startswith("r")
        return "file" if isinstance(node.args[0], ast.Constant) and not is_written else ""
    return ""


def _root_of(module: OwnModule) -> Path:
    """The folder that a module is imported from."""
    depth = len(module.package)
    parents = module.path.parents
    return parents[depth] if depth < len(parents) else module.path.parent


def _parse_file(path: Path) -> ast.Module | None:
    """Parses a file; None if it is not valid Python: its content still counts, but no imports are followed."""
    if path.suffix != ".py":
        return None
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported_names(module: OwnModule) -> Iterator[tuple[str, ...]]:
    """The names that a module imports, including imports inside functions."""
    tree = _parse_file(module.path)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.package
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = (*above, *(node.module.split(".") if node.module else ()))
            yield base
            yield from ((*base, alias.name) for alias in node.names)


def _locate_import(name: tuple[str, ...], roots: Sequence[Path], only: Collection[str] | None) -> Iterator[OwnModule]:
    """The modules that run when a name is imported: those of its packages, and its own."""
    if not name or name[0] == "weft" or (only is not None and name[0] not in only):
        return
    for root in roots:
        located = [
            OwnModule(name[:end], path) for end in range(1, len(name) + 1) if (path := _module_file(root, name[:end]))
        ]
        if located:
            yield from located
            return


def _module_file(root: Path, name: tuple[str, ...]) -> Path | None:
    place = root.joinpath(*name)
    for path in (place / "__init__.py", place.with_name(f"{name[-1]}.py")):
        if path.is_file():
            return path
    return (
        next((path for path in sorted(place.parent.glob(f"{name[-1]}.*.so"))), None) if place.parent.is_dir() else None
    )
