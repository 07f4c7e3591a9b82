"""Behaviours 35 to 43 of spec/behaviours.md: robots.txt, robots directives and sitemaps.

Each behaviour has its own sites, written above its test; those that need no settings of their own share one crawl.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from crawling import weft
from pace import patience
from scripted import Ask, Page, Plan, Visit, Web, crawled, linking, page, redirect, robots

OPEN = Plan("open", max_body_bytes=1 << 20)
QUIET_S = patience(0.2)
QUIET = Plan("quiet", read_timeout=QUIET_S)
OWN = Plan("own", ignore_robots=True)


def later(plan: Plan) -> None:
    """The crawl, and when the site is well again, what failed of it."""
    plan.run(exit_code=4)
    assert well_again.asked_so_far() == []
    well_again.on("/robots.txt", robots("User-agent: *", "Disallow: /private"))
    plan.run("--resume", "--retry-failed")


LATER = Plan("later", drive=later)


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("robots"), OPEN, QUIET, OWN, LATER) as running:
        yield running


once, below = OPEN.site("once.test", "/", "/b"), OPEN.site("below.once.test")
once.on("/robots.txt", robots("User-agent: *", "Disallow: /no")).pages("/b", "/c", "/no")
once.on("/", linking("/c", "/no", "http://below.once.test:PORT/x", "http://below.once.test:PORT/y"))
below.on("/robots.txt", redirect("/rules")).on("/rules", robots("User-agent: *", "Disallow: /y")).pages("/x", "/y")


def test_35_robots_txt_is_fetched_once_per_origin_and_before_its_pages() -> None:
    assert sorted(once.asked()) == ["/", "/b", "/c"]
    assert [ask.target for ask in once.arrivals].index("/robots.txt") == 0
    assert len(once.asks("/robots.txt")) == 1
    assert [ask.target for ask in below.arrivals] == ["/robots.txt", "/rules", "/x"]
    assert once.row("/no").error == "robots: Disallow: /no (line 2)"
    logs = [log.read_text() for log in (OPEN.data_dir / "frontier").rglob("requests-*.log")]
    assert any("once.test" in log for log in logs)
    assert not any(re.search(r"//once\.test:\d+/no[\t\n]", log) for log in logs), "it took no turn of its site"


own = OWN.site("own.test", "/")
own.on(
    "/robots.txt", robots("User-agent: *", "Disallow: /", "Crawl-delay: 60", "Sitemap: http://own.test:PORT/map.xml")
)
own.on("/", linking("/a")).pages("/a", "/listed")
own.on("/map.xml", page("<urlset><url><loc>http://own.test:PORT/listed</loc></url></urlset>", "Content-Type: text/xml"))


def test_a_server_of_ones_own_may_be_crawled_against_its_robots_txt_and_the_audit_knows() -> None:
    assert sorted(own.asked()) == ["/", "/a", "/listed", "/map.xml"] or sorted(own.asked()) == ["/", "/a", "/listed"]
    assert own.row("/a").status == 200
    done = weft("audit", OWN.data_dir)
    assert done.returncode == 0 and "no violation" in done.stdout


missing = [OPEN.site(f"robots-{status}.test", "/") for status in (404, 403, 410)]
for site, status in zip(missing, ("404 Not Found", "403 Forbidden", "410 Gone"), strict=True):
    site.on("/robots.txt", page("User-agent: *\nDisallow: /", "Content-Type: text/plain", status=status))
    site.on("/", linking("/x")).pages("/x")


def test_36_a_robots_txt_that_is_not_there_allows_everything() -> None:
    for site in missing:
        assert site.asked() == ["/", "/x"]


async def silent(visit: Visit) -> None:
    await visit.wait_for_the_end()


ILL = Page(b"", (), "500 Internal Server Error")
RULES = robots("User-agent: *", "Disallow: /private")
ill = OPEN.site("ill.test", "/").on("/robots.txt", ILL).pages("/")
recovering = OPEN.site("recovering.test", "/", "/private").on("/robots.txt", ILL, ILL, RULES).pages("/")
mute = QUIET.site("mute.test", "/").on("/robots.txt", silent).pages("/")
hesitant = QUIET.site("hesitant.test", "/", "/private").on("/robots.txt", silent, RULES).pages("/")
well_again = LATER.site("well-again.test", "/", "/private").on("/robots.txt", ILL).pages("/", "/private")


def test_37_a_robots_txt_that_fails_forbids_everything_and_is_tried_again_later() -> None:
    for site, why in ((ill, "HTTP 500"), (mute, f"timeout: read: no byte in {QUIET_S:g} s")):
        assert site.asked() == []
        assert len(site.asks("/robots.txt")) == 3
        assert site.row("/").error == f"robots-unreachable: {why}"
    for site, tries in ((recovering, 3), (hesitant, 2)):
        assert site.asked() == ["/"]
        assert len(site.asks("/robots.txt")) == tries
        assert site.row("/private").error.startswith("robots: Disallow: /private")
    assert well_again.asked() == ["/"]
    assert [row.error for row in well_again.rows("/")] == ["robots-unreachable: HTTP 500", ""]
    assert well_again.rows("/private")[-1].error.startswith("robots: Disallow: /private")


foreign = OPEN.site("foreign.test", "/")
foreign.on(
    "/robots.txt",
    robots("User-agent: *", "Disallow: /café/", "Disallow: /na%C3%AFve", "Disallow: /日本*x", "Allow: /café/ö"),
)
foreign.on("/", linking("/café/x", "/caf%c3%a9/y", "/naïve", "/日本/x", "/日本/y", "/café/ö", "/cafe/", "/caf%E9/"))


def test_38_rules_that_are_not_ascii_match() -> None:
    assert sorted(foreign.asked()) == [
        "/", "/%E6%97%A5%E6%9C%AC/y", "/caf%C3%A9/%C3%B6", "/caf%E9/", "/cafe/"
    ]  # fmt: skip


wishes = OPEN.site("wishes.test", "/")
wishes.on("/", linking("/noindex", "/nofollow", "/none", "/header-noindex", "/header-nofollow", "/others",
                       body="<a rel='nofollow ugc' href='/unfollowed'>x</a>"))  # fmt: skip
wishes.on("/noindex", linking("/a", head="<meta name=robots content='NOINDEX, follow'>"))
wishes.on("/nofollow", linking("/b", head="<meta name=weft content=nofollow>"))
wishes.on("/none", linking("/c", head="<meta name=robots content=none>"))
wishes.on("/header-noindex", page("<a href=/d>", "X-Robots-Tag: noarchive", "X-Robots-Tag: weft: noindex"))
wishes.on("/header-nofollow", page("<a href=/e>", "X-Robots-Tag: otherbot: noindex, *: nofollow"))
wishes.on("/others", page("<meta name=otherbot content=none><a href=/f>", "X-Robots-Tag: otherbot: noindex, nofollow"))


def test_39_nofollow_and_noindex_in_page_and_header_are_respected() -> None:
    followed = {"/a", "/d", "/f"}
    assert set(wishes.asked()) - {"/", "/others", "/none"} == followed | {
        "/noindex", "/nofollow", "/header-noindex", "/header-nofollow"
    }  # fmt: skip
    stored = {path: bool(wishes.row(path).warc_file) for path in ("/noindex", "/none", "/header-noindex")}
    assert stored == dict.fromkeys(stored, False)
    assert {wishes.row(path).error for path in stored} == {"noindex"}
    for path in ("/nofollow", "/header-nofollow", "/others"):
        assert wishes.stored(path).http is not None


grouped = OPEN.site("grouped.test", "/")
GROUPS = """User-agent: *
Disallow: /
Crawl-delay: 30

