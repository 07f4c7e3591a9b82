"""The synthetic web is a function of its spec, and looks like a web."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import pytest

from weft.errors import BadInput
from weft.testing.content import pages, sitemaps, traps
from weft.testing.content.resources import FOLLOWED, mix
from weft.testing.content.sites import WorldSpec, address
from weft.testing.world import World

DIGEST = """
import sys
from hashlib import sha256
from weft.testing.content import pages
from weft.testing.content.sites import WorldSpec
from weft.testing.world import World
world = World(WorldSpec(hosts=12, pages=150, seed=int(sys.argv[1]), profile=sys.argv[2]))
lines = []
for site in reversed(world.sites) if sys.argv[3] == "backwards" else world.sites:
    for resource in world.every_resource(site):
        body = pages.render(resource, world.texts)
        head = pages.head(resource.status, len(body), pages.headers_of(resource))
        lines.append(sha256(f"{site.host} {resource.path}".encode() + head + body).hexdigest())
print(sha256("".join(sorted(lines)).encode()).hexdigest())
"""


def digest_in_new_process(seed: int, profile: str, hash_seed: str, order: str = "forwards") -> str:
    command = [sys.executable, "-c", DIGEST, str(seed), profile, order]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def calm() -> World:
    return World(WorldSpec(hosts=100, pages=2000, seed=7))


@pytest.fixture(scope="module")
def messy() -> World:
    return World(WorldSpec(hosts=100, pages=1000, seed=7, profile="messy"))


def test_same_seed_gives_identical_bytes_whatever_the_hash_seed_and_the_order_of_asking() -> None:
    first = digest_in_new_process(7, "hostile", "1")
    assert len(first) == 65
    assert digest_in_new_process(7, "hostile", "2", "backwards") == first
    assert digest_in_new_process(8, "hostile", "1") != first


def test_mix_gives_the_same_numbers_for_ever() -> None:
    assert (
        f"{mix(0):016x} {mix(7, 1, 2):016x} {mix(7, 2, 1):016x}" == "2cb0f69f4abea221 0f0ce835f4aebfa7 758d8710dd226dbf"
    )


def test_the_port_shows_in_urls_alone(calm: World) -> None:
    other = World(replace(calm.spec, port=9999))
    here, there = calm.page(calm.sites[3], 1), other.page(other.sites[3], 1)
    body = pages.render(here, calm.texts).replace(b":8400", b":9999")
    assert body == pages.render(there, other.texts)


def test_pages_are_shared_out_to_the_last_one(calm: World, messy: World) -> None:
    for world in (calm, messy, World(WorldSpec(hosts=7, pages=7)), World(WorldSpec(hosts=1, pages=300))):
        assert sum(site.count for site in world.ordinary) == world.spec.pages
        assert min(site.count for site in world.ordinary) >= 1
    counts = sorted(site.count for site in calm.ordinary)
    assert counts[-1] > 4 * statistics.median(counts)


def test_with_one_stocked_host_there_is_every_kind_of_special_url_and_fewer_of_each() -> None:
    def paths(stocked: int) -> list[set[str]]:
        world = World(WorldSpec(hosts=6, pages=60, seed=5, profile="messy", stocked=stocked))
        return [set(world.fixtures(site).resources) for site in world.ordinary]

    usual, few = paths(3), paths(1)
    assert few[0] == usual[0]
    assert few[1] < usual[1] and few[2] < usual[2]
    assert few[3:] == usual[3:]


def test_hosts_that_are_slow_to_crawl_are_small(messy: World) -> None:
    assert all(site.count <= 12 for site in messy.ordinary if site.robots.crawl_delay_s or site.role != "ordinary")


def test_sizes_and_degrees_are_realistic(calm: World) -> None:
    sample = [calm.page(site, number) for site in calm.ordinary for number in range(site.count)][::3]
    sizes = [len(pages.render(page, calm.texts)) for page in sample]
    degrees = [sum(reference.tag == "a" for reference in page.references) for page in sample]
    assert 36_000 < statistics.median(sizes) < 46_000
    assert min(sizes) >= 2_000 and max(sizes) < 450_000 and max(sizes) > 150_000
    assert 42 < statistics.median(degrees) < 58
    assert max(degrees) > 250
    inside = sum(
        reference.target.startswith(site.origin)
        for site in calm.ordinary
        for reference in calm.page(site, 0).references
        if reference.target
    )
    everything = sum(len(calm.page(site, 0).references) for site in calm.ordinary)
    assert 0.7 < inside / everything < 0.95


def test_there_are_many_languages_and_charsets_and_ways_to_declare_them(messy: World) -> None:
    sample = [messy.page(site, number) for site in messy.ordinary for number in range(min(8, site.count))]
    assert len({page.language for page in sample}) >= 9
    assert len({page.charset for page in sample}) >= 10
    assert {page.declared for page in sample} >= {"header", "meta", "both", "bom", "none", "wrong"}


def test_pages_decode_in_the_charset_they_are_made_in(messy: World) -> None:
    for site in messy.ordinary[:60]:
        page = messy.page(site, 0)
        text = pages.render(page, messy.texts).decode("utf-16" if page.charset == "utf-16" else page.charset)
        assert page.title in text


def test_every_path_leads_back_to_its_page(calm: World) -> None:
    for site in calm.ordinary[:30]:
        assert len(set(site.paths)) == site.count
        for path in site.paths:
            assert calm.find(site, path).path == path
            assert calm.find(site, path).status == 200
    assert calm.find(calm.sites[0], "/news/no-such-page-3.html").status == 404


def test_every_followed_link_inside_the_web_leads_to_something(calm: World) -> None:
    for site in calm.ordinary[:10]:
        for resource in calm.every_resource(site):
            for reference in resource.references if resource.parsed else ():
                if reference.target and reference.tag in FOLLOWED and "/never/" not in reference.target:
                    place = calm.locate(reference.target)
                    assert place is not None, reference
                    found = calm.find(*place)
                    known_missing = found.path.startswith(("/gone/", "/files/", "/feed.xml"))
                    assert found.status != 404 or known_missing, (resource.path, reference)


def test_addresses_are_loopback_and_never_end_in_0_or_255() -> None:
    sample = [address(index) for index in (0, 253, 254, 5000, 65_023, 65_024, 999_999)]
    assert sample[:3] == ["127.1.0.1", "127.1.0.254", "127.1.1.1"]
    assert all(re.fullmatch(r"127\.\d+\.\d+\.\d+", one) and one.split(".")[3] not in ("0", "255") for one in sample)
    assert len({address(index) for index in range(70_000)}) == 70_000


def test_names_are_names_and_some_are_not_ascii() -> None:
    world = World(WorldSpec(hosts=8, pages=8, names=True))
    assert world.sites[2].origin == "http://site2.weft-web.test:8400"
    assert world.sites[7].host.startswith("xn--bcher7-")
    assert world.resolve()["site2.weft-web.test"] == "127.0.0.1"


def test_messy_webs_have_every_trouble(messy: World) -> None:
    kinds = Counter(site.flavour for site in messy.ordinary)
    assert set(kinds) == {"transient", "broken", "rate-limit", "reset", "slow", "charset", "soft-404", "well"}
    assert {site.robots.style for site in messy.ordinary} >= {
        *("plain", "agent", "wildcard", "percent", "missing", "delayed", "late", "crlf", "exception", "moved", "bom"),
        *("walled", "dead"),
    }
    assert {kind for site in messy.ordinary for kind in site.traps} == set(traps.PATTERNS)
    assert sum(bool(site.traps) for site in messy.ordinary) <= len(messy.ordinary) // 20


def test_no_host_fails_so_often_in_a_row_that_a_breaker_would_open(messy: World) -> None:
    for site in messy.ordinary:
        flaws = [resource.flaw for resource in messy.every_resource(site) if resource.flaw]
        if site.role == "ordinary":
            assert sum(min(flaw.failures, 4) for flaw in flaws) <= 4, site


def test_traps_have_no_end_and_lead_back_to_real_pages_only(messy: World) -> None:
    for site in messy.ordinary:
        for kind in site.traps:
            path = traps.ENTRANCES[kind][0]
            for _ in range(30):
                page = messy.find(site, path)
                assert page.trap and page.status == 200
                inside = [r for r in page.references if messy.find(site, str(r.target)[len(site.origin) :]).trap]
                outside = [r for r in page.references if r not in inside]
                assert outside and all(str(r.target)[len(site.origin) :] in site.paths for r in outside)
                path = str(inside[0].target)[len(site.origin) :]
    assert messy.find(messy.sites[0], "/calendar/2031/05").status == 404


def test_an_edition_changes_its_share_of_pages_and_no_links() -> None:
    base = World(WorldSpec(hosts=10, pages=600, seed=1))
    later = World(WorldSpec(hosts=10, pages=600, seed=1, edition=1, changed=0.1))
    changed = 0
    for old_site, new_site in zip(base.sites, later.sites, strict=True):
        for number in range(old_site.count):
            old, new = base.page(old_site, number), later.page(new_site, number)
            assert old.references == new.references
            same = pages.render(old, base.texts) == pages.render(new, later.texts)
            assert same == (pages.etag(old) == pages.etag(new)) == (old.modified == new.modified)
            changed += not same
    assert 35 <= changed <= 90


def test_sitemaps_name_pages_that_no_link_names(calm: World) -> None:
    site = next(site for site in calm.ordinary if site.sitemap == "index")
    linked = {r.target for number in range(site.count) for r in calm.page(site, number).references}
    only_listed = [path for path in sitemaps.entries(site) if site.origin + path not in linked]
    assert any(path.startswith("/vault/") for path in only_listed)
    assert calm.sites[1].sitemap == "probe" and b"Sitemap" not in calm.sites[1].robots.body


def test_twins_are_identical_and_near_twins_nearly(calm: World) -> None:
    site = calm.sites[0]
    body = {
        name: pages.render(calm.find(site, f"/same/{name}"), calm.texts)
        for name in ("twin-1", "twin-2", "near-1", "near-2")
    }
    assert body["twin-1"] == body["twin-2"]
    assert body["near-1"] != body["near-2"]
    words = [set(body[name].split()) for name in ("near-1", "near-2")]
    assert len(words[0] & words[1]) / len(words[0] | words[1]) > 0.9
    assert sha256(body["twin-1"]).digest() != sha256(body["near-1"]).digest()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hosts": 0}, "hosts must be 1 or more"),
        ({"hosts": -3}, "hosts must be 1 or more"),
        ({"hosts": 10, "pages": 9}, "pages must be at least"),
        ({"profile": "wild"}, "profile must be one of"),
        ({"port": 70_000}, "port must be from"),
        ({"edition": -1}, "edition must be"),
        ({"stocked": -1}, "stocked must be 0 or more"),
        ({"edition": 1001}, "edition must be"),
        ({"pages": 10_000_001}, "pages must be at most"),
        ({"changed": 1.5}, "changed must be"),
        ({"hosts": 2_000_000, "pages": 3_000_000}, "at most"),
        ({"tls": True, "hosts": 200}, "need names"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        WorldSpec(**wrong)  # type: ignore[arg-type]
