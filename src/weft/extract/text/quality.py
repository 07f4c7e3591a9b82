"""What tells prose from lists, menus, spam and debris: the signals of Gopher and C4, as numbers. Pure; needs numpy.

Gopher: Rae et al. 2021, appendix A. C4: Raffel et al. 2020, section 2.2. Shares are 0 to 1. Nothing is judged here;
what is kept is the affair of whoever has the limits.

C4 drops lines first, and then pages of which too few sentences are left. Texts are not changed here: `c4_sentences`
counts the sentences of those lines that C4 would keep, which end in a terminal mark and have at least five words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from weft.extract.letters import times
from weft.extract.text.arrays import np
from weft.extract.text.repetition import repetition
from weft.extract.text.words import Text

if TYPE_CHECKING:
    from weft.extract.text.words import Numbers

LINE_WORDS = 5
_STOP_WORDS = "the be to of and that have with"
_ELLIPSES = ("...", "…")
_BULLETS = ("- ", "* ", "+ ", "•", "‣", "▪", "▫", "●", "◦", "○", "■", "□", "–", "·", "∙", "►", "➤")
_TERMINAL = frozenset('.!?"”’»。！？」』؟۔।॥')
# What bullets begin with and ellipses end with: for most lines one look-up is enough.
_BULLET_STARTS = frozenset(mark[0] for mark in _BULLETS)
_ELLIPSIS_ENDS = frozenset(mark[-1] for mark in _ELLIPSES)
_SENTENCE_ENDS = (". ", "! ", "? ", "؟ ", "۔ ", "। ")
_UNSPACED_ENDS = "。！？"
_UNWANTED = re.compile(
    "javascript|terms of use|privacy policy|cookie policy|(?:uses|use of|use) cookies", re.IGNORECASE
)
_SUSPECTS = ("javascript", "terms of use", " policy", " cookies")  # one of which is in every unwanted line

Signals = dict[str, int | float | bool | None]


def signals(source: str, text: Text | None = None) -> Signals:
    """Every signal of a text, by name; None where one says nothing about this text. `text`: the same, taken apart."""
    text = text or Text(source)
    lines = [line for raw in source.split("\n") if (line := raw.strip())]
    paragraphs = [block for raw in source.split("\n\n") if (block := raw.strip())]
    return (
        _of_words(source, text)
        | _of_lines(lines)
        | _duplicates("line", lines)
        | _duplicates("paragraph", paragraphs)
        | repetition(text)
        | _as_c4(text, lines)
    )


def _of_words(source: str, text: Text) -> Signals:
    words = text.spaced
    count = len(words)
    with_letters = np.count_nonzero(text.letters[words.ends] > text.letters[words.starts])
    return {
        "words": count,
        "mean_word_length": int(words.lengths.sum()) / count if count and not text.has_short_words else None,
        "hash_ratio": _ratio(times(source, "#"), count),
        "ellipsis_ratio": _ratio(sum(map(source.count, _ELLIPSES)), count),
        "alphabetic_words": _ratio(int(with_letters), count),
        "stop_words": int((text.bare.numbers == _stop_words()).any(axis=1).sum()),
    }


@lru_cache(maxsize=1)
def _stop_words() -> Numbers:
    return Text(_STOP_WORDS).bare.numbers[:, None]  # so that all are compared at once


def _of_lines(lines: Sequence[str]) -> Signals:
    bullets = sum(line.startswith(_BULLETS) for line in lines if line[0] in _BULLET_STARTS)
    ellipses = sum(line.endswith(_ELLIPSES) for line in lines if line[-1] in _ELLIPSIS_ENDS)
    return {
        "lines": len(lines),
        "bullet_lines": _ratio(bullets, len(lines)),
        "ellipsis_lines": _ratio(ellipses, len(lines)),
    }


def _duplicates(name: str, parts: Sequence[str]) -> Signals:
    """The share of parts that occurred before, and the share of the characters in them."""
    unique = dict.fromkeys(parts)
    chars, unique_chars = sum(map(len, parts)), sum(map(len, unique))
    return {
        f"duplicate_{name}s": _ratio(len(parts) - len(unique), len(parts)),
        f"duplicate_{name}_chars": _ratio(chars - unique_chars, chars),
    }


def _as_c4(text: Text, lines: Sequence[str]) -> Signals:
    lowered = text.lowered
    suspects = [word for word in _SUSPECTS if word in lowered]
    ended = [line for line in lines if line[-1] in _TERMINAL]
    is_unspaced = text.is_unspaced
    kept = [line for line in ended if _is_kept(line, suspects, is_unspaced)]
    return {
        "c4_sentences": _sentences(kept, is_unspaced),
        "punctuated_lines": _ratio(len(ended), len(lines)),
        "lorem_ipsum": "lorem ipsum" in lowered,
        "curly_brackets": times(lowered, "{"),
    }


def _sentences(lines: Sequence[str], is_unspaced: bool) -> int:
    """How many sentences there are in lines: each ends one, and so does a mark inside it."""
    text = "\n".join(lines) + "\n"
    if is_unspaced:
        return len(lines) + sum(text.count(mark) - text.count(f"{mark}\n") for mark in _UNSPACED_ENDS)
    # Testing whether a character occurs is ten times as fast as counting two.
    return len(lines) + sum(text.count(end) for end in _SENTENCE_ENDS if end[0] in text)


def _is_kept(line: str, suspects: Sequence[str], is_unspaced: bool) -> bool:
    """Whether C4 keeps a line that ends in a terminal mark."""
    if line.endswith(_ELLIPSES) or (suspects and _UNWANTED.search(line)):
        return False
    # Splitting ends at the last word that matters; counting would go through the line.
    return (len(line) if is_unspaced else len(line.split(" ", LINE_WORDS - 1))) >= LINE_WORDS


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
