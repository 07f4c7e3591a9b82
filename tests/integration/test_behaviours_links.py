"""Behaviours 1 to 23 of spec/behaviours.md: which links are followed, as what, and how far.

Each behaviour has its own site, written above its test; sites that need no settings of their own share one crawl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from scripted import DEFAULT_PORT_ADDRESS, Plan, Web, crawled, linking, page, redirect

OPEN = Plan("open", resolve={"port.test": DEFAULT_PORT_ADDRESS})
DEPTH = Plan("depth", max_depth=2)
PREFIX = Plan("prefix", scope="prefix")
PATTERNS = Plan("patterns", include=["*/start", "*/keep/*"], exclude=["re:/keep/private"])
OFFSITE = Plan("offsite", scope="host", offsite_hops=1)
STRIPPED = Plan("stripped", strip_query=["utm_*", "ref"])


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("links"), OPEN, DEPTH, PREFIX, PATTERNS, OFFSITE, STRIPPED) as running:
        yield running


linked = OPEN.site("linked.test", "/")
linked.on("/", linking("/1", "/2", "/3"))
for number in range(1, 30):
    linked.on(f"/{number}", linking("/", f"/{number * 2}", f"./{number * 2 + 1}", f"/{number}", f"/{number // 2}#up"))


def test_01_each_page_of_a_linked_site_is_fetched_exactly_once() -> None:
    asked = Counter(linked.asked())
    assert set(asked.values()) == {1}
    assert {f"/{number}" for number in range(60)} | {"/"} == set(asked)
    assert [linked.row(path).status for path in ("/", "/29", "/30")] == [200, 200, 404]


deep = DEPTH.site("deep.test", "/0")
for number in range(6):
    deep.on(f"/{number}", linking(f"/{number + 1}"))


def test_02_with_a_hop_limit_of_n_page_n_is_fetched_and_the_next_is_not() -> None:
    assert deep.asked() == ["/0", "/1", "/2"]
    assert DEPTH.status["refused"]["depth"] == 1


guide = PREFIX.site("guide.test", "/docs/guide/index")
guide.on(
    "/docs/guide/index",
    linking("a", "sub/b", "/docs/guide/c?d=/", "/", "/docs/", "../other/x", "/docs/guidebook", "../guide/../../etc",
            "http://elsewhere.test:PORT/docs/guide/a"),
)  # fmt: skip
guide.on("/docs/guide/a", linking("../", "..", "sub/../../up")).pages("/docs/guide/sub/b", "/docs/guide/c")
elsewhere = PREFIX.site("elsewhere.test")


def test_03_with_a_prefix_scope_nothing_above_the_start_directory_is_asked_for() -> None:
    assert sorted(guide.asked()) == [
        "/docs/guide/a", "/docs/guide/c?d=/", "/docs/guide/index", "/docs/guide/sub/b"
    ]  # fmt: skip
    assert elsewhere.asked() == []


picky = PATTERNS.site("picky.test", "/start")
picky.on("/start", linking("/keep/a", "/keep/private/b", "/other/c", "/keep/moved", "/keep/moved-too"))
picky.on("/keep/moved", redirect("/keep/private/d")).on("/keep/moved-too", redirect("/keep/private/d"))
picky.pages("/keep/a", "/keep/private/b", "/keep/private/d", "/other/c")


def test_04_what_the_lists_exclude_is_never_requested() -> None:
    assert sorted(picky.asked()) == ["/keep/a", "/keep/moved", "/keep/moved-too", "/start"]
    assert PATTERNS.status["refused"]["pattern"] >= 2


def test_05_an_excluded_redirect_target_is_neither_stored_nor_queued_again() -> None:
    assert Counter(picky.asked())["/keep/private/d"] == 0
    assert picky.rows("/keep/private/d") == []
    for path in ("/keep/moved", "/keep/moved-too"):
        row = picky.row(path)
        assert (row.status, row.final_url, row.error) == (302, picky.url("/keep/private/d"), "redirect to pattern")


home = OFFSITE.site("home.test", "/")
home.on(
    "/", linking("http://near.test:PORT/a", "/leave", "http://moved.test:PORT/old", "http://moved.test:PORT/back-home")
)
home.on("/leave", redirect("http://other.test:PORT/arrived")).pages("/back", "/home")
near = OFFSITE.site("near.test")
near.on("/a", linking("/b", "http://far.test:PORT/", "http://home.test:PORT/back")).pages("/b")
far = OFFSITE.site("far.test").pages("/")
other = OFFSITE.site("other.test").on("/arrived", linking("/deeper", "http://far.test:PORT/")).pages("/deeper")
moved = OFFSITE.site("moved.test").on("/old", redirect("/new")).on("/new", linking("/newer", "http://far.test:PORT/"))
moved.on("/back-home", redirect("http://home.test:PORT/home"))


def test_06_one_hop_off_the_scope_is_made_when_allowed_and_no_further() -> None:
    assert near.asked() == ["/a"]
    assert sorted(home.asked()) == ["/", "/back", "/home", "/leave"]
    assert other.asked() == ["/arrived"]  # a redirect out of the scope is that one hop
    assert sorted(moved.asked()) == ["/back-home", "/new", "/old"]  # one out there takes the place of what was linked
    assert far.asked() == []


malformed = OPEN.site("malformed.test", "/")
malformed.on(
    "/",
    linking("http://[", "http://exa mple.test/", "http://a.test:99999999/", "//", "http:///", "http://a..b%00/", "::::",
            "http://%zz/", "\ufffe\ud7ff", "//[::1", "https://\u0080/", "/good", "unclosed?x=<a href=/inner>&gt;",
            body="<a href=><a href><a href='\n'><a hre" + "f='/also-good' <div",
            ),
)  # fmt: skip
malformed.pages("/good", "/last").on("/also-good", linking("/last"))


def test_07_good_links_after_malformed_ones_are_followed() -> None:
    assert {"/good", "/last"} <= set(malformed.asked())
    assert malformed.row("/good").status == malformed.row("/").status == 200
    assert OPEN.status["refused"]["syntax"] >= 5


climbing = OPEN.site("climbing.test", "/x/y/z")
climbing.on(
    "/x/y/z",
    linking(
        "../../../../a", "/../b", "/p/../../c", "%2e%2e/d", ".%2E/%2e%2e/../e", "./././f", "/..\\..\\g", "q/../../h/."
    ),
)


def test_08_dots_are_resolved_and_never_lead_above_the_root() -> None:
    assert sorted(climbing.asked()) == ["/a", "/b", "/c", "/e", "/g", "/x/d", "/x/h/", "/x/y/f", "/x/y/z"]


encoded = OPEN.site("encoded.test", "/")
encoded.on(
    "/",
    linking("/a b", " /edges ", "/in&#13;&#10;X-Injected: yes&#13;&#10;&#13;&#10;GET /smuggled HTTP/1.1",
            "/ctl&#1;&#127;x", "/t\tab\nbed", "/q?a=[1]&b={2}|^`&c=&lt;&gt;&quot;'", "/p{}&lt;&gt;&quot;^|",
            "/semi;a=1,2!$()*+@:", "/#frag ment", "/nul&#0;x"),
)  # fmt: skip


def test_09_spaces_reserved_and_control_bytes_are_encoded_and_inject_nothing() -> None:
    assert sorted(encoded.asked()) == sorted([
        "/", "/a%20b", "/edges", "/inX-Injected:%20yesGET%20/smuggled%20HTTP/1.1", "/ctl%01%7Fx", "/tabbed",
        "/q?a=[1]&b={2}|^`&c=%3C%3E%22%27", "/p%7B%7D%3C%3E%22%5E|", "/semi;a=1,2!$()*+@:", "/nul%EF%BF%BDx",
    ])  # fmt: skip
    for ask in encoded.arrivals:
        assert ask.header("X-Injected") is None and ask.head.count(b"HTTP/1.1\r\n") == 1


percent = OPEN.site("percent.test", "/")
percent.on("/", linking("/a%20b", "/100%25", "/caf%C3%A9", "/%e4%f6", "/bare%zz%", "/q?x=%26%3D&y=a%2Bb", "/%41%2F"))


def test_10_percent_encoded_links_are_not_encoded_again() -> None:
    assert sorted(percent.asked()) == sorted(
        ["/", "/a%20b", "/100%25", "/caf%C3%A9", "/%e4%f6", "/bare%zz%", "/q?x=%26%3D&y=a%2Bb", "/%41%2F"]
    )


based = OPEN.site("based.test", "/")
based.on("/", linking("leaf", head='<base target="_top"><base href="/first/"><base href="/second/">'))
based.pages("/first/leaf")


def test_11_of_two_base_tags_the_first_wins() -> None:
    assert based.asked() == ["/", "/first/leaf"]


schemes = OPEN.site("schemes.test", "/")
schemes.on(
    "/",
    linking("mailto:me@example.test", "javascript:void(0)", "JAVA&#10;SCRIPT:alert(1)", "tel:+123",
            "data:text/html,<a href=/x>", "ftp://schemes.test/x", "about:blank", "file:///etc/passwd", "blob:x",
            "/good"),
)  # fmt: skip
schemes.pages("/good")


def test_12_schemes_that_are_no_pages_are_ignored_without_error() -> None:
    assert schemes.asked() == ["/", "/good"]
    assert [(row.url, row.error) for row in OPEN.rows if "schemes" in row.url] == [
        (schemes.url("/"), ""), (schemes.url("/good"), "")
    ]  # fmt: skip


fragments = OPEN.site("fragments.test", "/")
fragments.on("/", linking("#top", "/page#a", "/page#b", "/page", "/#", "/page#?x=1", "/page?#"))
fragments.pages("/page")


def test_13_urls_that_differ_in_their_fragment_are_fetched_once() -> None:
    assert fragments.asked() == ["/", "/page", "/page?"]


references = OPEN.site("references.test", "/")
references.on(
    "/",
    linking("/a?x=1&amp;y=2", "/b?x=1&amp;amp;y=2", "/c?x=1&y=2", "/d?a&#38;b&#x26;c", "/e?x&copy=1", "/f?x=&eacute;"),
)


def test_14_character_references_in_a_query_are_decoded_once() -> None:
    assert sorted(references.asked()) == sorted(
        ["/", "/a?x=1&y=2", "/b?x=1&amp;y=2", "/c?x=1&y=2", "/d?a&b&c", "/e?x&copy=1", "/f?x=%C3%A9"]
    )


frames = OPEN.site("frames.test", "/", "/set")
frames.on("/", page("<iframe src='/inline'></iframe><iframe srcdoc='<p>no'></iframe>"))
frames.on("/set", page("<html><frameset cols='*,*'><frame src='/left'><frame src='right'></frameset></html>"))
frames.on("/left", linking("/from-the-frame")).pages("/inline", "/right", "/from-the-frame")


def test_15_frames_are_followed() -> None:
    assert sorted(frames.asked()) == ["/", "/from-the-frame", "/inline", "/left", "/right", "/set"]


attributes = OPEN.site("attributes.test", "/")
attributes.on(
    "/", page("<a data-href='/data'>x</a><div href='/div'>x</div><p data-src='/src'>x</p><a href='/real'>x</a>")
)


def test_16_data_href_is_not_followed() -> None:
    assert attributes.asked() == ["/", "/real"]


ACCENTED = "<title>Élève</title><p>Les élèves étaient très âgés à l'école où ça se décidait.<a href='/{}-é'>é</a>"
charsets = OPEN.site("charsets.test", "/header", "/meta", "/undeclared", "/utf8", "/wrong-case")
charsets.on("/header", page(ACCENTED.format("header").encode("latin-1"), "Content-Type: text/html; charset=ISO-8859-1"))
charsets.on(
    "/meta", page(b"<meta charset=latin1>" + ACCENTED.format("meta").encode("latin-1"), "Content-Type: text/html")
)
charsets.on("/undeclared", page(ACCENTED.format("undeclared").encode("latin-1"), "Content-Type: text/html"))
charsets.on("/utf8", page(ACCENTED.format("utf8").encode(), "Content-Type: text/html"))
charsets.on(
    "/wrong-case", page(ACCENTED.format("case").encode("cp1252"), "Content-Type: TEXT/HTML;CHARSET='Windows-1252'")
)


def test_17_links_on_pages_in_latin_1_or_of_no_declared_encoding_are_read_rightly() -> None:
    found = {target for target in charsets.asked() if "-%" in target}
    assert found == {f"/{name}-%C3%A9" for name in ("header", "meta", "undeclared", "utf8", "case")}
    assert {charsets.row(path).title for path in ("/header", "/meta", "/undeclared", "/utf8")} == {"Élève"}


idn = OPEN.site("idn.test", "/link", "/header", "/header-latin", "/meta")
idn.on("/link", linking("http://BÜCHER.test:PORT/by-link"))
idn.on("/header", redirect("http://bücher.test:PORT/by-header/é"))
idn.on(
    "/header-latin",
    "HTTP/1.1 301 Moved\r\nLocation: http://b\xfccher.test:PORT/by-latin\r\nContent-Length: 0\r\n\r\n".encode(
        "latin-1"
    ),
)
idn.on("/meta", page("<meta http-equiv=refresh content='0; url=http://b&uuml;cher.test:PORT/by-meta'>"))
books = OPEN.site("xn--bcher-kva.test").pages("/by-link", "/by-header/%C3%A9", "/by-latin", "/by-meta")


def test_18_idn_hosts_in_link_header_and_meta_are_punycode_on_the_wire() -> None:
    assert sorted(books.asked()) == ["/by-header/%C3%A9", "/by-latin", "/by-link", "/by-meta"]
    assert {ask.host for ask in books.arrivals} == {"xn--bcher-kva.test"}
    assert books.row("/by-meta").status == 200


mixed = OPEN.site("mixed.test", "/latin", "/cyrillic")
mixed.on("/latin", page("<a href='/é?q=é&r=%E9#é'>".encode("latin-1"), "Content-Type: text/html; charset=latin-1"))
mixed.on(
    "/cyrillic",
    page("<a href='/ж?q=ж&e=é'>".encode("koi8-r", "xmlcharrefreplace"), "Content-Type: text/html; charset=koi8-r"),
)


def test_19_a_non_ascii_path_is_sent_in_utf_8_and_its_query_in_the_pages_encoding() -> None:
    assert sorted(mixed.asked()) == ["/%C3%A9?q=%E9&r=%E9", "/%D0%B6?q=%D6&e=%26%23233%3B", "/cyrillic", "/latin"]


ports = OPEN.site("ports.test", "/")
ports.on("/", linking("http://port.test/x", "http://port.test:80/x", "http://PORT.test:0080/x", "http://port.test:/x"))
default_port = OPEN.site("port.test").pages("/x")


def test_20_the_default_port_is_the_same_identity(web: Web) -> None:
    OPEN.wait()
    assert [row.url for row in OPEN.rows if "//port.test" in row.url] == ["http://port.test/x"]
    if web.has_default_port:
        assert default_port.asked() == ["/x"]
        assert [ask.header("host") for ask in default_port.arrivals] == ["port.test"] * 2  # robots.txt, the page


tracked = STRIPPED.site("tracked.test", "/")
tracked.on("/", linking("/p?utm_source=a", "/p?ref=x", "/p", "/p?id=1&utm_medium=b", "/p?utm_x=1&id=1&ref=2", "/r"))
tracked.on("/r", redirect("/p?id=1&utm_campaign=z")).pages("/p")


def test_21_variants_that_differ_in_stripped_parameters_collapse() -> None:
    assert sorted(tracked.asked()) == ["/", "/p", "/p?id=1", "/r"]


long = OPEN.site("long.test", "/")
long.on("/", linking("/" + "x" * 2000, "/moved", "/short")).on("/moved", redirect("/" + "y" * 5000)).pages("/short")


def test_22_an_over_long_link_or_location_is_refused_with_its_reason() -> None:
    assert sorted(long.asked()) == ["/", "/moved", "/short"]
    assert (long.row("/moved").status, long.row("/moved").error) == (302, "redirect to length")
    assert OPEN.status["refused"]["length"] == 2


ANCHOR = "<html><a href='/from-{}'>link</a>"
others = OPEN.site("others.test", "/plain", "/json", "/paper", "/picture")
others.on("/plain", page(ANCHOR.format("plain"), "Content-Type: text/plain"))
others.on("/json", page(ANCHOR.format("json"), "Content-Type: application/json"))
others.on("/paper", page(b"%PDF-1.7\n\0" + ANCHOR.format("pdf").encode(), "Content-Type: application/pdf"))
others.on("/picture", page(b"\x89PNG\r\n\x1a\n\0" + ANCHOR.format("png").encode(), "Content-Type: image/png"))


def test_23_what_is_no_html_is_stored_and_not_read_as_html() -> None:
    assert sorted(others.asked()) == ["/json", "/paper", "/picture", "/plain"]
    assert others.body("/plain") == ANCHOR.format("plain").encode()
    assert others.body("/paper").startswith(b"%PDF-1.7\n\0")
    assert [others.row(path).content_type for path in ("/json", "/paper", "/picture")] == [
        "application/json", "application/pdf", "image/png"
    ]  # fmt: skip
