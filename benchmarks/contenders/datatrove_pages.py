"""The pages of a folder of WARC files through datatrove, in one process: text by trafilatura, Gopher's filters and
C4's, then near duplicates by MinHash in its four steps. Prints how many pages were read and how many are left.

    python datatrove_pages.py FOLDER OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import C4QualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader, WarcReader
from datatrove.pipeline.writers import JsonlWriter

# As near to Weft's 25 bands of 5 rows over sequences of 3 words as its settings allow.
NEAR = MinhashConfig(n_grams=3, num_buckets=25, hashes_per_bucket=5)


def main() -> None:
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    kept, left = out / "kept", out / "left"

    def run(name: str, *steps: object, tasks: int = 1) -> None:
        LocalPipelineExecutor(list(steps), tasks=tasks, workers=1, logging_dir=str(out / "logs" / name)).run()

    run(
        "filter", WarcReader(str(source), glob_pattern="*.warc.gz"), Trafilatura(), GopherRepetitionFilter(),
        GopherQualityFilter(), C4QualityFilter(filter_curly_bracket=False), JsonlWriter(str(kept), compression=None),
    )  # fmt: skip
    reader, extractor = (step["stats"] for step in json.loads((out / "logs" / "filter" / "stats.json").read_text())[:2])
    if "extracted" not in extractor:  # it goes on without the pages that it has no text of
        sys.exit(f"no page's text could be extracted: {extractor}")
    if any(kept.glob("*.jsonl")):
        sketches, pairs, removed = str(out / "sketches"), str(out / "pairs"), str(out / "removed")
        run("sketch", JsonlReader(str(kept)), MinhashDedupSignature(sketches, config=NEAR))
        run("pairs", MinhashDedupBuckets(sketches, pairs, config=NEAR), tasks=NEAR.num_buckets)
        run("cluster", MinhashDedupCluster(pairs, removed, config=NEAR))
        writer = JsonlWriter(str(left), compression=None)
        run("remove", JsonlReader(str(kept)), MinhashDedupFilter(removed), writer)
    rows = sum(path.read_bytes().count(b"\n") for path in left.glob("*.jsonl"))
    print(json.dumps({"read": reader["documents"]["total"], "left": rows}))


if __name__ == "__main__":
    main()
