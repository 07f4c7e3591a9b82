"""Duplicates are found among very many texts, and the memory that this takes does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from planted_duplicates import NEIGHBOUR, ORIGINAL, judge, plant

from weft.extract.text.similar import BANDS, DIGEST_BYTES, SKETCH_BYTES, Sketch, sketch
from weft.pipelines.builtin.pages.duplicates import MOST_EQUAL, Duplicates, _Table


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Duplicates]:
    duplicates = Duplicates(tmp_path, 0.6)
    yield duplicates
    duplicates.close()
    assert list(tmp_path.iterdir()) == []


def made(text: str) -> Sketch:
    found = sketch(text)
    assert found is not None
    return found


def drawn(seed: int) -> Sketch:
    random = Random(seed)
    return Sketch(random.randbytes(DIGEST_BYTES), random.randbytes(SKETCH_BYTES))


@pytest.mark.parametrize("words", [(40, 60), (60, 900), (1500, 3000)])
def test_planted_duplicates_are_found_and_nothing_else_is(kept: Duplicates, words: tuple[int, int]) -> None:
    planted = plant(120, seed=words[0], words=words)
    found: list[int | None] = []
    for place, text in enumerate(planted):
        sketched = made(text.text)
        match = kept.find(sketched)
        found.append(int(match.id) if match else None)
        if match is None:
            kept.add(sketched, str(place))
    judged = judge(planted, found)
    assert judged.recall >= 0.95
    assert judged.precision >= 0.98
    assert all(match is None for match, text in zip(found, planted, strict=True) if text.role in (ORIGINAL, NEIGHBOUR))


def test_a_match_says_which_text_it_is_like_and_how_much(kept: Duplicates) -> None:
    words = [f"w{number}" for number in range(200)]
    kept.add(made(" ".join(words)), "a/ü:1")
    same = kept.find(made(" ".join(words).upper() + "!"))
    assert same is not None and (same.id, same.similarity, same.is_exact) == ("a/ü:1", 1.0, True)
    near = kept.find(made(" ".join(["other", *words[1:]])))
    assert near is not None and near.id == "a/ü:1" and not near.is_exact and near.similarity > 0.9
    assert kept.find(made(" ".join(reversed(words)))) is None


def test_the_most_similar_text_is_named(kept: Duplicates) -> None:
    words = [f"w{number}" for number in range(400)]
    kept.add(made(" ".join([*words[:340], *(f"x{number}" for number in range(60))])), "less")
    kept.add(made(" ".join([*words[:395], *(f"y{number}" for number in range(5))])), "more")
    match = kept.find(made(" ".join(words)))
    assert match is not None and match.id == "more"


def test_without_near_duplicates_only_exact_ones_are_found(tmp_path: Path) -> None:
    duplicates = Duplicates(tmp_path, None)
    words = [f"w{number}" for number in range(200)]
    duplicates.add(made(" ".join(words)), "1")
    assert duplicates.find(made(" ".join([*words, "more"]))) is None
    assert duplicates.find(made(" ".join(words))) is not None
    duplicates.close()


def test_all_are_found_again_after_the_table_has_grown(kept: Duplicates) -> None:
    count = 12_000  # the table doubles three times
    for seed in range(count):
        kept.add(drawn(seed), str(seed))
    for seed in range(0, count, 97):
        match = kept.find(drawn(seed))
        assert match is not None and match.id == str(seed)
    assert kept.find(drawn(count + 1)) is None


def test_a_number_that_very_many_texts_share_is_looked_at_a_few_times(tmp_path: Path) -> None:
    table = _Table(tmp_path)
    for record in range(100_000):
        table.add(7, record)
        table.add(record * 2_654_435_761 % (1 << 32), record)
    assert table.get(7) == list(range(MOST_EQUAL))
    assert all(record in table.get(record * 2_654_435_761 % (1 << 32)) for record in range(0, 100_000, 1009))
    assert table.get((1 << 32) - 1) == []
    table.close()


def test_the_process_keeps_little_of_its_own_whatever_the_number_of_texts(kept: Duplicates) -> None:
    import tracemalloc

    for seed in range(1000):
        kept.add(drawn(seed), str(seed))
    tracemalloc.start()
    for seed in range(1000, 6000):
        kept.add(drawn(seed), str(seed))
    grown, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    of_sketches = 5000 * (SKETCH_BYTES + 8 * BANDS)
    assert grown < of_sketches / 5
    assert peak < 2 * of_sketches
