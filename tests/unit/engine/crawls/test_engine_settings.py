"""The settings of one crawl among many: what is a crawl's, what is the engine's, and what is refused."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from weft.config import FetchSection
from weft.engine.crawls import limits, settings
from weft.engine.model import LONGEST_NAME, check_name
from weft.errors import BadConfig, BadInput


def test_flags_names_and_keys_are_one_setting() -> None:
    assert settings.crawl_settings_of({"delay": 2}) == settings.crawl_settings_of({"politeness_delay_seconds": 2})
    with pytest.raises(BadConfig, match="given twice, under two names"):
        settings.crawl_settings_of({"delay": 2, "politeness_delay_seconds": 2})


@pytest.mark.parametrize("name", ["fetcher_workers", "politeness_scope", "lease_seconds", "store"])
def test_what_belongs_to_the_engine_cannot_be_set_for_a_crawl(name: str) -> None:
    with pytest.raises(BadConfig, match=f"{name}: is a setting of the engine"):
        settings.crawl_settings_of({name: 1})


@pytest.mark.parametrize("name", ["pods", "resume", "data_dirs", "seed_file"])
def test_what_only_the_command_has_cannot_be_set_for_a_crawl(name: str) -> None:
    with pytest.raises(BadConfig, match=f"{name}: is a setting of `weft crawl`"):
        settings.crawl_settings_of({name: 1})


@pytest.mark.parametrize("name", ["pods", "resume", "data_dirs", "seed_file"])
def test_what_an_engine_has_not(name: str) -> None:
    with pytest.raises(BadConfig, match=f"{name}: an engine has no such setting"):
        settings.engine_settings_of({name: 1})


def test_all_problems_are_told_at_once_with_the_nearest_name() -> None:
    with pytest.raises(BadConfig) as told:
        settings.crawl_settings_of({"max_page": 1, "dellay": 2})
    assert "did you mean 'max_pages'" in str(told.value) and "did you mean 'delay'" in str(told.value)


def test_a_crawls_own_settings_come_before_the_engines() -> None:
    config = settings.config_of({"max_pages": 5, "max_depth": 2}, {"max_pages": 7})
    assert (config.limits.max_pages, config.scope.max_depth) == (7, 2)
    held = limits.frontier_limits_of(config, 3)
    assert (held.max_pages, held.max_depth, held.in_flight, held.max_sitemaps) == (7, 2, 3, 20)
    assert limits.frontier_limits_of(settings.config_of({})).max_sitemaps == limits.MOST_SITEMAPS
    assert limits.frontier_limits_of(settings.config_of({"max_pages": 100})).max_sitemaps == 100


def test_what_is_kept_is_the_same_in_any_order() -> None:
    one = settings.storable_settings({"a": (1, 2), "b": {"x": 1, "y": 2}})
    assert settings.are_equal_settings(one, {"b": {"y": 2, "x": 1}, "a": [1, 2]})
    assert not settings.are_equal_settings(one, {"b": {"y": 2, "x": 1}, "a": [2, 1]})
    assert one == {"a": [1, 2], "b": {"x": 1, "y": 2}}


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, True, "1", None, 1001])
def test_a_weight_that_is_none(weight: Any) -> None:
    with pytest.raises(BadInput, match="weight"):
        settings.check_weight(weight)


def test_deadlines() -> None:
    now = time.time()
    at = datetime.fromtimestamp(now + 10, UTC)
    assert settings.check_deadline(at, now) == pytest.approx(now + 10)
    assert settings.check_deadline(None, now) is None
    wrong: list[Any] = [now, now - 1, 0, math.nan, math.inf, -math.inf, True, "later", 1e13]
    for deadline in wrong:
        with pytest.raises(BadInput, match="deadline"):
            settings.check_deadline(deadline, now)


def test_without_an_address_nobody_beyond_this_machine_is_asked() -> None:
    limits.check_email(["http://127.0.0.1/", "http://localhost/"], FetchSection())
    limits.check_email(["http://a.test/"], FetchSection(resolve={"*": "127.0.0.1"}))
    limits.check_email(["http://a.test/"], FetchSection(email="me@example.com"))
    for resolve in ({}, {"b.test": "127.0.0.1"}, {"*.test": "192.0.2.1"}):
        with pytest.raises(BadInput, match="tell the sites how to reach you"):
            limits.check_email(["http://127.0.0.1/", "http://a.test/"], FetchSection(resolve=resolve))


def test_names() -> None:
    for name in ("a", "n" * LONGEST_NAME, "Ein Name, mit: allem", "日本"):
        assert check_name(name) == name
    wrong: list[Any] = ["", "n" * (LONGEST_NAME + 1), "a/b", "a\\b", "a\0", "a\n", ".", "..", "\udc80", None, 3, b"a"]
    for name in wrong:
        with pytest.raises(BadInput, match="name"):
            check_name(name)
