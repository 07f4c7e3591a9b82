"""Each signal counts what its definition says; the n-gram signals agree with a slow reading of theirs."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.extract.text.quality import signals
from weft.extract.text.repetition import REPEATED, TOP, repetition
from weft.extract.text.words import Text

PROSE = (
    "The mill stood by the river, and the people of the village had used it for longer than anyone could remember.\n"
    "Nobody knew who had built it. Some said a monk; others said a thief!\n\n"
    "Was it true that the wheel turned at night? We never found out, though we tried with all our might.\n"
)


def test_prose_looks_like_prose() -> None:
    found = signals(PROSE)
    assert found["words"] == 55
    assert 3 < (found["mean_word_length"] or 0) < 6
    assert found["alphabetic_words"] == 1.0
    assert found["stop_words"] == 5
    assert (found["lines"], found["punctuated_lines"]) == (3, 1.0)
    assert found["c4_sentences"] == 5
    assert [found[name] for name in ("bullet_lines", "ellipsis_lines", "duplicate_lines", "hash_ratio")] == [0, 0, 0, 0]
    assert found["lorem_ipsum"] is False
    assert found["duplicate_5gram"] == 0


def test_a_text_without_words_has_signals_without_meaning() -> None:
    for text in ("", " \n \n"):
        found = signals(text)
        assert (found["words"], found["mean_word_length"], found["c4_sentences"]) == (0, None, 0)
        assert not any(found.values())


@pytest.mark.parametrize(
    ("text", "signal", "value"),
    [
        ("a #b ## c", "hash_ratio", 0.75),
        ("one... two… three four", "ellipsis_ratio", 0.5),
        ("one 2 3- 4b", "alphabetic_words", 0.5),
        ("a bb ccc", "mean_word_length", 2.0),
        ("- a\n• b\n* c\nd", "bullet_lines", 0.75),
        ("-5 degrees\n--- rule", "bullet_lines", 0.0),
        ("a...\nb…\nc.\nd", "ellipsis_lines", 0.5),
        ("THE with be, tobe", "stop_words", 3),
        ("a\nb\na\na", "duplicate_lines", 0.5),
        ("aaaa\nbb\naaaa", "duplicate_line_chars", 0.4),
        ("a\nb\n\nc\n\n\na\nb", "duplicate_paragraphs", 1 / 3),
        ("aa\n\nb\n\naa", "duplicate_paragraph_chars", 0.4),
        ("x Lorem  ipsum", "lorem_ipsum", False),
        ("x Lorem ipsum dolor", "lorem_ipsum", True),
        ("if (a) { b } { c }", "curly_brackets", 2),
        ("said.\nnot said\n“yes”", "punctuated_lines", 2 / 3),
    ],
)
def test_a_signal(text: str, signal: str, value: float) -> None:
    assert signals(text)[signal] == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One two three four five.", 1),
        ("One two three four.", 0),
        ("One two three four five", 0),
        ("One two three four five...", 0),
        ("One two three. Four five? Six seven! Eight.", 4),
        ("Version 3.5 of the program is here.", 1),
        ("Please enable JavaScript to see this page.", 0),
        ("This site uses cookies for your comfort.", 0),
        ("Cookies were baked by all of us.", 1),
        ("One two three four five.\nmenu\nOne two three four six.", 2),
        ("今天天气很好。我们去公园散步吧！", 2),
        ("今天天气很好。", 1),
        ("好。", 0),
        ("यह एक बहुत अच्छा दिन था। हम बाहर गए।", 2),
    ],
)
def test_sentences_of_the_lines_that_c4_would_keep(text: str, sentences: int) -> None:
    assert signals(text)["c4_sentences"] == sentences


def slow_repetition(words: list[str]) -> dict[str, set[float]]:
    """By the definition: every sequence counted, every repeated one marked. Of equally frequent ones any is the top."""
    total = sum(map(len, words))
    found: dict[str, set[float]] = {}
    for n in TOP + REPEATED:
        sequences = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
        counts = Counter(sequences)
        if n in TOP:
            most = max(counts.values(), default=0)
            chars = [count * sum(map(len, sequence)) for sequence, count in counts.items() if count == most > 1]
            found[f"top_{n}gram"] = {min(1.0, value / total) for value in chars} or {0.0}
        else:
            seen: set[tuple[str, ...]] = set()
            covered: set[int] = set()
            for at, sequence in enumerate(sequences):
                if sequence in seen:
                    covered.update(range(at, at + n))
                seen.add(sequence)
            found[f"duplicate_{n}gram"] = {sum(len(words[at]) for at in covered) / total if total else 0.0}
    return found


@settings(max_examples=150)
@given(st.lists(st.sampled_from(["a", "bb", "ccc", "dd,", "e"]), min_size=1, max_size=60))
def test_repetition_agrees_with_its_definition(words: list[str]) -> None:
    found, expected = repetition(Text(" ".join(words))), slow_repetition(words)
    for name, value in found.items():
        assert any(value == pytest.approx(possible) for possible in expected[name]), name


def test_repetition_in_a_long_text_agrees_with_its_definition() -> None:
    random = Random(3)
    words = [random.choice(("red", "green", "blue", "sun", "moon", "a", "the")) for _ in range(900)]
    words[300:340] = words[100:140]
    found, expected = repetition(Text(" ".join(words))), slow_repetition(words)
    assert found["duplicate_10gram"] > 0.03
    assert {name: [pytest.approx(value)] for name, value in found.items()} == {
        name: sorted(values)[:1] for name, values in expected.items()
    }


def test_without_spaces_a_word_is_two_characters() -> None:
    again = "".join(chr(0x4E00 + number) for number in range(10))
    others = "".join(chr(0x5E00 + number) for number in range(80))
    found = repetition(Text(again + others + again))
    assert found["duplicate_5gram"] == pytest.approx(0.1)
    assert found["duplicate_6gram"] == 0
    assert found["top_4gram"] > 0
    assert signals(again + others)["mean_word_length"] is None


@pytest.mark.parametrize("text", ["한국 말은 짧은 말이 많다", "هذا نص قصير من كلمات", "今天天气很好"])
def test_the_length_of_words_says_nothing_in_scripts_with_short_ones(text: str) -> None:
    assert signals(text)["mean_word_length"] is None