User-agent: weftling
Disallow: /

User-agent: WEFT
User-agent: other
Crawl-delay: 0.3
Disallow: /a

User-agent: Weft/9.9
Disallow: /b
"""
grouped.on("/robots.txt", robots(GROUPS))
grouped.on("/", linking("/a", "/b", "/c", "/d")).pages("/a", "/b", "/c", "/d")


def test_40_the_most_specific_group_counts_and_its_crawl_delay() -> None:
    assert grouped.asked() == ["/", "/c", "/d"]
    assert min(after.at - before.at for before, after in pairwise(grouped.arrivals)) > 0.3


def measure(_: Ask) -> Page:
    """Writes down how much memory the fetcher has had at most."""
    pid = json.loads((OPEN.data_dir / "status.json").read_bytes())["pid"]
    peak_kb.append(int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]))
    return linking("/rule-7", "/rule-2000/x", "/free", "/rule-999999")


async def endless(visit: Visit) -> None:
    await visit.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nUser-agent: *\nDisallow: /first\n")
    while True:
        await visit.send(b"Disallow: /an/other/*/rule$\n" * 1000)
        sent_bytes.append(28_000)


peak_kb: list[int] = []
sent_bytes: list[int] = []
wordy = OPEN.site("wordy.test", "/")
wordy.on("/robots.txt", robots("User-agent: *", *(f"Disallow: /rule-{number}" for number in range(3, 40_000))))
wordy.on("/", measure)
unending = OPEN.site("unending.test", "/").on("/robots.txt", endless).on("/", linking("/first", "/second"))


def test_41_very_many_rules_count_in_bounded_memory() -> None:
    assert sorted(wordy.asked()) == ["/", "/free"]  # /rule-9 covers the others
    assert peak_kb[0] < 300_000
    assert unending.asked() == ["/", "/second"]
    assert sum(sent_bytes) < 32 << 20  # what lay in the buffers of the two sockets was sent too


MAP = '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'
mapped = OPEN.site("mapped.test", "/")
mapped.on(
    "/robots.txt", robots("User-agent: *", "Disallow: /private", "Sitemap: http://mapped.test:PORT/maps/index.xml")
)
INDEX = """<sitemapindex>
<sitemap><loc>http://mapped.test:PORT/maps/packed.xml.gz</loc><lastmod>2024-01-01</lastmod></sitemap>
<sitemap><loc> http://mapped.test:PORT/maps/plain.xml </loc></sitemap></sitemapindex>"""
mapped.on("/maps/index.xml", page(INDEX, "Content-Type: text/xml"))
LISTED = "<url><loc>http://mapped.test:PORT/{}</loc><lastmod>{}</lastmod></url>"
DATES = ("2024-02-29", "2024-05", "2024-02-29T10:00:00Z", "2024-02-29T10:00:00.5+01:00", "last week", "", "99999-99-99")


