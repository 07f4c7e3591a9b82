"""What a setting may be called, how its lists are written, and what follows from keys that belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft import names
from weft.config import SERVICE, keys, load, own_names
from weft.errors import BadConfig
from weft.names import answer, nearest

REDIS = [f"redis://localhost:{6379 + pod}" for pod in range(4)]


def refusal(flags: Any = None, text: Any = None, **environment: str) -> str:
    with pytest.raises(BadConfig) as caught:
        loaded(flags, text, **environment)
    return str(caught.value)


def loaded(flags: Any = None, text: Any = None, **environment: str) -> dict[str, Any]:
    path = None
    if text is not None:
        path = Path("weft.yaml")
        path.write_text(text)
    return load(path, environment=environment, flags=flags).values


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ── names ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["delay", "politeness_delay_seconds"])
def test_a_keyword_and_a_variable_may_be_the_key_or_the_flags_name(name: str) -> None:
    assert loaded({name: 0})["politeness_delay_seconds"] == 0
    assert loaded(**{f"WEFT_{name.upper()}": "0"})["politeness_delay_seconds"] == 0
    assert load(environment={f"WEFT_{name.upper()}": "0"}).origins["politeness_delay_seconds"] == f"WEFT_{name.upper()}"


def test_every_flags_name_is_a_variable_and_a_keyword() -> None:
    for key, item in keys().items():
        name = item.flag.removeprefix("--").replace("-", "_")
        for flags, environment in (({name: object()}, {}), ({}, {f"WEFT_{name.upper()}": "\0"})):
            try:
                load(environment=environment, flags=flags)
            except BadConfig as refused:
                assert str(refused).startswith((f"`{name}`: ", f"WEFT_{name.upper()}: ")), key  # noqa: PT017


@pytest.mark.parametrize("name", ["delay_seconds", "crawl_delay", "download_delay"])
def test_another_name_of_the_delay_leads_to_it(name: str) -> None:
    assert refusal({name: 1}) == f"no setting '{name}'; here it is 'politeness_delay_seconds'"
    assert answer(name, own_names(keys(SERVICE)), str) == "; here it is 'job_delay_seconds'"


def test_one_setting_under_two_names_is_an_error() -> None:
    said = refusal(WEFT_DELAY="1", WEFT_POLITENESS_DELAY_SECONDS="2")
    assert said == "environment: WEFT_DELAY and WEFT_POLITENESS_DELAY_SECONDS are the same setting: give one of them"
    said = refusal({"delay": 1, "politeness_delay_seconds": 2})
    assert said == "delay and politeness_delay_seconds are the same setting: give one of them"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("dellay", "delay"),
        ("max_page", "max_pages"),
        ("data_dirsz", "data_dirs"),
        ("fetcher_worker", "fetcher_workers"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    assert refusal({name: 1}) == f"no setting {name!r}; did you mean {nearest!r}?"
    assert refusal(**{f"WEFT_{name.upper()}": "1"}) == (
        f"environment: WEFT_{name.upper()} names no key; did you mean 'WEFT_{nearest.upper()}'?"
    )


@pytest.mark.parametrize("name", ["dns_time", "max_content", "robots_mode", "page", "url", "max_size", "tls"])
def test_a_name_that_is_near_none_has_no_suggestion(name: str) -> None:
    assert refusal({name: 1}) == f"no setting {name!r}; `weft config schema` lists the known ones"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("delya", "delay", True),  # exchanged
        ("dely", "delay", True),
        ("deelay", "delay", True),
        ("dlya", "delay", False),
        ("tpye", "type", True),
        ("text", "test", True),
        ("txt", "css", False),
        ("max_pagse_pr_domain", "max_pages_per_domain", True),
        ("max_pgs_p_domaine", "max_pages_per_domain", False),
        ("", "delay", False),
    ],
)
def test_one_letter_in_four_may_be_wrong(name: str, known: str, meant: bool) -> None:
    assert nearest(name, ["something else", known]) == (known if meant else "")
    assert nearest(name, []) == ""


def test_every_foreign_name_leads_to_a_key_there_is() -> None:
    assert {key for key, _ in names.FOREIGN.values() if key is not None} <= set(keys())


def test_a_foreign_variable_is_answered_by_name() -> None:
    assert "unknown key 'test_mode'; limit a crawl by max_pages" in refusal(text="test_mode: true\n")
    said = refusal(CRAWLER_DEBUG_POD_ASSIGNMENT="true")
    assert said == (
        "environment: CRAWLER_DEBUG_POD_ASSIGNMENT names no key; it is the variable WEFT_DEBUG_POD_ASSIGNMENT"
    )


def test_a_name_like_no_other_is_answered_with_where_they_are_listed() -> None:
    assert refusal({"qqqqq": 1}) == "no setting 'qqqqq'; `weft config schema` lists the known ones"
    assert "WEFT_QQQQQ names no key; `weft config schema`" in refusal(WEFT_QQQQQ="1")


def test_a_file_has_keys_alone_and_names_the_one_that_a_flag_stands_for() -> None:
    assert refusal(text="delay: 1\n") == "weft.yaml:1: unknown key 'delay'; the key is 'politeness_delay_seconds'"


FOREIGN = {
    "global_coordination_redis_pod": "pod 0",
    "global_metrics_update_interval": "metrics_update_seconds",
    "http_timeout_seconds": "total_timeout",
    "http_max_retries": "max_retries",
    "max_content_length": "max_body_bytes",
    "extract_text": "store",
    "store_raw_html": "store",
    "enable_prometheus": "prometheus_port",
    "cores_per_pod": "fetchers_per_pod + parsers_per_pod",
    "redis_pods": "pods",
    "redis_host": "pods",
    "num_fetcher_processes": "fetchers_per_pod",
    "override_max_pages": "max_pages",
    "override_http_timeout_seconds": "total_timeout",
    "frontier_batch_size": "a fetcher claims as many URLs as it has room for: leave it out",
    "fetcher_memory_limit": "body_memory_bytes",
    "parser_memory_limit": "leave it out",
    "crawler_debug_pod_assignment": "it is the variable WEFT_DEBUG_POD_ASSIGNMENT",
    "render_js": "render",
    "respect_robots": "robots.txt is always obeyed: leave it out",
    "timeout": "total_timeout",
    "concurrency": "fetcher_workers",
    "user_agent": "user_agent_template",
    "proxy": "proxies",
    "redis": "pods",
}


@pytest.mark.parametrize(("name", "ours"), FOREIGN.items())
def test_names_of_other_crawlers_are_answered_with_ours(name: str, ours: str) -> None:
    def shown(spell: str) -> str:
        return f"'{spell}'" if ours in keys() else ours

    said = refusal(text=f"{name}: 1\n")
    assert said.startswith(f"weft.yaml:1: unknown key {name!r}; ") and shown(ours) in said
    said = refusal({name: 1})
    assert said.startswith(f"no setting {name!r}; ") and shown(ours) in said
    said = refusal(**{f"WEFT_{name.upper()}": "1"})
    assert said.startswith(f"environment: WEFT_{name.upper()} names no key; ") and shown(f"WEFT_{ours.upper()}") in said


def test_what_a_value_must_be_is_said_with_the_answer() -> None:
    assert "prometheus_port'; 0 turns the endpoint off" in refusal(text="enable_prometheus: false\n")
    assert "'store'; write store: [text]" in refusal(text="extract_text: true\n")


# ── lists ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LISTS = ["data_dirs", "include", "exclude", "strip_query"]


@pytest.mark.parametrize("name", LISTS)
def test_a_text_is_a_list_with_commas_wherever_it_stands(name: str) -> None:
    for values in (
        loaded({name: "a, b,"}),
        loaded(**{f"WEFT_{name.upper()}": "a, b,"}),
        loaded(text=f"{name}: a, b,\n"),
    ):
        assert values[name] == ("a", "b")


@pytest.mark.parametrize("name", LISTS)
def test_the_items_of_a_list_are_taken_as_they_are(name: str) -> None:
    assert loaded({name: ["a,b", "c"]})[name] == ("a,b", "c")
    assert loaded(text=f"{name}: ['a,b', c]\n")[name] == ("a,b", "c")


def test_a_comma_that_is_part_of_an_item_has_a_backslash() -> None:
    assert loaded({"data_dirs": r"/one\,half,/two"})["data_dirs"] == ("/one,half", "/two")


@pytest.mark.parametrize("name", ["include", "exclude"])
def test_a_regular_expression_keeps_its_commas(name: str) -> None:
    for text, patterns in (
        (r"re:/a{1,3}/", (r"re:/a{1,3}/",)),
        (r"*/print/*,*/b\,c/*, re:/a{1,3}/,\,", ("*/print/*", "*/b,c/*", r"re:/a{1,3}/,\,")),
        (r"*/print/*, re2-path:/a{1,3}/", ("*/print/*", r"re2-path:/a{1,3}/")),
    ):
        assert loaded({name: text})[name] == patterns
        assert loaded(**{f"WEFT_{name.upper()}": text})[name] == patterns


@pytest.mark.parametrize(
    "given", ["redis://a:1,redis://b:2", ["redis://a:1", "redis://b:2"], [{"redis_url": "redis://a:1"}, "redis://b:2"]]
)
def test_pods_may_be_a_list_or_a_text(given: Any) -> None:
    assert [pod.redis_url for pod in loaded({"pods": given})["pods"]] == ["redis://a:1", "redis://b:2"]


def test_pods_in_a_file_and_in_the_environment() -> None:
    assert [pod.managed for pod in loaded(text="pods: managed, managed\n")["pods"]] == [True, True]
    assert [pod.managed for pod in loaded(WEFT_PODS="managed,managed")["pods"]] == [True, True]


def test_what_pods_run_here_may_be_a_list() -> None:
    assert load(environment={}, flags={"pods": REDIS, "only_pods": 2}).config.pods.here == (2,)
    for given in ("0,2-3", ["0", "2-3"], ["0,2", "3"], [0, 2, 3]):
        assert load(environment={}, flags={"pods": REDIS, "only_pods": given}).config.pods.here == (0, 2, 3)
    text = f"pods: [{', '.join(REDIS)}]\nonly_pods: [0, 2-3]\n"
    assert loaded(text=text)["only_pods"] == "0,2-3"


def test_the_environment_sets_a_list_to_nothing() -> None:
    assert loaded(text="include: [a]\n", WEFT_INCLUDE="")["include"] == ()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"data_dirs": ""}, "`data_dirs`: '' is not accepted; use a list of texts"),
        ({"data_dirs": ","}, "`data_dirs`: ',' is not accepted; use a list of texts"),
        ({"data_dirs": ["a", ""]}, "`data_dirs`: holds an empty text"),
        ({"data_dirs": ["a", "a"]}, "`data_dirs`: 'a' is listed twice"),
        ({"data_dirs": ["./a", "a/"]}, "`data_dirs`: 'a/' is listed twice"),
        ({"store": ["text", "text"]}, "`store`: 'text' is listed twice"),
    ],
)
def test_lists_that_cannot_be_meant(flags: dict[str, Any], said: str) -> None:
    assert said in refusal(flags)


def test_paths_are_texts() -> None:
    values = loaded({"data_dirs": [Path("/a"), Path("/b")], "log_dir": Path("/c"), "seed_file": Path("/d")})
    assert (values["data_dirs"], values["log_dir"], values["seed_file"]) == (("/a", "/b"), "/c", "/d")
    assert loaded({"data_dir": Path("/a,b")})["data_dirs"] == ("/a,b",)


# ── the seen filter ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", [{"bloom_filter_capacity": 1000}, {"bloom_filter_error_rate": 0.01}])
def test_a_bloom_key_makes_the_filter_a_bloom_filter(given: dict[str, Any]) -> None:
    result = load(environment={}, flags={"pods": REDIS, **given})
    assert result.values["seen_filter"] == "bloom"
    assert result.origins["seen_filter"] == "default (a bloom key is given)"
    assert load(environment={}, earlier=result.given()).values["seen_filter"] == "bloom"


def test_without_a_bloom_key_it_is_exact() -> None:
    values = loaded({"pods": REDIS})
    assert (values["seen_filter"], values["bloom_filter_capacity"]) == ("exact", 10_000_000_000)
    assert loaded()["seen_filter"] == "exact"
    assert loaded({"pods": REDIS, "seen_filter": "bloom"})["bloom_filter_error_rate"] == 0.001


@pytest.mark.parametrize("key", ["bloom_filter_capacity", "bloom_filter_error_rate"])
def test_a_bloom_key_that_nothing_would_read_is_an_error(key: str) -> None:
    value = {"bloom_filter_capacity": "1000", "bloom_filter_error_rate": "0.1"}[key]
    said = refusal({"pods": REDIS, "seen_filter": "exact", key: value})
    assert f"`{key}`: seen_filter is exact (`seen_filter`), which has no use for it" in said
    said = refusal({key: value})
    assert f"`{key}`: embedded pods are exact, and have no use for it" in said and "`pods`" in said
    assert "seen_filter" in refusal({"seen_filter": "bloom"})


# ── the number of pods ─────────────────────────────────────────────────────────────────────────────────────────────


def test_fewer_pods_than_are_listed_are_the_first() -> None:
    result = load(environment={}, flags={"pods": REDIS, "num_pods": "2"})
    assert [pod.redis_url for pod in result.config.pods.pods] == REDIS[:2]
    assert result.config.pods.num_pods == 2
    assert result.origins["pods"] == "`pods`, the first 2 of 4"
    again = load(environment={}, flags={"pods": REDIS}, earlier=result.given())
    assert again.config.pods == result.config.pods
    assert "there is no pod 2: there are 2" in refusal({"pods": REDIS, "num_pods": 2, "only_pods": "0-2"})


def test_more_pods_than_are_listed_are_an_error() -> None:
    said = refusal({"pods": REDIS, "num_pods": 5})
    assert said == "`num_pods`: is 5, but pods lists 4: list as many, or leave num_pods out"


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ("4", "as in redis://HOST:PORT/DB, or be managed. For 4 embedded pods: `num_pods=4`"),
        ("managed,localhost:6379", "pod 1: 'localhost:6379' is not a Redis URL: it must begin with redis://"),
        ("http://me:secret@localhost", "pod 0: 'http://***@localhost' is not a Redis URL"),
        ("redis://me:secret@localhost:port/0", "pod 0: 'redis://***@localhost:port/0' is not a Redis URL"),
        ([{"redis_url": "redis://a", "managed": True}], "pod 0: write either redis_url"),
        ([{"host": "a", "port": 1}], "use a list of pods, each"),
        ([{}], "pod 0: write either redis_url"),
    ],
)
def test_pods_that_are_none(pods: Any, said: str) -> None:
    told = refusal({"pods": pods})
    assert f"`pods`: {said}" in told or said in told
    assert "secret" not in told


# ── values that no type tells ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"bloom_filter_error_rate": 2}, "use a number above 0 and below 1"),
        ({"user_agent_template": "{version.__class__}"}, "only {version} and {email} are allowed in braces"),
        ({"user_agent_template": "{email!r:>99}"}, "only {version} and {email} are allowed in braces"),
        ({"user_agent_template": "a\r\nb"}, "cannot be sent in a header"),
        ({"email": "a\nb"}, "cannot be sent in a header"),
        ({"resolve": {"": "127.0.0.1"}}, "`resolve`: a host is missing"),
        ({"max_pages": True}, "True is not accepted"),
        ({"tls_verify": 3}, "use true or false"),
        ({"max_pages": object()}, "is not accepted"),
        ({"headers": "A: b: c"}, "use a mapping of texts"),
        ({"headers": "no mapping"}, "use a mapping of texts, like {NAME: VALUE}"),
    ],
)
def test_odd_values_have_one_clear_message(flags: dict[str, Any], said: str) -> None:
    assert said in refusal(flags)


def test_the_debug_modes_switch_is_a_truth_value() -> None:
    from weft.config import checks_pod_assignment

    name = "WEFT_DEBUG_POD_ASSIGNMENT"
    assert [checks_pod_assignment({name: text}) for text in ("true", "1", "TRUE")] == [True] * 3
    assert [checks_pod_assignment({name: text}) for text in ("", "0", "false")] == [False] * 3
    assert checks_pod_assignment({}) is False
    assert refusal(**{name: "yes please"}) == f"environment: {name}: 'yes please' is not accepted; use true or false"
