"""A text as arrays: its characters, its words, and a number for each word. Pure; with numpy, the extra `pages`.

What is counted over whole texts (quality, similarity) would cost several loops over thousands of words in Python; with
arrays it takes about a millisecond. Words are of two kinds: `spaced`, which stand between white space with
whatever is attached to them, and `bare`, letters and digits alone. In both, a character of a script that is written
without spaces (Chinese, Japanese, Thai, ...) is a word of its own.

Invariants: time and memory are bounded by MAX_CHARS; numbers of words are the same in every process and version of
Python, and so are those of equal words in different texts.
"""

from __future__ import annotations

import unicodedata
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from weft.extract.text.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.uint64]
    Places: TypeAlias = NDArray[np.intp]
    Flags: TypeAlias = NDArray[np.bool_]

MAX_CHARS = 1 << 20  # of a text that are looked at

_BMP = 1 << 16
_SPACE, _WORD, _LETTER, _ALONE, _SHORT = 1, 2, 4, 8, 16
# Blocks whose scripts are written without spaces: Thai and Lao, Tibetan, Myanmar, Khmer, kana, ideographs, Yi.
_UNSPACED = (
    (0x0E00, 0x0EFF), (0x0F00, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xF900, 0xFAFF),
)  # fmt: skip
# Blocks whose scripts write a word with fewer letters than Latin does: Hebrew and Arabic, Hangul.
_DENSE = ((0x0590, 0x08FF), (0x1100, 0x11FF), (0xAC00, 0xD7AF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFF))
_IDEOGRAPHS = 0x20000
_PICTURES = (0x1F000, 0x1FAFF)
# Of the polynomial that a word's number is computed by, modulo 2^32: odd, so that it can be divided by. Sums of 64
# bits would tell more words apart than a text has, and take twice as long.
_BASE = 0x9E3779B1
_MIX = 0xD6E8FEB86659FD93


class Words(NamedTuple):
    """Words in their order: where each begins and ends, in characters, and its number."""

    starts: Places
    ends: Places
    numbers: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Places:
        """In characters."""
        return self.ends - self.starts


