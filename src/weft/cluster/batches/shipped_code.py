"""The code that a run's items need: named with hashes, so that a hand can see whether it has the same, and packed into
a zip for hands that take it (`weft worker --accept-code`).

Code is the module or script of the function, the author's own modules that it imports, and for a pipeline the same of
each of its stages, with the files that a stage names. Weft itself and installed packages are not shipped: a hand has
them, or says so.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from weft.cluster.batches.batch_messages import CodeFile, digest
from weft.errors import BadInput
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.spec.imports import own_modules
from weft.pipelines.spec.plan import module_file

MOST_BYTES = 20 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_INSTALLED = ("site-packages", "dist-packages")


class GatheredCode(NamedTuple):
    """What a run needs, and the bytes of what can be shipped, by the name in the zip."""

    files: list[CodeFile]
    shipped: dict[str, bytes]


def gather(callables: Iterable[str], extra: Iterable[str] = ()) -> GatheredCode:
    """The code of these callables and these files; BadInput if some of it cannot be found."""
    here = Path.cwd()
    files: dict[str, CodeFile] = {}
    shipped: dict[str, bytes] = {}
    found = _modules(callables, here)
    known = {path.absolute() for path in found.values()}
    found |= {str(path): path for one in extra if (path := Path(one).absolute()) not in known}
    for name, path in found.items():
        data = _read(path)
        code = _named(name, path, here, digest(data))
        files[code.path] = code
        if not code.module.startswith("weft.") and not any(part in _INSTALLED for part in path.parts):
            shipped[_in_zip(code.path)] = data
    return GatheredCode(sorted(files.values(), key=lambda one: one.path), shipped)


def zipped(shipped: dict[str, bytes]) -> bytes:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(shipped):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o600 << 16
            archive.writestr(info, shipped[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def in_zip(script: str) -> str:
    """Where a script is in the zip."""
    return _in_zip(_beside(Path(script), Path.cwd()))


def _modules(callables: Iterable[str], here: Path) -> dict[str, Path]:
    """Files by module name, or by path where they are scripts."""
    found: dict[str, Path] = {}
    for name in callables:
        target = CallableTarget.of(name)
        path = module_file(name, "the code of this run")
        module = "" if target.script is not None else target.module
        folders = [here, *([path.parent.absolute()] if target.script is not None else [])]
        for own in own_modules(path, module, folders):
            is_script = target.script is not None and own.path == path
            found[str(path.absolute()) if is_script else ".".join(own.name)] = own.path
    return found


def _named(name: str, path: Path, here: Path, hashed: str) -> CodeFile:
    if name.startswith("/"):
        return CodeFile("", _beside(path, here), hashed)
    below = Path(*name.split("."))
    own = below / path.name if path.name.startswith("__init__.") else below.with_name(path.name)
    return CodeFile(name, str(own), hashed)


def _beside(path: Path, here: Path) -> str:
    """How a file is named from the current directory; another one keeps its whole path."""
    path = path.absolute()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _in_zip(path: str) -> str:
    return f"outside/{digest(path.encode())[:16]}/{Path(path).name}" if path.startswith("/") else path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} is code of this run and cannot be read: {error.strerror}") from None
