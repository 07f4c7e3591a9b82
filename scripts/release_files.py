"""What `scripts/release` does with files: links of the README, and the contents of what was built.

python scripts/release_files.py links README.md VERSION    makes links into the repository absolute
python scripts/release_files.py check dist SOURCE          exits 1 if a file is missing, or must not be there
"""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
SOURCES = (".c", ".h")


def absolute_links(text: str, repository: str, version: str) -> str:
    """The README with links that work outside of the repository: on the files of the released version."""

    def absolute(match: re.Match[str]) -> str:
        image, words, path, anchor = match[1], match[2], match[3], match[4] or ""
        return f"{image}[{words}]({repository}/{'raw' if image else 'blob'}/v{version}/{path}{anchor})"

    return _LINK.sub(absolute, text)


def faults(folder: Path, source: Path) -> list[str]:
    """What is wrong with the sdist and the wheel in a folder, which were built of `source`."""
    (sdist,), (wheel,) = folder.glob("weft-*.tar.gz"), folder.glob("weft-*.whl")
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.partition("/")[2] for member in archive if member.isfile()}
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("weft/")}
    tracked = {str(path.relative_to(source)) for path in (source / "src/weft").rglob("*") if path.is_file()}
    installed = {name.removeprefix("src/") for name in tracked if not name.endswith(SOURCES)}
    found = [f"the sdist lacks {name}" for name in sorted({*tracked, "LICENSE", "README.md"} - in_sdist)]
    found += [f"the sdist has {name}" for name in sorted(in_sdist - tracked) if name.startswith("src/weft/")]
    found += [f"the wheel lacks {name}" for name in sorted(installed - in_wheel)]
    found += [f"the wheel has {name}" for name in sorted(in_wheel - installed) if not name.endswith(".so")]
    return found


def main(verb: str, where: str, what: str) -> int:
    """Does one of the two; returns the exit code."""
    path = Path(where)
    if verb == "links":
        project = tomllib.loads((path.parent / "pyproject.toml").read_text())["project"]
        path.write_text(absolute_links(path.read_text(), project["urls"]["Repository"], what))
        return 0
    for fault in (found := faults(path, Path(what))):
        print(f"make release: {fault}", file=sys.stderr)
    for built in sorted(path.glob("weft-*")):
        print(f"{built}: {built.stat().st_size / 1e6:.2f} MB")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
