"""A crawl that can be stopped at any moment and goes on when it is called again: Ctrl-C, kill -9, a power cut.

    WEFT_EMAIL=you@example.com python examples/resume.py ./weft-data https://example.com

Call it again with the same folder. Pages that were stored before are not fetched again; the loop gives each page once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import weft


def main(folder: Path, seeds: list[str]) -> None:
    going_on = (folder / "engine.json").exists()
    print("going on" if going_on else "starting", flush=True)
    pages = 0
    try:
        for page in weft.crawl([] if going_on else seeds, data_dir=folder, resume=going_on):
            pages += 1
            print(page.url, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {pages} pages: call again to go on")
        return
    print(f"finished: {pages} pages in {folder}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
