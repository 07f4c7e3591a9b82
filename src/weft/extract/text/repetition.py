"""How much of a text repeats itself: the n-gram signals of Gopher (Rae et al. 2021, table A1). Pure; needs numpy.

Of 2 to 4 words in a row: the share of the text's characters that the most frequent sequence has. Of 5 to 10: the
share that lies in sequences that have occurred before, each character counted once. Characters are those of words. In
a script without spaces a word is taken as two characters.

Most texts repeat few sequences, and what is repeated over n + 1 words is repeated over n: so each length is looked for
only where the shorter one was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.extract.text.arrays import np
from weft.extract.text.words import Text, mixed, powers, sums

if TYPE_CHECKING:
    from weft.extract.text.words import Numbers, Places

TOP = (2, 3, 4)
REPEATED = (5, 6, 7, 8, 9, 10)


class _Sequences:
    """The numbers of sequences of words."""

    def __init__(self, text: Text) -> None:
        words = text.spaced
        self.count = len(words)
        self.chars = sums(words.lengths, np.intp)
        self.total = int(self.chars[-1])
        factors, self._inverse = powers(self.count)
        self._before = sums(words.numbers.astype(np.uint32) * factors[: self.count], np.uint32)

    def numbers(self, places: Places, size: int) -> Numbers:
        if len(places) == self.count - size + 1:  # everywhere: no need to pick them out
            differences = (self._before[size:] - self._before[:-size]) * self._inverse[: len(places)]
        else:
            differences = (self._before[places + size] - self._before[places]) * self._inverse[places]
        return mixed(differences.astype(np.uint64))

    def share(self, place: int, count: int, size: int) -> float:
        """The share of a sequence that occurs so often; at most 1, since occurrences may overlap."""
        return min(1.0, count * int(self.chars[place + size] - self.chars[place]) / self.total)

    def covered_share(self, places: Places, size: int) -> float:
        """The share of the characters in sequences at these places, which are all different."""
        if not len(places):
            return 0.0
        changes = np.zeros(self.count + 1, np.intp)
        changes[places] += 1
        changes[places + size] -= 1
        covered = changes[:-1].cumsum().nonzero()[0]
        return int((self.chars[covered + 1] - self.chars[covered]).sum()) / self.total


def repetition(text: Text) -> dict[str, float]:
    """The signals by name: `top_2gram`, ..., `duplicate_10gram`."""
    found = {f"top_{n}gram": 0.0 for n in TOP} | {f"duplicate_{n}gram": 0.0 for n in REPEATED}
    if not len(text.spaced):
        return found
    sequences, unit = _Sequences(text), 2 if text.is_unspaced else 1
    places = np.arange(sequences.count)
    for n in TOP + REPEATED:
        size = n * unit
        places = places[: places.searchsorted(sequences.count - size, side="right")]
        if len(places) < 2:
            break
        numbers = sequences.numbers(places, size)
        if n in TOP:
            top, count, several = _most_frequent(numbers)
            found[f"top_{n}gram"] = sequences.share(int(places[top]), count, size) if count > 1 else 0.0
        else:
            again, several = _repeated(numbers)
            found[f"duplicate_{n}gram"] = sequences.covered_share(places[again], size)
        places = places[several]
    return found


def _most_frequent(numbers: Numbers) -> tuple[int, int, Places]:
    """Where the most frequent number first is, how often it occurs, and where those are that may occur several times.

    Numbers are counted by some of their bits, which is faster than sorting them. Few share these bits with others; if
    those could be the most frequent, all whose bits occur as often are sorted after all.
    """
    buckets = (numbers >> np.uint64(64 - min(20, len(numbers).bit_length() + 3))).astype(np.intp)
    counts = np.bincount(buckets)
    shared = counts[buckets]
    several = (shared > 1).nonzero()[0]
    if not len(several):
        return 0, 1, several
    shared, buckets = shared[several], buckets[several]
    is_inside = buckets == buckets[shared == shared.max()].min()
    inside = several[is_inside]
    first, count = _most_equal(numbers[inside])
    if len(inside) < len(several) and count < shared[~is_inside].max():
        inside = several[shared >= max(2, count)]
        first, count = _most_equal(numbers[inside])
    return int(inside[first]), count, several


def _most_equal(numbers: Numbers) -> tuple[int, int]:
    """The first place of the most frequent number, and how often it occurs; often they are all the same."""
    if (numbers == numbers[0]).all():
        return 0, len(numbers)
    order = numbers.argsort(kind="stable")
    ordered = numbers[order]
    changes = np.ones(len(numbers) + 1, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:-1])
    edges = changes.nonzero()[0]
    counts = edges[1:] - edges[:-1]
    most = int(counts.argmax())
    return int(order[edges[most]]), int(counts[most])


def _repeated(numbers: Numbers) -> tuple[Places, Places]:
    """Where numbers are that occurred before, and where those are that occur several times."""
    order = numbers.argsort(kind="stable")
    same = numbers[order[1:]] == numbers[order[:-1]]
    several = np.zeros(len(order), np.bool_)
    several[order[1:][same]] = True
    again = several.nonzero()[0]
    if not len(again):
        return again, again
    several[order[:-1][same]] = True
    return again, several.nonzero()[0]
