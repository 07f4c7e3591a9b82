"""How much of a text repeats itself: the n-gram signals of Gopher (Rae et al. 2021, table A1). Pure; needs numpy.

Of 2 to 4 words in a row: the share of the text's characters that the most frequent sequence has. Of 5 to 10: the
share that lies in sequences that have occurred before, each character counted once. Characters are those of words. In
a script without spaces a word is taken as two characters.

Most texts repeat few sequences, and what is repeated over n + 1 words is repeated over n: so each length is looked for
only where the shorter one was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.extract.arrays import np
from weft.extract.words import Text, mixed, powers, sums

if TYPE_CHECKING:
    from weft.extract.words import Numbers, Places

TOP = (2, 3, 4)
REPEATED = (5, 6, 7, 8, 9, 10)


class _Groups(NamedTuple):
    """Equal sequences: those that occur several times, those of them that occurred before, the most frequent."""

    several: Places
    again: Places
    top: int
    top_count: int


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
        differences = (self._before[places + size] - self._before[places]) * self._inverse[places]
        return mixed(differences.astype(np.uint64))

    def top_share(self, groups: _Groups, size: int) -> float:
        """At most 1: occurrences may overlap."""
        return min(1.0, groups.top_count * int(self.chars[groups.top + size] - self.chars[groups.top]) / self.total)

    def covered_share(self, places: Places, size: int) -> float:
        """The share of the characters in sequences at these places, which are all different."""
        changes = np.zeros(self.count + 1, np.intp)
        changes[places] += 1
        changes[places + size] -= 1
        covered = np.flatnonzero(np.cumsum(changes[:-1]))
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
        places = places[: np.searchsorted(places, sequences.count - size, side="right")]
        groups = _groups(places, sequences.numbers(places, size)) if len(places) > 1 else None
        if groups is None:
            break
        if n in TOP:
            found[f"top_{n}gram"] = sequences.top_share(groups, size)
        else:
            found[f"duplicate_{n}gram"] = sequences.covered_share(groups.again, size)
        places = groups.several
    return found


def _groups(places: Places, numbers: Numbers) -> _Groups | None:
    """Which of the sequences at these places occur several times; None if none does."""
    order = _order(numbers)
    ordered = numbers[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return None
    in_group = np.zeros(len(order), np.bool_)
    in_group[1:] = same
    again = order[in_group]
    in_group[:-1] |= same
    begins = np.flatnonzero(np.concatenate(([True], ~same)))
    counts = np.diff(begins, append=len(order))
    largest = int(counts.argmax())
    return _Groups(
        places[np.sort(order[in_group])], places[again], int(places[order[begins[largest]]]), int(counts[largest])
    )


def _order(numbers: Numbers) -> Places:
    """The order in which equal numbers are together: by 32 of their bits, 16 at a time, which is four times as fast."""
    low, high = ((numbers >> np.uint64(shift)).astype(np.uint16) for shift in (32, 48))
    order = np.argsort(low, kind="stable")
    return order[np.argsort(high[order], kind="stable")]
