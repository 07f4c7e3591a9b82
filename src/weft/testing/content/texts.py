"""Pools of ready-made paragraphs and anchors, per language and charset, from which pages are assembled quickly.

A pool is a pure function of (seed, size, language, charset). Pools are made on first use; a small web gets a small
pool, because it would use only a part of a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from weft.testing.content.languages import BY_CODE, Language
from weft.testing.content.resources import mix

Draw = Callable[[], float]

PARAGRAPHS = 512  # powers of two
FEW_PARAGRAPHS = 64
ANCHORS = 256


@dataclass(frozen=True, slots=True)
class Pool:
    """Encoded building blocks: `paragraphs` are `<p>…</p>` blocks, `anchors` the texts of links."""

    paragraphs: tuple[bytes, ...]
    anchors: tuple[bytes, ...]
    mean_paragraph_bytes: float


class SyntheticTexts:
    """The pools of one seed, each of a given number of paragraphs."""

    def __init__(self, seed: int, paragraphs: int = PARAGRAPHS) -> None:
        self._paragraphs = paragraphs
        self._seed = seed & (1 << 64) - 1
        self._pools: dict[tuple[str, str], Pool] = {}
        self._plain: dict[str, tuple[list[str], list[str]]] = {}

    def pool(self, language: str, charset: str) -> Pool:
        """The pool for a language in an ASCII-compatible charset."""
        pool = self._pools.get((language, charset))
        if pool is None:
            paragraphs, anchors = self._text(language)
            encoded = tuple(f"<p>{text}</p>\n".encode(charset, "xmlcharrefreplace") for text in paragraphs)
            pool = Pool(
                encoded,
                tuple(text.encode(charset, "xmlcharrefreplace") for text in anchors),
                sum(map(len, encoded)) / len(encoded),
            )
            self._pools[language, charset] = pool
        return pool

    def _text(self, code: str) -> tuple[list[str], list[str]]:
        if code not in self._plain:
            language = BY_CODE[code]
            random = Random(mix(self._seed, *code.encode())).random
            paragraphs = [paragraph(language, random, 60 + int(random() * 90)) for _ in range(self._paragraphs)]
            anchors = [phrase(language, random, 1 + int(random() * 5)) for _ in range(ANCHORS)]
            self._plain[code] = (paragraphs, anchors)
        return self._plain[code]


def phrase(language: Language, draw: Draw, words: int) -> str:
    """Random words of a language; frequent ones are drawn more often."""
    pick = language.words
    count = len(pick)
    return language.gap.join([pick[int(count * draw() ** 1.6)] for _ in range(words)])


def paragraph(language: Language, draw: Draw, words: int) -> str:
    """Sentences of four to eighteen words, `words` in all."""
    sentences = []
    while words > 0:
        length = min(words, 4 + int(draw() * 15))
        words -= length
        sentence = phrase(language, draw, length)
        sentences.append(sentence[0].upper() + sentence[1:])
    return (language.stop.join(sentences) + language.stop).strip()


def title(language: Language, key: int, number: int) -> str:
    """The title of page `number`: a few words of its language, and the number."""
    count = len(language.words)
    picks = [language.words[mix(key, position) % count] for position in range(2 + key % 3)]
    text = language.gap.join(picks)
    return f"{text[0].upper()}{text[1:]} {number}"
