"""Which pages are removed for their text, and why. A rule is a setting of the collector; one that is null or missing
is off.

The defaults are in pages.yaml: those of Gopher (Rae et al. 2021, appendix A) and of C4 (Raffel et al. 2020) where
they can be kept without changing texts. The first rule that a page breaks is its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from weft.errors import BadConfig
from weft.extract.text.language import is_code, nearest_code
from weft.names import nearest

ENGLISH = ("en", None)  # or unknown: Gopher's list of words is English


class SignalRule(NamedTuple):
    """A limit for a quality signal: `min_words` limits `words`."""

    name: str
    signal: str
    is_least: bool


class Removal(NamedTuple):
    """Why a page is removed: the rule, the value that broke it, and the limit."""

    reason: str
    value: Any
    limit: Any


def _least_rule(signal: str) -> SignalRule:
    return SignalRule(f"min_{signal}", signal, True)


def _most_rule(signal: str) -> SignalRule:
    return SignalRule(f"max_{signal}", signal, False)


RULES = (
    _least_rule("words"), _most_rule("words"), _least_rule("mean_word_length"), _most_rule("mean_word_length"),
    _most_rule("hash_ratio"),
    _most_rule("ellipsis_ratio"), _most_rule("bullet_lines"), _most_rule("ellipsis_lines"),
    _least_rule("alphabetic_words"),
    _least_rule("stop_words"),
    _most_rule("duplicate_lines"), _most_rule("duplicate_line_chars"), _most_rule("duplicate_paragraphs"),
    _most_rule("duplicate_paragraph_chars"),
    *(_most_rule(f"top_{n}gram") for n in (2, 3, 4)), *(_most_rule(f"duplicate_{n}gram") for n in (5, 6, 7, 8, 9, 10)),
    _least_rule("c4_sentences"), _least_rule("punctuated_lines"), _most_rule("lorem_ipsum"),
    _most_rule("curly_brackets"),
)  # fmt: skip
_RULE_BY_SETTING = {rule.name: rule for rule in RULES}
_OTHER_SETTINGS = ("languages", "require_ai_training", "near_duplicates", "exact_duplicates", "sample")


def removal(page: Mapping[str, Any], signals: Mapping[str, Any], settings: Mapping[str, Any]) -> Removal | None:
    """The first rule that removes a page; None if it is kept."""
    languages = settings.get("languages")
    if languages and page["language"] not in languages:
        return Removal("language", page["language"], languages)
    if settings.get("require_ai_training") and page["ai_training"] is False:
        return Removal("ai_training", False, True)
    for rule in RULES:
        limit, value = settings.get(rule.name), signals.get(rule.signal)
        if limit is None or value is None or (rule.signal == "stop_words" and page["language"] not in ENGLISH):
            continue
        if value < limit if rule.is_least else value > limit:
            return Removal(rule.name, value, limit)
    return None


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises BadConfig, which lists everything that is wrong with the collector's settings."""
    problems = [problem for key, value in settings.items() if (problem := _problem_of_setting(key, value))]
    if problems:
        raise BadConfig([f"collect.{problem}" for problem in problems])


def _problem_of_setting(key: str, value: Any) -> str | None:
    known = [*_RULE_BY_SETTING, *_OTHER_SETTINGS]
    if key not in known:
        near = nearest(key, known)
        return f"{key}: there is no such setting" + (f"; did you mean {near!r}?" if near else "")
    if value is None:
        return None
    if key == "languages":
        return _language_problem(value)
    if key in ("require_ai_training", "exact_duplicates"):
        return None if isinstance(value, bool) else f"{key}: write true or false"
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return f"{key}: write a number that is not negative, or null for no limit; this is {value!r}"
    if key == "near_duplicates" and not 0.5 <= value <= 1:
        return f"{key}: write a similarity between 0.5 and 1, or null to keep near duplicates; this is {value!r}"
    return None


def _language_problem(value: Any) -> str | None:
    if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
        return "languages: write a list of languages like [en, de]; in YAML 'no' needs quotes"
    wrong = next((code for code in value if not is_code(code)), None)
    if wrong is None:
        return None
    near = nearest_code(wrong)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"languages: {wrong!r} is no language's code: write those of ISO 639-1, like [en, de]{hint}"
