"""How similar two texts are, by a few numbers of each: MinHash, with bands for finding candidates. Pure; needs numpy.

A text's shingles are every SHINGLE words in a row, without case and punctuation. Similarity is the share of shingles
that two texts have in common (Jaccard). It is estimated from sketches: each shingle falls into one of BINS by its
number, and the least number in each bin is kept (one-permutation MinHash). A bin that is empty, as in a short text,
borrows from another in an order that is fixed for each bin (optimal densification, Shrivastava 2017), so that
sketches are comparable.

Candidates are found by bands (LSH): texts that agree in all ROWS numbers of some band. For similar texts that is
likely (0.75: 99.9 %, 0.65: 95 %), for others not (0.2: 0.8 %, 0.05: 1 in 130,000), so that comparing the candidates
alone takes linear time.

Invariant: the sketch of a text is the same in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import xxhash

from weft.extract.text.arrays import np
from weft.extract.text.words import Text, Words, mixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.extract.text.words import Numbers

SHINGLE = 3
BINS = 128
BANDS, ROWS = 25, 5
SKETCH_BYTES = 2 * BINS
DIGEST_BYTES = 16
# Two texts with this similarity differ in about 7 % of their words.
NEAR = 0.6

_BIN_SHIFT = np.uint64(57)
_EMPTY = np.uint64((1 << 64) - 1)
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_ROW_FACTORS = np.array(
    [0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x2545F4914F6CDD1D, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64
)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A text, as far as it is compared. Equal digests: the same words in the same order."""

    digest: bytes
    minima: bytes


def sketch(text: str | Text) -> Sketch | None:
    """The sketch of a text; None for one without words."""
    words = (text if isinstance(text, Text) else Text(text)).bare
    if not len(words):
        return None
    digest = xxhash.xxh3_128_digest(words.numbers.tobytes())
    return Sketch(digest, _minima(_shingles(words)).tobytes())


def similarity(one: bytes, other: bytes) -> float:
    """The estimated similarity of two texts by their minima: 0 to 1, with a standard error of 0.04."""
    same = np.frombuffer(one, np.uint16) == np.frombuffer(other, np.uint16)
    return float(np.count_nonzero(same)) / BINS


def bands(minima: bytes) -> list[int]:
    """A number of 32 bits for each band; similar texts have one in common."""
    rows = np.frombuffer(minima, np.uint16)[: BANDS * ROWS].reshape(BANDS, ROWS).astype(np.uint64)
    numbers = mixed((rows * _ROW_FACTORS).sum(axis=1, dtype=np.uint64) + _band_numbers())
    found: list[int] = (numbers >> np.uint64(32)).tolist()
    return found


def _shingles(words: Words) -> Numbers:
    """The numbers of all shingles; a text with fewer words is one."""
    numbers = words.numbers
    size = min(SHINGLE, len(numbers))
    count = len(numbers) - size + 1
    return mixed(sum((numbers[at : at + count] * _FACTORS[at] for at in range(size)), np.zeros(count, np.uint64)))


def _minima(shingles: Numbers) -> NDArray[np.uint16]:
    least = np.full(BINS, _EMPTY)
    np.minimum.at(least, (shingles >> _BIN_SHIFT).astype(np.intp), shingles)
    filled = least != _EMPTY
    if not filled.all():
        empty = np.flatnonzero(~filled)
        order = _orders()[empty]
        least[empty] = least[order[np.arange(len(empty)), filled[order].argmax(axis=1)]]
    return mixed(least).astype(np.uint16)


@lru_cache(maxsize=1)
def _orders() -> NDArray[np.intp]:
    """For each bin, the order in which it asks the others."""
    draws = mixed(np.arange(1, BINS * BINS + 1, dtype=np.uint64) * _FACTORS[0])
    return draws.reshape(BINS, BINS).argsort(axis=1, kind="stable")


@lru_cache(maxsize=1)
def _band_numbers() -> Numbers:
    return mixed(np.arange(1, BANDS + 1, dtype=np.uint64) * _FACTORS[1])
