"""The pages that main text is measured on, and how well a text fits the true one.

Two sets, each scored as its authors do: WCXB by the F1 of words, mixed pages of seven types; the article extraction
benchmark (`aeb`) by shingles of four words, whose precision and recall are means over the pages.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDS = 5
SHINGLE = 4
_WORDS = re.compile(r"\w+")
# WCXB's types of page, as Weft's kinds.
KINDS = {
    "article": "article", "documentation": "documentation", "forum": "forum", "product": "product",
    "collection": "listing", "listing": "listing", "service": "landing",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TruePage:
    """A page and what is true of it."""

    set: str  # wcxb or aeb
    id: str
    url: str
    type: str
    body: bytes
    truth: str

    @property
    def fold(self) -> int:
        """Pages of one domain are in one fold."""
        host = self.url.split("/")[2] if "//" in self.url else self.id
        return zlib.crc32(".".join(host.split(".")[-2:]).encode()) % FOLDS


def wcxb(archive: Path) -> list[TruePage]:
    """The pages of WCXB that are in an archive."""
    files = dict(_files(archive))
    found = []
    for name, data in sorted(files.items()):
        if name.endswith(".json") and (page := files.get(f"{name[:-5]}.html.gz")) is not None:
            truth = json.loads(data)
            text = truth["main_content"] or ""
            found.append(TruePage("wcxb", name[:-5], truth["url"], truth["page_type"], gzip.decompress(page), text))
    return found


def aeb(archive: Path) -> list[TruePage]:
    """The pages of the article extraction benchmark that are in an archive."""
    files = dict(_files(archive))
    truths = json.loads(files["ground-truth.json"])
    return [
        TruePage("aeb", name, truth["url"], "article", gzip.decompress(files[f"{name}.html.gz"]), truth["articleBody"])
        for name, truth in sorted(truths.items())
    ]


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and (file := tar.extractfile(member)) is not None:
                yield Path(member.name).name, file.read()


def word_f1(found: str, true: str) -> float:
    """Of the words, as a multiset."""
    ours, theirs = Counter(_WORDS.findall(found.lower())), Counter(_WORDS.findall(true.lower()))
    common = sum((ours & theirs).values())
    if not common:
        return float(not ours and not theirs)
    return f1(common / sum(ours.values()), common / sum(theirs.values()))


def f1(precision: float, recall: float) -> float:
    """The harmonic mean."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def shingle_scores(found: str, true: str) -> tuple[float | None, float | None]:
    """Precision and recall of the shingles; None where there is nothing to be right or wrong about."""
    ours, theirs = _shingles(found), _shingles(true)
    common = sum((ours & theirs).values())
    return (
        common / sum(ours.values()) if ours else None,
        common / sum(theirs.values()) if theirs else None,
    )


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = _WORDS.findall(text)
    if not words:
        return Counter()
    return Counter(tuple(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))


def shingle_means(scores: list[tuple[float | None, float | None]]) -> tuple[float, float, float]:
    """F1, precision and recall of several pages: the F1 is that of the means."""
    precision = statistics.mean(one for one, _ in scores if one is not None)
    recall = statistics.mean(one for _, one in scores if one is not None)
    return f1(precision, recall), precision, recall
