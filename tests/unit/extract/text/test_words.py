"""Words and their numbers are the same wherever they stand."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.extract.text.words import MAX_CHARS, Text, Words


def cut(text: Text, words: Words) -> list[str]:
    return ["".join(map(chr, text.points[start:end])) for start, end in zip(words.starts, words.ends, strict=True)]


@pytest.mark.parametrize(
    ("source", "spaced", "bare"),
    [
        ("", [], []),
        (" \n\t ", [], []),
        ("Hello, world!", ["hello,", "world!"], ["hello", "world"]),
        ("one", ["one"], ["one"]),
        ("a-b c_1 — 3.5", ["a-b", "c_1", "—", "3.5"], ["a", "b", "c_1", "3", "5"]),
        ("Grüße aus\u00a0Łódź", ["grüße", "aus", "łódź"], ["grüße", "aus", "łódź"]),
        ("你好 world。", ["你", "好", "world。"], ["你", "好", "world"]),
        ("हिन्दी में", ["हिन्दी", "में"], ["हिन्दी", "में"]),
        ("ไทย", ["ไ", "ท", "ย"], ["ไ", "ท", "ย"]),
        ("𠀀𠀁 x😀y", ["𠀀", "𠀁", "x😀y"], ["𠀀", "𠀁", "x", "y"]),
        ("\ud800 a", ["\ud800", "a"], ["a"]),
    ],
)
def test_words(source: str, spaced: list[str], bare: list[str]) -> None:
    text = Text(source)
    assert cut(text, text.spaced) == spaced
    assert cut(text, text.bare) == bare


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8")))
def test_words_between_spaces_are_those_of_python_where_scripts_have_spaces(source: str) -> None:
    text = Text(source)
    together = "".join(cut(text, text.spaced))
    assert together == "".join(source.lower().split())
    assert "".join(cut(text, text.bare)) == "".join(char for char in together if len(Text(char).bare))


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["a", "b", "ab", "ba", "aab", "ß", "你", "word", "words"]), max_size=40))
def test_a_word_has_one_number_and_different_words_have_different_ones(words: list[str]) -> None:
    numbers = Text(" ".join(words)).spaced.numbers.tolist()
    assert len(set(zip(words, numbers, strict=True))) == len(set(words)) == len(set(numbers))


def test_numbers_are_the_same_in_another_process_and_behind_any_text() -> None:
    script = (
        "from weft.extract.text.words import Text\n"
        "print(Text('x' * 99_999 + ' Woven, cloth').bare.numbers[1:].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(Text("woven CLOTH").bare.numbers.tolist())


def test_only_the_beginning_of_a_huge_text_is_looked_at() -> None:
    assert len(Text("ab " * MAX_CHARS).spaced) == MAX_CHARS // 3 + 1


@pytest.mark.parametrize(
    ("source", "is_unspaced"), [("你好吗 ok", True), ("a b c 你", False), ("", False), ("ไทยไทย", True)]
)
def test_scripts_without_spaces(source: str, is_unspaced: bool) -> None:
    assert Text(source).is_unspaced is is_unspaced


@pytest.mark.parametrize("source", ["".join(map(chr, range(256))), "Ça VA, Ærø: 3½ µm über ÿ", "plain", ""])
def test_a_text_of_narrow_characters_is_taken_apart_like_one_that_goes_on_with_a_wide_one(source: str) -> None:
    narrow, wide = Text(source), Text(f"{source} Ж")
    assert narrow.lowered == source.lower() == wide.lowered[:-2]
    for mine, same in ((narrow.spaced, wide.spaced), (narrow.bare, wide.bare)):
        for field, other in zip(mine, same, strict=True):
            assert field.tolist() == other.tolist()[: len(mine)]
    assert not narrow.is_unspaced
    assert not narrow.has_short_words
