"""Hold a list of URLs against a crawl: what is there, and for each one that is not, the reason.

    python examples/why_missing.py ./weft-data wanted.txt

One URL a line. `weft explain ./weft-data URL` gives the evidence for one of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import weft


def main(data_dir: str, wanted: Path) -> None:
    counts: Counter[str] = Counter()
    with weft.StoredPages(data_dir) as pages:
        for url in filter(None, map(str.strip, wanted.read_text(encoding="utf-8").splitlines())):
            for answer in pages.explain(url):  # of an engine's folder: one for each crawl that has it
                counts[answer.reason] += 1
                if answer.reason != "page":
                    print(f"{answer.reason}: {answer.url}: {answer.summary}")
    print(", ".join(f"{reason} {count}" for reason, count in counts.most_common()))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
