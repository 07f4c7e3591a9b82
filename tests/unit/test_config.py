"""Configuration that cannot be misspelt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from weft.config import Config, json_schema, keys, load, masked
from weft.errors import BadConfig


def problems(tmp_path: Path, text: str | bytes, **environment: str) -> list[str]:
    path = tmp_path / "weft.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadConfig) as caught:
        load(path, environment=environment)
    return [problem.replace(str(path), "F") for problem in caught.value.problems]


def loaded(tmp_path: Path, text: str, flags: dict[str, Any] | None = None, **environment: str) -> Config:
    path = tmp_path / "weft.yaml"
    path.write_text(text)
    return load(path, environment=environment, flags=flags).config


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    text = "max_retries: 1\nmax_redirects: 1\nmax_depth: 1\n"
    environment = {"WEFT_MAX_REDIRECTS": "2", "WEFT_MAX_DEPTH": "2"}
    path = tmp_path / "weft.yaml"
    path.write_text(text)
    result = load(path, environment=environment, flags={"max_depth": "3"})
    got = {name: (result.values[name], result.origins[name]) for name in ("max_retries", "max_redirects", "max_depth")}
    assert got == {
        "max_retries": (1, f"{path}:1"),
        "max_redirects": (2, "WEFT_MAX_REDIRECTS"),
        "max_depth": (3, "`max_depth`"),
    }
    assert load(environment={}).origins["max_depth"] == "default"


def test_defaults_follow_from_other_values(tmp_path: Path) -> None:
    narrow = load(environment={}).config
    assert (narrow.scope.scope, narrow.politeness.delay_s, narrow.politeness.places) == ("domain", 1.0, 1)
    wide = loaded(tmp_path, "seed_file: seeds.txt\n")
    assert (wide.scope.scope, wide.politeness.delay_s) == ("any", 70.0)
    eager = loaded(tmp_path, "politeness_delay_seconds: 0\ndata_dirs: [/a, /b]\n")
    assert (eager.politeness.places, eager.log.log_dir) == (8, "/a/logs")


def test_sections_are_frozen() -> None:
    config = load(environment={}).config
    with pytest.raises(AttributeError):
        config.fetch.email = "x@example.com"  # type: ignore[misc]


def test_five_different_mistakes_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        "politness_delay_seconds: 3\nmax_pages: lots\nscope: galaxy\nbreaker_failures: -2\nmax_pages: 5\n"
        "headers:\n  X-A: ${NOT_SET}\n",
    )
    assert told == [
        "F:1: unknown key 'politness_delay_seconds'; did you mean 'politeness_delay_seconds'?",
        "F:2: max_pages: 'lots' is not accepted; use a whole number from 1 up or nothing",
        "F:3: scope: 'galaxy' is not accepted; use one of any, domain, host, prefix",
        "F:4: breaker_failures: -2 is not accepted; use a whole number from 1 up",
        "F:5: key 'max_pages' is repeated; line 2 has it already",
        "F:7: ${NOT_SET} is not set in the environment; set it or write ${NOT_SET:-x}",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n- b\n", "F:1: holds a list; write `key: value` lines"),
        ("just text", "F:1: holds a single value; write `key: value` lines"),
        ("a: [1, 2\nb: 3\n", "F:2: is not YAML: expected ',' or ']', but got ':'"),
        (b"\xff\xfe\x00", "F: is not UTF-8 text"),
        ("x: \x01", "F: is not YAML"),
        ("tls_verify: 12", "F:1: tls_verify: 12 is not accepted; use true or false"),
        ("read_timeout: 0", "F:1: read_timeout: 0 is not accepted; use a number above 0"),
        ("max_retries: true", "F:1: max_retries: True is not accepted; use a whole number from 0 up"),
        ("read_timeout: true", "F:1: read_timeout: True is not accepted; use a number above 0"),
        ("store: [warc, papyrus]", "F:1: store: ['warc', 'papyrus'] is not accepted; use a list of text, warc"),
        ("resolve: [a]", "F:1: resolve: ['a'] is not accepted; use a mapping of texts"),
        ("dns_servers: [192.0.2.1, ns.example]", "F:1: dns_servers: 'ns.example' is not a name server"),
        ("dns_servers: '192.0.2.1:70000'", "F:1: dns_servers: '192.0.2.1:70000' is not a name server"),
        ("dns_servers: [system, 192.0.2.1]", "F:1: dns_servers: `system` cannot be combined with others"),
        ("accept: [html, png]", "F:1: accept: 'png' is not a content type: write text, html, xml, json"),
        ("accept: []", "F:1: accept: [] is not accepted"),
        ("dns_timeout: 0.1", "F:1: dns_timeout: 0.1 is not accepted"),
        ("resolve: {a: b}", "F:1: resolve: a: 'b' is not an IP address"),
        ("lease_seconds: 10", "F:1: lease_seconds: must be more than total_timeout (60)"),
        ("include: 're:('", "F:1: include: 're:(' is not a regular expression"),
        ("include: 're2:(a{100}){100}'", "F:1: include: 're2:(a{100}){100}' is not a regular expression"),
        ("exclude: 're2-path:(?=a)'", "F:1: exclude: 're2-path:(?=a)' is not a regular expression"),
        ("user_agent_template: 'x {name}'", "F:1: user_agent_template: only {version} and {email} are allowed"),
        ("headers: {X: \"a\\r\\nEvil: 1\"}", "F:1: headers: 'X' is not a header that can be sent"),
        ("headers: {X: 1, X: 2}", "F:1: key 'X' is repeated"),
        ("headers: {Cookie: a=1, cookie: b=2}", "F:1: headers: 'cookie' is given twice; write one header with both"),
        ("headers: {Host: x}", "F:1: headers: 'Host': Host is set for each request, and cannot be given"),
        ("headers: {'*:X': s}", "F:1: headers: '*': not a host: write HOST, HOST:PORT or https://HOST"),
        ("auth: {example.com: secret}", "F:1: auth: example.com: write user:password"),
        ("qqqqq: 1", "F:1: unknown key 'qqqqq'; `weft config schema` lists the known ones"),
    ],
)  # fmt: skip
def test_each_mistake_has_one_clear_message(tmp_path: Path, text: str | bytes, told: str) -> None:
    assert problems(tmp_path, text)[0].startswith(told)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"nowhere\.yaml: cannot be read: No such file"):
        load(tmp_path / "nowhere.yaml", environment={})


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(BadConfig, match=r"WEFT_MAX_PAGE names no key; did you mean 'WEFT_MAX_PAGES'\?"):
        load(environment={"WEFT_MAX_PAGE": "3"})
    load(environment={"WEFT_DEBUG": "1", "WEFT_DEBUG_POD_ASSIGNMENT": "true"})


def test_variables_are_filled_in_and_typed(tmp_path: Path) -> None:
    text = "max_pages: ${N}\nemail: ${WHO:-me}@example.com\ndata_dirs: ['${D}/a', '$${D}']\nmax_depth: ${M:-4}\n"
    config = loaded(tmp_path, text, N="12", D="/data")
    assert config.limits.max_pages == 12
    assert config.fetch.email == "me@example.com"
    assert config.store.data_dirs == ("/data/a", "${D}")
    assert config.scope.max_depth == 4


def test_lists_may_be_one_text_in_the_file_and_comma_separated_outside(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, "store: text,warc\ndata_dirs: /one\n", WEFT_INCLUDE="a*, b*", WEFT_RESOLVE="{h: 127.0.0.1}"
    )
    assert config.store.store == ("text", "warc")
    assert config.store.data_dirs == ("/one",)
    assert config.scope.include == ("a*", "b*")
    assert config.fetch.resolve == {"h": "127.0.0.1"}


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# nothing yet\n") == load(environment={}).config


def test_secrets_are_masked(tmp_path: Path) -> None:
    assert masked("auth", {"example.com": "me:secret"}) == {"example.com": "***"}
    told = problems(tmp_path, "auth: me:secret")
    assert "secret" not in told[0]


def test_the_schema_covers_every_key_and_is_plain_json() -> None:
    schema = msgspec.json.decode(msgspec.json.encode(json_schema()))
    assert set(schema["properties"]) == set(keys())
    assert schema["additionalProperties"] is False
    assert all(item.help for item in keys().values())


def test_the_documented_defaults_are_the_defaults() -> None:
    values = load(environment={}).values
    documented = {
        "robots_cache_ttl_seconds": 86400, "max_body_bytes": 10 * 2**20, "max_redirects": 5, "connect_timeout": 10,
        "read_timeout": 15, "total_timeout": 60, "max_retries": 3, "retry_backoff_seconds": 1, "breaker_failures": 5,
        "breaker_reset_seconds": 300, "prometheus_port": 8001, "metrics_update_seconds": 10, "lease_seconds": 90,
        "max_retry_after_seconds": 600, "breaker_max_probes": 3, "fetcher_workers": None, "politeness_scope": "domain",
        "user_agent_template": "Weft/{version} (+{email})", "store": ("warc",), "data_dirs": ("./weft-data",),
    }  # fmt: skip
    assert {name: values[name] for name in documented} == documented
