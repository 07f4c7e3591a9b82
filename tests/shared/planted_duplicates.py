"""Texts with planted duplicates, and what a de-duplication must find in them.

Families share an original: exact copies (other case, white space and punctuation), near copies (a few percent of the
words replaced, left out, added or moved), and texts that must be kept: neighbours, which share a good part of the
original, as pages made from one template do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

EXACT, NEAR, NEIGHBOUR, ORIGINAL = "exact", "near", "neighbour", "original"
MOST_EDITED = 0.05
SHARED = 0.35  # of a neighbour's words


class Planted(NamedTuple):
    """One text, the family it belongs to, and what it is there."""

    text: str
    family: int
    role: str

    @property
    def is_duplicate(self) -> bool:
        return self.role in (EXACT, NEAR)


@dataclass(frozen=True)
class Found:
    """What a de-duplication found, against what was planted."""

    recall: float
    precision: float


def plant(families: int, seed: int, words: tuple[int, int] = (60, 900)) -> list[Planted]:
    """Texts in an order in which every original comes before its family."""
    random = Random(seed)
    vocabulary = [_word(random) for _ in range(8000)]
    firsts: list[Planted] = []
    others: list[Planted] = []
    for family in range(families):
        original = [_drawn(vocabulary, random) for _ in range(random.randint(*words))]
        firsts.append(Planted(_prose(original, random), family, ORIGINAL))
        others += _family(original, family, vocabulary, random)
    random.shuffle(others)
    return firsts + others


def judge(planted: list[Planted], duplicate_of: list[int | None]) -> Found:
    """Recall: duplicates that were found. Precision: what was found that is one, of a text of its own family."""
    said = [(place, of) for place, of in enumerate(duplicate_of) if of is not None]
    right = sum(1 for place, of in said if planted[place].is_duplicate and planted[of].family == planted[place].family)
    there = sum(1 for text in planted if text.is_duplicate)
    return Found(right / there, right / len(said) if said else 1.0)


def _family(original: list[str], family: int, vocabulary: list[str], random: Random) -> Iterator[Planted]:
    yield Planted(_prose([random.choice((word, word.upper())) for word in original], random), family, EXACT)
    for _ in range(2):
        yield Planted(
            _prose(edited(original, random.uniform(0.01, MOST_EDITED), vocabulary, random), random), family, NEAR
        )
    kept = int(SHARED * len(original))
    own = [_drawn(vocabulary, random) for _ in range(len(original) - kept)]
    yield Planted(_prose(original[:kept] + own, random), family, NEIGHBOUR)


def edited(words: list[str], share: float, vocabulary: list[str], random: Random) -> list[str]:
    """The words with that share of them replaced, left out, added to or moved; at least one."""
    found = list(words)
    for _ in range(max(1, int(share * len(words)))):
        at = random.randrange(len(found))
        match random.randrange(4):
            case 0:
                found[at] = _drawn(vocabulary, random)
            case 1:
                del found[at]
            case 2:
                found.insert(at, _drawn(vocabulary, random))
            case _ if at + 1 < len(found):
                found[at], found[at + 1] = found[at + 1], found[at]
            case _:
                found.append(_drawn(vocabulary, random))
    return found


def _prose(words: list[str], random: Random) -> str:
    """The words as sentences and paragraphs, cut at random places."""
    parts = []
    for word in words:
        draw = random.random()
        parts.append(word + (".\n\n" if draw < 0.02 else ". " if draw < 0.08 else ", " if draw < 0.14 else " "))
    return "".join(parts).strip() + "."


def _word(random: Random) -> str:
    return "".join(
        random.choice("aeiou") if place % 2 else random.choice("bcdfghklmnprstvw")
        for place in range(random.randint(2, 10))
    )


def _drawn(vocabulary: list[str], random: Random) -> str:
    return vocabulary[int(len(vocabulary) * random.random() ** 3)]  # some are far more frequent, as in every language
