"""A page is removed for the first rule that it breaks; what is wrong with the rules is reported before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from weft.errors import BadConfig, BadInput
from weft.extract.text.quality import signals
from weft.pipelines.builtin import pages
from weft.pipelines.builtin.pages.collect import check
from weft.pipelines.builtin.pages.rules import RULES, check_settings, removal

PIPELINE = yaml.safe_load(Path(pages.__file__).parents[1].joinpath("pages.yaml").read_text())
DEFAULTS: dict[str, Any] = PIPELINE["collect"]["settings"]
PROSE = """The mill at the end of the valley had not turned for thirty years when we first saw it.
Its wheel lay in the grass beside the river, green with moss, and swallows had built under the roof.
Nobody in the village could tell us who owned it; some said a lawyer in the city, others thought of the church.
We came back with a ladder the next summer, measured every wall and drew what we found.
That winter my sister wrote letters to three offices, and one of them answered with a map from the year 1871.
"""


def why(text: str, language: str | None = "en", ai_training: bool | None = None, **settings: Any) -> str | None:
    page = {"language": language, "ai_training": ai_training}
    found = removal(page, signals(text), DEFAULTS | settings)
    return found.reason if found else None


def test_prose_is_kept() -> None:
    assert why(PROSE) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A few words are not enough.", "min_words"),
        ("word " * 100_001, "max_words"),
        ("a b c d " * 20, "min_mean_word_length"),
        ("incomprehensibilities " * 60, "max_mean_word_length"),
        (PROSE + "#hashtag " * 60, "max_hash_ratio"),
        (PROSE + "so… " * 60, "max_ellipsis_ratio"),
        (
            "\n".join(f"- item number {number} of the list that has to be long" for number in range(9)),
            "max_bullet_lines",
        ),
        (
            "\n".join(f"Read more of the story that began with number {number}..." for number in range(9)),
            "max_ellipsis_lines",
        ),
        (" ".join(f"1-{number:04}" for number in range(60)), "min_alphabetic_words"),
        (" ".join(f"keyword{number}" for number in range(60)), "min_stop_words"),
        ((PROSE[:100].strip() + "\n") * 12, "max_duplicate_lines"),
        (PROSE + "Lorem ipsum dolor sit amet, and that is it.\n", "max_lorem_ipsum"),
        (PROSE.replace(".\n", "\n"), "min_c4_sentences"),
    ],
)
def test_a_page_is_removed_for_the_rule_it_breaks(text: str, reason: str) -> None:
    assert why(text) == reason
    assert why(text, **{reason: None}) != reason


def test_repetition_over_words_is_a_reason() -> None:
    spam = " ".join(
        ["buy the best shoes of the year with us"] + [f"model {number} in blue and red" for number in range(20)]
    )
    text = (spam + ".\n") * 2 + (spam + "!\n")
    assert removal({"language": "en", "ai_training": None}, signals(text), {"max_duplicate_10gram": 0.1}) is not None


def test_stop_words_are_asked_of_english_alone() -> None:
    text = " ".join(f"palabra{number}" for number in range(60)) + "."
    assert why(text, "es", min_c4_sentences=None, max_mean_word_length=None) is None
    assert why(text, "en", min_c4_sentences=None, max_mean_word_length=None) == "min_stop_words"


def test_languages_and_stated_preferences() -> None:
    assert why(PROSE, "de", languages=["en"]) == "language"
    assert why(PROSE, "en", languages=["en"]) is None
    assert why(PROSE, None, languages=["en"]) == "language"
    assert why(PROSE, ai_training=False) is None
    assert why(PROSE, ai_training=False, require_ai_training=True) == "ai_training"
    assert why(PROSE, ai_training=True, require_ai_training=True) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"min_word": 3}, "did you mean 'min_words'"),
        ({"min_words": "many"}, "collect.min_words: write a number"),
        ({"min_words": -1}, "not negative"),
        ({"max_lorem_ipsum": True}, "collect.max_lorem_ipsum: write a number"),
        ({"near_duplicates": 0.2}, "between 0.5 and 1"),
        ({"languages": "en"}, "write a list"),
        ({"languages": [False]}, "write a list.*'no' needs quotes"),
        ({"languages": ["en", "english"]}, r"collect.languages: 'english' is no .*like \[en"),
        ({"languages": ["xx"]}, "'xx' is no language's code"),
        ({"languages": ["eng"]}, "did you mean 'en'"),
        ({"languages": ["en-US"]}, "did you mean 'en'"),
        ({"languages": ["nb"]}, "did you mean 'no'"),
        ({"exact_duplicates": "no"}, "write true or false"),
        ({"min_words": float("nan")}, "write a number"),
    ],
)
def test_what_is_wrong_with_a_setting_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        check_settings(settings)


def test_every_problem_is_said_at_once_and_the_shipped_settings_have_none() -> None:
    with pytest.raises(BadConfig) as caught:
        check_settings({"min_words": "x", "sampel": 3})
    assert len(caught.value.problems) == 2
    check_settings(DEFAULTS)
    check_settings({"languages": ["en", "zh", "no", "gsw"]})
    assert {rule.name for rule in RULES} < set(DEFAULTS)


def test_the_columns_of_the_output_are_those_of_rows() -> None:
    from dataclasses import fields

    from weft.extract.preferences import Preferences

    columns = list(PIPELINE["output"]["columns"])
    assert columns[-len(signals("")) :] == list(signals(""))
    assert {field.name for field in fields(Preferences)} | {"ai_training"} < set(columns)


@pytest.mark.parametrize("given", [None, "", [], 3, [None], {"a": 1}])
def test_a_run_without_anything_to_read_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match="nothing to read"):
        check({"items": {"from": given}, "collect": {}})
