"""Where a crawl begins: the URLs that a person gave, on the command line or in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft import urls
from weft.errors import BadInput, BadUrl


def read_seed_file(path: str, complain: Callable[[str], None]) -> list[str]:
    """The canonical seeds of a file; a line that is no URL is told with its number, and the others count."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(65536)  # the rest when this is text: a device may have no end
            if b"\0" in raw:
                raise BadInput(f"seed file {path}: is not text; write one URL a line")
            raw += file.read()
    except OSError as error:
        raise BadInput(f"seed file {path}: cannot be read: {error.strerror}") from None
    seeds = []
    for number, line in enumerate(raw.decode("utf-8-sig", "replace").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            seeds.append(urls.seed(text))
        except BadUrl as bad:
            complain(f"{path}:{number}: {bad}")
    if not seeds:
        raise BadInput(f"seed file {path}: holds no URL; write one a line")
    return list(dict.fromkeys(seeds))
