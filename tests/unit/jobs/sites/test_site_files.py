"""Site files: what they may say, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from weft.errors import BadInput
from weft.jobs.model import Lane
from weft.jobs.sites.files import read_site, site_of

LEAST: dict[str, Any] = {"name": "shop", "start_urls": ["https://shop.example/"]}
FULL: dict[str, Any] = LEAST | {
    "scope": "prefix", "include": ["/a/*"], "exclude": ["/b"], "max_depth": 3, "max_pages": 50, "timeout_minutes": 5,
    "delay_seconds": 1.5, "max_concurrent_articles": 2, "retry_attempts": 1, "formats": ["text"],
    "extract": {"price": {"css": ".price", "type": "number"}}, "schedule": "30 2 * * *", "timezone": "Europe/Berlin",
    "depends_on": ["prices"], "min_success_rate": 0.5, "webhook": "https://hooks.example/x",
    "only_changed": False, "max_memory_bytes": 8 << 20,
}  # fmt: skip


def written(folder: Path, content: dict[str, Any], form: str = "yaml") -> Path:
    path = folder / f"site.{form}"
    path.write_text(yaml.safe_dump(content) if form == "yaml" else json.dumps(content))
    return path


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_file_becomes_a_task_in_the_lane_of_sites(tmp_path: Path, form: str) -> None:
    site = read_site(written(tmp_path, FULL, form), 0.0)
    spec = site.spec
    assert (spec.lane, spec.kind, spec.extra) == (Lane.SITE, "site", {"site": "shop"})
    assert (spec.scope, spec.max_depth, spec.max_pages, spec.timeout_s, spec.delay_s) == ("prefix", 3, 50, 300.0, 1.5)
    assert spec.max_memory_bytes == 8 << 20
    assert (spec.max_concurrent_articles, spec.retry_attempts, spec.formats) == (2, 1, ("text",))
    assert spec.extract == FULL["extract"]
    assert spec.webhook == {"url": "https://hooks.example/x"}
    assert site.cron is not None and site.cron.after(0.0) > 0


def test_rules_may_be_in_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("title: {css: h1}\n")
    assert read_site(written(tmp_path, LEAST | {"extract": "rules.yaml"}), 0.0).extract == {"title": {"css": "h1"}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"start_urls": []}, r"start_urls: \[\] is not accepted; use a list of 1 to 1,000 URLs"),
        ({"start_urls": ["shop"], "extra": 1}, "extra: there is no such field"),
        ({"max_page": 5}, "did you mean 'max_pages'"),
        ({"name": "Shop!"}, 'name: "Shop!" is not accepted; use small letters'),
        ({"max_pages": "many"}, 'max_pages: "many" is not accepted; use a whole number from 1 to 1,000,000$'),
        ({"max_depth": -1}, "max_depth: -1 is not accepted; use a whole number from 0 to 1,000"),
        ({"max_memory_bytes": 4096}, "max_memory_bytes: 4096 is not accepted; use a whole number from 4,194,304"),
        ({"scope": "planet"}, 'scope: "planet" is not accepted; use one of .*domain.*host'),
        ({"start_urls": ["ftp://shop.example/"]}, "ftp://shop.example/"),
        ({"extract": {"price": {"css": "..price["}}}, "extract.price"),
        ({"extract": "nowhere.yaml"}, "extract: .*nowhere.yaml"),
        ({"formats": ["pdf"]}, "pdf"),
        ({"schedule": "0 0 30 2 *"}, "ever fires"),
        ({"schedule": "often"}, "is no cron line"),
        ({"schedule": "@daily", "timezone": "Mars"}, "timezone: 'Mars'"),
        ({"timezone": "Mars"}, "timezone: 'Mars'"),
        ({"depends_on": ["shop"]}, "cannot wait for itself"),
        ({"include": ["re:.*"]}, "use globs"),
        ({"exclude": ["*a" * 500] * 11}, "exclude: globs have at most 10,000 characters together"),
        ({"proxies": "list.txt"}, "proxies"),
        ({"webhook": {"url": "https://hooks.example/", "event": []}}, "did you mean 'events'"),
        ({"webhook": {"url": "https://hooks.example/", "events": ["seldom"]}}, "webhook.events"),
        ({"webhook": {"url": "https://hooks.example/", "headers": {"X": "a\r\nB: c"}}}, "webhook.headers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    path = written(tmp_path, LEAST | more)
    with pytest.raises(BadInput, match=said) as caught:
        read_site(path, 0.0)
    assert str(caught.value).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "name: is missing"),
        (b"- a\n", "site.yaml:1: holds a list; write `key: value` lines"),
        (b"name: shop\n", "start_urls: is missing"),
        (b"{]", "is not JSON"),
        (b"name: a\na: [\n", "site.yaml:3: is not YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * (2 << 20), "longer than"),
        (b"[" * 100_000, "nested too deeply"),
        (
            b"extract:\n  a: &a [x, x, x, x]\n"
            + b"".join(b"  %c: &%c [*%c, *%c, *%c, *%c]\n" % (n, n, *[n - 1] * 4) for n in range(98, 120)),
            "too many parts",
        ),
    ],
)
def test_what_is_no_site_file_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(text)
    with pytest.raises(BadInput, match=said):
        read_site(path, 0.0)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_site(tmp_path / "none.yaml", 0.0)


def test_start_urls_are_canonical_and_each_once() -> None:
    given = LEAST | {"start_urls": ["HTTPS://Shop.Example", "https://shop.example/"]}
    assert site_of(given, 0.0).start_urls == ("https://shop.example/",)


def test_all_that_is_wrong_is_told_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("name: shop\nstart_urls: [a b]\nmax_pages: many\nscope: site\nname: other\nmax_page: 1\n")
    with pytest.raises(BadInput) as caught:
        read_site(path, 0.0)
    lines = str(caught.value).replace(str(path), "F").splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["F:5", "F:6", "F:3", "F:4", "F:2"]
    assert "key 'name' is repeated; line 1 has it already" in lines[0] and "'max_pages'?" in lines[1]
    path.write_text("name: shop\nstart_urls: [a b]\ntimezone: Mars\nformats: [pdf]\n")
    with pytest.raises(BadInput) as caught:
        read_site(path, 0.0)
    lines = str(caught.value).replace(str(path), "F").splitlines()
    assert [line.split(": ")[:2] for line in lines] == [["F:3", "timezone"], ["F:4", "formats"], ["F:2", "start_urls"]]
    path.write_text('{"name": "shop", "name": "b", "start_urls": ["https://a.example/"]}')
    with pytest.raises(BadInput, match="key 'name' is there twice"):
        read_site(path, 0.0)
