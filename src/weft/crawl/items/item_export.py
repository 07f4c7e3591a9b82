"""All items of a crawl in one go, for `weft items` and `weft export --items`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from weft.crawl.items.processed import reader_of
from weft.crawl.items.writing import STDOUT, WholeFile, all_items, check_output
from weft.errors import BadInput

# What JSON leaves as it is and a terminal might act on.
_CODES = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def write_items(data_dirs: Sequence[Path], out: str, *, overwrite: bool = False, on_terminal: bool = False) -> int:
    """Writes them; how many there are. BadInput for a file that is there."""
    format_ = check_output(out)
    if out == STDOUT:
        return _print_items(data_dirs, on_terminal=on_terminal)
    if Path(out).exists() and not overwrite:
        raise BadInput(f"{out} is there already: overwrite it with `--overwrite`")
    whole = WholeFile(partial(all_items, data_dirs), Path(out), format_)
    whole.close()
    return whole.written


def _print_items(data_dirs: Sequence[Path], *, on_terminal: bool) -> int:
    reader, count, write = reader_of(data_dirs), 0, sys.stdout.buffer.write
    try:
        for item in reader.new():
            line = _CODES.sub(lambda found: f"\\u{ord(found[0]):04x}", item.decode()).encode() if on_terminal else item
            write(line + b"\n")
            count += 1
        sys.stdout.buffer.flush()
    finally:
        reader.close()
    return count
