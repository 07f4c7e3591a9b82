"""Sketches estimate how much two texts have in common, and bands find the pairs worth comparing."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from random import Random

import pytest
from planted_duplicates import edited

from weft.extract.text.similar import BANDS, DIGEST_BYTES, SHINGLE, SKETCH_BYTES, Sketch, bands, similarity, sketch

VOCABULARY = [f"word{number}" for number in range(5000)]


def made(text: str) -> Sketch:
    found = sketch(text)
    assert found is not None
    return found


def drawn(count: int, seed: int) -> list[str]:
    return Random(seed).choices(VOCABULARY, k=count)


def shared_shingles(one: list[str], other: list[str]) -> float:
    first, second = (
        {tuple(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)} for words in (one, other)
    )
    return len(first & second) / len(first | second)


def test_a_sketch_has_a_fixed_size_and_none_is_made_without_words() -> None:
    for text in ("one", "one two", "one two three four", "你好吗", "word " * 5000):
        assert (len(made(text).digest), len(made(text).minima)) == (DIGEST_BYTES, SKETCH_BYTES)
    assert sketch("") is None
    assert sketch(" -- … \n") is None


def test_case_punctuation_and_white_space_do_not_count() -> None:
    assert made("To be, or not to be: that is the question.") == made("to be OR not\nto be — that is the (question)")
    assert made("to be or not to be").digest != made("not to be or to be").digest


def test_sketches_are_the_same_in_another_process() -> None:
    script = "from weft.extract.text.similar import sketch; print(sketch('the quick brown fox jumps').minima.hex())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == made("the quick brown fox jumps").minima.hex()


@pytest.mark.parametrize("length", [20, 60, 200, 2000])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_the_estimate_is_near_the_true_share(length: int, share: float) -> None:
    errors = []
    for seed in range(20):
        one = drawn(length, seed)
        other = edited(one, share, VOCABULARY, Random(seed))
        estimate = similarity(made(" ".join(one)).minima, made(" ".join(other)).minima)
        errors.append(estimate - shared_shingles(one, other))
    assert abs(sum(errors) / len(errors)) < 0.04
    assert max(map(abs, errors)) < 0.25


def test_unrelated_texts_have_nothing_in_common() -> None:
    sketches = [made(" ".join(drawn(300, seed))) for seed in range(50)]
    assert max(similarity(one.minima, other.minima) for one, other in pairwise(sketches)) < 0.05
    found = [set(enumerate(bands(one.minima))) for one in sketches]
    assert not any(one & other for one, other in pairwise(found))


def test_bands_find_texts_that_differ_in_a_few_words() -> None:
    missed = 0
    for seed in range(200):
        words = drawn(100, seed)
        other = made(" ".join(edited(words, 0.05, VOCABULARY, Random(seed))))
        missed += not set(enumerate(bands(made(" ".join(words)).minima))) & set(enumerate(bands(other.minima)))
    assert missed <= 2


def test_bands_are_numbers_of_32_bits_that_differ_from_band_to_band() -> None:
    same_rows = bands(b"\1\0" * (SKETCH_BYTES // 2))
    assert len(set(same_rows)) == len(same_rows) == BANDS
    assert all(0 <= number < 1 << 32 for number in same_rows)


def test_texts_of_scripts_without_spaces_are_compared_by_character() -> None:
    text = "".join(chr(0x4E00 + Random(1).randrange(3000) + place) for place in range(300))
    assert similarity(made(text).minima, made(text[:150] + "新" + text[150:]).minima) > 0.9
    assert similarity(made(text).minima, made(text[::-1]).minima) < 0.1
