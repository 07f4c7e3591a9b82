"""Hold a list of URLs against a crawl: what is there, and for each one that is not, the reason.

    python examples/why_missing.py ./weft-data wanted.txt

One URL a line. `weft explain ./weft-data URL` gives the evidence for one of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from weft.crawl.reports.crawls import ReportFolder
from weft.crawl.reports.explain import Explanations


def main(data_dir: str, wanted: Path) -> None:
    folder = ReportFolder([data_dir])
    explanations = Explanations(folder)
    counts: Counter[str] = Counter()
    for url in filter(None, map(str.strip, wanted.read_text(encoding="utf-8").splitlines())):
        for answer in explanations.explain(url):  # of an engine's folder: one for each crawl that has it
            counts[answer.reason] += 1
            if answer.reason != "page":
                print(f"{answer.reason}: {answer.url}: {answer.summary}")
    explanations.close()
    folder.close()
    print(", ".join(f"{reason} {count}" for reason, count in counts.most_common()))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