def packed(_: Ask) -> Page:
    """Its Content-Length counts the packed bytes, so the port must be in them already."""
    text = MAP.format("".join(LISTED.format(f"gz/{number}?a=1&amp;b=2", date) for number, date in enumerate(DATES)))
    body = gzip.compress(text.replace(":PORT", f":{OPEN.web.port()}").encode())
    return page(body, "Content-Type: application/x-gzip")


mapped.on("/maps/packed.xml.gz", packed)
mapped.on(
    "/maps/plain.xml",
    page(
        MAP.format(LISTED.format("listed.pdf", "2020") + LISTED.format("private/x", "2020")), "Content-Type: text/xml"
    ),
)
mapped.pages("/", "/listed.pdf", "/private/x")


def test_42_a_sitemap_index_gzip_and_dates_of_any_form_are_read() -> None:
    listed = {target for target in mapped.asked() if not target.startswith("/maps/")}
    assert listed == {"/", "/listed.pdf", *(f"/gz/{number}?a=1&b=2" for number in range(len(DATES)))}
    assert mapped.asks("/sitemap.xml") == []  # robots.txt names another
    assert mapped.row("/private/x").error.startswith("robots")


usual = OPEN.site("usual.test", "/deep/start")
usual.on("/sitemap.xml", page(MAP.format("<url><loc>/alone</loc></url>"), "Content-Type: text/xml"))
usual.pages("/deep/start", "/alone")


def test_43_a_sitemap_is_looked_for_at_its_usual_place_where_robots_txt_names_none() -> None:
    assert usual.asked() == ["/deep/start", "/alone"] and len(usual.asks("/sitemap.xml")) == 1
