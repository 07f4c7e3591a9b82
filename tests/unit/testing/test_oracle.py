"""What the oracle says about particular URLs; the walk in tests/integration shows that it says it about all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from weft.errors import BadInput
from weft.testing.content.resources import FOLLOWED
from weft.testing.content.sites import WorldSpec
from weft.testing.oracle import SKIPPED_EXTENSIONS, CrawlPlan, Expectation, expect, plan_from_yaml
from weft.testing.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldSpec(hosts=30, pages=300, seed=4, profile="messy"))


def asked(world: World, **plan: Any) -> Expectation:
    return expect(world, CrawlPlan(**{"seeds": tuple(world.seeds()), **plan}))


@pytest.fixture(scope="module")
def everything(world: World) -> Expectation:
    return asked(world)


def test_all_ordinary_pages_that_robots_allows_must_be_requested(world: World, everything: Expectation) -> None:
    must = set(everything.must)
    for site in world.ordinary:
        urls = [site.origin + path for path in site.paths if site.robots.allows(path)]
        if site.role == "dead":
            assert all(everything.never[url] == ["robots-unreachable"] for url in urls if url in everything.never)
        else:
            assert must.issuperset(urls)


def test_nothing_is_both_wanted_and_forbidden(everything: Expectation) -> None:
    assert not set(everything.must) & set(everything.may)
    assert not set(everything.never) & {*everything.must, *everything.may}


@pytest.mark.parametrize(
    ("path", "reasons"),
    [
        ("/never/nofollow-plain", ["nofollow"]),
        ("/never/comment", ["no-link"]),
        ("/never/template", ["no-link"]),
        ("/never/noscript-refresh", ["no-link"]),
        ("/files/scan.JPEG", ["extension"]),
        ("/files/list.csv?all=1", ["extension"]),
        ("/private/by-redirect", ["robots"]),
        ("/hops7/7", ["redirects"]),
        ("/never/" + "long-" * 420, ["length"]),
        ("/static/site.css", ["no-link"]),
    ],
)
def test_refusals_have_their_reason(world: World, everything: Expectation, path: str, reasons: list[str]) -> None:
    assert everything.never[world.sites[0].origin + path] == reasons


@pytest.mark.parametrize(
    "path",
    [
        *("/hops5/5", "/landed/hops5", "/hops7/6", "/landed/303", "/spin/a", "/spin/b", "/gone/404", "/gone/unknown"),
        *("/found/past-noindex", "/found/canonical-only", "/found/refreshed", "/lib/v2/first", "/frames/left"),
        *("/hard/q?a=1&copy=2", "/hard/a%20space", "/hard/above-root", "/found/past-untyped", "/view?file=report.pdf"),
        *("/start.json", "/found/behind-wall", "/enc/caf%C3%A9?q=caf%E9"),
    ],
)
def test_what_must_be_found(world: World, everything: Expectation, path: str) -> None:
    assert world.sites[0].origin + path in everything.must


def test_links_of_error_pages_and_plain_text_are_not_known_at_all(world: World, everything: Expectation) -> None:
    for path in ("/never/from-404", "/never/from-plain-text", "/never/meta-nofollow"):
        url = world.sites[0].origin + path
        assert url not in everything.must and url not in everything.may


def test_how_often_each_may_be_requested(world: World, everything: Expectation) -> None:
    by_flavour = {site.flavour: site for site in reversed(world.ordinary)}

    def limit(flavour: str, number: int) -> int:
        site = by_flavour[flavour]
        return everything.requests.get(site.origin + site.paths[number], 1)

    assert (limit("transient", 1), limit("transient", 2), limit("transient", 0)) == (2, 3, 1)
    assert (limit("rate-limit", 1), limit("reset", 1), limit("slow", 1)) == (2, 2, 1)
    assert everything.requests[by_flavour["broken"].origin + "/broken/always"] == 4
    assert everything.requests[world.sites[0].origin + "/spin/self"] == 6
    assert everything.requests[world.sites[0].origin + "/robots.txt"] == 3


def test_sitemaps_are_read_where_they_are_named_or_probed(world: World, everything: Expectation) -> None:
    assert world.sites[1].origin + "/vault/table.csv" in everything.must
    assert world.sites[1].origin + "/sitemap.xml" in everything.may
    elsewhere = asked(world, seeds=(world.sites[0].home,))
    assert world.sites[1].origin + "/vault/table.csv" not in {*elsewhere.must, *elsewhere.may}
    named = next(site for site in world.ordinary[4:] if site.sitemap == "index")
    assert named.origin + "/vault/table.csv" in elsewhere.must
    assert named.origin + "/sitemaps/part-1.xml.gz" in elsewhere.may


def test_with_a_depth_what_hangs_on_a_sitemap_is_left_open(world: World) -> None:
    named = next(site for site in world.ordinary[4:] if site.sitemap == "index")
    shallow = asked(world, max_depth=3)
    assert named.origin + "/vault/table.csv" in shallow.may
    assert world.sites[1].origin + "/vault/table.csv" in shallow.must


def test_depth_0_is_the_seeds_and_what_they_redirect_to(world: World) -> None:
    expectation = asked(world, max_depth=0)
    pages = {url for url in expectation.must if not url.endswith("/robots.txt")}
    redirect = world.find(world.sites[3], "/start").leads_to
    assert pages == {*world.seeds(), redirect}
    assert expectation.never[world.sites[0].origin + world.sites[0].paths[1]] == ["depth"]


def test_seeds_only(world: World) -> None:
    expectation = asked(world, seeded_urls_only=True)
    pages = {url for url in expectation.must if not url.endswith("/robots.txt")}
    assert pages == set(world.seeds())
    assert world.find(world.sites[3], "/start").leads_to in expectation.may


def test_scope_keeps_to_the_seeds_hosts(world: World) -> None:
    site = world.sites[2]
    expectation = asked(world, seeds=(site.home,), scope="host")
    assert {url.split("/")[2] for url in expectation.must} == {site.origin.split("/")[2]}
    assert any(reasons == ["scope"] for reasons in expectation.never.values())


def test_a_seeds_redirect_opens_the_scope_to_where_it_leads(world: World) -> None:
    start = world.sites[3].origin + "/start"
    led = world.locate(world.find(world.sites[3], "/start").leads_to or "")
    assert led is not None
    expectation = asked(world, seeds=(start,), scope="domain")
    hosts = {url.split("/")[2].split(":")[0] for url in expectation.must}
    assert led[0].host in hosts
    assert hosts == {world.sites[3].host, led[0].host}


def test_an_excluded_domain_is_not_even_asked_for_robots_txt(world: World) -> None:
    expectation = asked(world, exclude_domains=(world.sites[5].host,))
    wanted = [*expectation.must, *expectation.may]
    assert not [url for url in wanted if url.startswith(world.sites[5].origin + "/")]


def test_exclude_binds_everything_and_include_does_not_bind_seeds(world: World) -> None:
    home = world.sites[0].home
    only_seeds = asked(world, seeds=(home,), include=("*/nothing-like-this/*",))
    assert [url for url in only_seeds.must if "robots" not in url] == [home]
    nothing = asked(world, seeds=(home,), exclude=("re:.",))
    assert nothing.must == [] and nothing.never[home] == ["pattern"]


def test_with_a_budget_only_seeds_are_certain(world: World) -> None:
    expectation = asked(world, max_pages_per_domain=1)
    pages = [url for url in expectation.must if not url.endswith("/robots.txt")]
    # host 0 has two seeds, and room for one
    assert not any(url.startswith(world.sites[0].origin + "/") for url in pages)
    assert world.sites[1].home in pages
    assert len(expectation.may) > 300
    assert expectation.max_pages_per_host == 1


def test_expectation_survives_json(everything: Expectation) -> None:
    assert msgspec.json.decode(msgspec.json.encode(everything), type=Expectation) == everything


def test_plan_from_a_crawl_config(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("# not these\nexample.com\n\n 127.1.0.3 # nor this\n")
    config = tmp_path / "crawl.yaml"
    config.write_text(
        f"scope: host\nmax_depth: 2\ninclude: '*/news/*'\nexclude: ['re:x$']\nexclude_file: {tmp_path}/out.txt\n"
        "seeded_urls_only: false\nmax_pages_per_domain: 9\npoliteness_delay_seconds: 3\n"
    )
    plan = plan_from_yaml(config, ["http://a/"])
    assert plan == CrawlPlan(
        ("http://a/",),
        scope="host",
        max_depth=2,
        include=("*/news/*",),
        exclude=("re:x$",),
        exclude_domains=("example.com", "127.1.0.3"),
        max_pages_per_domain=9,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scope: everywhere", "scope must be one of"),
        ("max_depth: -1", "max_depth must be"),
        ("max_depth: deep", "max_depth must be"),
        ("- a\n- b", "mapping"),
        ("a: [", "not YAML"),
        ("exclude_file: /no/such/file", "No such file"),
    ],
)
def test_a_bad_crawl_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "crawl.yaml"
    config.write_text(text)
    with pytest.raises(BadInput, match=message):
        plan_from_yaml(config, [])


def test_a_bad_pattern_is_refused(world: World) -> None:
    with pytest.raises(BadInput, match="re:\\("):
        asked(world, include=("re:(",))


def test_the_words_of_the_specification() -> None:
    assert len(SKIPPED_EXTENSIONS) == 71
    assert {"jpg", "tgz", "xd", "sql", "7z"} <= SKIPPED_EXTENSIONS
    assert {"a", "area", "iframe", "frame", "canonical", "refresh"} == FOLLOWED