class Text:
    """The characters of a text in lower case, and its words."""

    def __init__(self, text: str) -> None:
        text = text[:MAX_CHARS]
        self.points: NDArray[np.uint32]
        try:
            narrow = text.encode("latin-1").translate(_narrow_tables()[0])
        except UnicodeEncodeError:
            self.lowered = text.lower()
            self.points = np.frombuffer(self.lowered.encode("utf-32-le", "surrogatepass"), np.uint32)
            self._kinds = _kinds_of(self.points)
            self._has_wide = True
        else:  # by tables of bytes, which is several times as fast
            self.lowered = narrow.decode("latin-1")
            self.points = np.frombuffer(narrow, np.uint8).astype(np.uint32)
            self._kinds = np.frombuffer(narrow.translate(_narrow_tables()[1]), np.uint8)
            self._has_wide = False

    @cached_property
    def spaced(self) -> Words:
        """The words between white space."""
        return self._words(self._has(_SPACE) == 0)

    @cached_property
    def bare(self) -> Words:
        """Letters and digits; no punctuation, no symbols."""
        return self._words(self._has(_WORD) != 0)

    @cached_property
    def letters(self) -> NDArray[np.int32]:
        """How many letters there are before each character, and in all."""
        found: NDArray[np.int32] = sums(self._has(_LETTER) != 0, np.int32)
        return found

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether most of the words are characters of a script without spaces."""
        return self._has_wide and 2 * int(np.count_nonzero(self._has(_ALONE))) > len(self.spaced)

    @property
    def has_short_words(self) -> bool:
        """Whether most letters are of a script whose words are short, so that their length says nothing."""
        if not self._has_wide:
            return False
        return self.is_unspaced or 2 * int(np.count_nonzero(self._has(_SHORT))) > int(self.letters[-1])

    def _has(self, kind: int) -> Any:
        return self._kinds & np.uint8(kind)

    def _words(self, inside: Flags) -> Words:
        if not self._has_wide or not (alone := self._has(_ALONE) != 0).any():
            padded = np.zeros(len(inside) + 2, np.bool_)
            padded[1:-1] = inside
            edges = (padded[1:] != padded[:-1]).nonzero()[0]  # a word begins, ends, the next begins, ...
            return Words(edges[::2], edges[1::2], self._numbers(edges[::2], edges[1::2]))
        joined = inside & ~alone
        goes_on = np.zeros(len(inside) + 1, np.bool_)
        goes_on[1:-1] = joined[1:] & joined[:-1]
        starts = (inside & ~goes_on[:-1]).nonzero()[0]
        ends = (inside & ~goes_on[1:]).nonzero()[0] + 1
        return Words(starts, ends, self._numbers(starts, ends))

    def _numbers(self, starts: Places, ends: Places) -> Numbers:
        before = self._before
        return mixed(((before[ends] - before[starts]) * powers(len(self.points))[1][starts]).astype(np.uint64))

    @cached_property
    def _before(self) -> NDArray[np.uint32]:
        """The sum of the polynomial before each character: that of a word is the difference of two."""
        factors = powers(len(self.points))[0][: len(self.points)]
        found: NDArray[np.uint32] = sums(self.points * factors, np.uint32)
        return found


def mixed(numbers: Numbers) -> Numbers:
    """Numbers whose every bit depends on all bits of the given ones."""
    numbers = (numbers ^ (numbers >> np.uint64(32))) * np.uint64(_MIX)
    return numbers ^ (numbers >> np.uint64(29))


def sums(values: Any, kind: type[Any]) -> Any:
    """The sums before each value, and that of all."""
    found = np.empty(len(values) + 1, kind)
    found[0] = 0
    values.cumsum(dtype=kind, out=found[1:])
    return found


_tables: tuple[NDArray[np.uint32], NDArray[np.uint32]] = (np.ones(1, np.uint32), np.ones(1, np.uint32))


def powers(length: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The powers of the base and of its inverse: at least so many. They are kept, and made anew for a longer text."""
    global _tables
    if len(_tables[0]) < length:
        size = max(1 << 16, 1 << length.bit_length())
        _tables = _products(_BASE, size), _products(pow(_BASE, -1, 1 << 32), size)
    return _tables


def _products(base: int, length: int) -> NDArray[np.uint32]:
    factors = np.full(length, base, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


def _kinds_of(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    kinds: NDArray[np.uint8] = _table().take(points, mode="clip")
    beyond = np.flatnonzero(points >= _BMP)
    if len(beyond):
        far = points[beyond]
        kinds[beyond] = _WORD | _LETTER
        kinds[beyond[(far >= _PICTURES[0]) & (far <= _PICTURES[1])]] = 0
        kinds[beyond[far >= _IDEOGRAPHS]] = _WORD | _LETTER | _ALONE
    return kinds


@lru_cache(maxsize=1)
def _narrow_tables() -> tuple[bytes, bytes]:
    """For each character of Latin-1 the one in lower case, which is of Latin-1 too, and what it is."""
    lowered = bytes(range(256)).decode("latin-1").lower().encode("latin-1")
    return lowered, _table()[:256].tobytes()


@lru_cache(maxsize=1)
def _table() -> NDArray[np.uint8]:
    """What each character of the basic plane is."""
    table = np.fromiter((_kind(chr(point)) for point in range(_BMP)), np.uint8, _BMP)
    for first, last in _UNSPACED:
        block = table[first : last + 1]
        block[(block & _WORD) != 0] |= _ALONE
    for first, last in _DENSE:
        block = table[first : last + 1]
        block[(block & _LETTER) != 0] |= _SHORT
    return table


def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    category = unicodedata.category(char)
    if category[0] == "L":
        return _WORD | _LETTER
    return _WORD if category[0] in "MN" or char == "_" else 0
