"""Writes all items of a crawl at once, for `weft items` and `weft export --items`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from weft.crawl.items.processed import reader_of
from weft.crawl.items.writing import STDOUT, WholeFile, all_items, check_output
from weft.errors import BadInput

# Characters that JSON does not escape and a terminal might interpret.
_CONTROL_CHARACTERS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def write_items(data_dirs: Sequence[Path], out: str, *, overwrite: bool = False, on_terminal: bool = False) -> int:
    """Writes all items; returns their number. Raises BadInput if the file exists."""
    format_ = check_output(out)
    if out == STDOUT:
        return _print_items(data_dirs, on_terminal=on_terminal)
    if Path(out).exists() and not overwrite:
        raise BadInput(f"{out} exists already: overwrite it with `--overwrite`")
    whole = WholeFile(partial(all_items, data_dirs), Path(out), format_)
    whole.close()
    return whole.written


def _print_items(data_dirs: Sequence[Path], *, on_terminal: bool) -> int:
    reader, count, write = reader_of(data_dirs), 0, sys.stdout.buffer.write
    try:
        for item in reader.new_items():
            line = (
                _CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", item.decode()).encode()
                if on_terminal
                else item
            )
            write(line + b"\n")
            count += 1
        sys.stdout.buffer.flush()
    finally:
        reader.close()
    return count
