"""Behaviours 24 to 34 of spec/behaviours.md: redirects, cookies and logins.

Each behaviour has its own sites, written above its test; those that need no settings of their own share one crawl.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import md5
from itertools import pairwise

import pytest
from crawling import weft_here
from scripted import NOT_FOUND, Ask, Page, Plan, Visit, Web, crawled, linking, page, redirect, robots

METADATA = "169.254.169.254"

OPEN = Plan("open", auth={"kept-login.test": "me:secret"})
CROSS = Plan("cross", scope="host", resolve={"metadata.test": METADATA}, auth={"cross.test": "me:secret"})
LOGINS = Plan(
    "logins",
    auth={"basic.test": "me:secret", "digest.test": "me:secret", "one-time.test": "me:secret",
          "basic-wrong.test": "me:wrong", "digest-wrong.test": "me:wrong", "unasked.test": "me:secret"},
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("redirects"), OPEN, CROSS, LOGINS) as running:
        yield running


STATUSES = {
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
}
codes = OPEN.site("codes.test", "/")
codes.on("/", linking(*(f"/from/{status}" for status in STATUSES)))
for status, words in STATUSES.items():
    codes.on(f"/from/{status}", redirect(f"../to/{status}?x", f"{status} {words}")).pages(f"/to/{status}")


def test_24_each_kind_of_redirect_is_followed_by_a_get_and_kept_as_what_it_is() -> None:
    assert len(codes.asked()) == 1 + 2 * len(STATUSES)
    assert {ask.head.split(b" ")[0] for ask in codes.arrivals} == {b"GET"}
    for status in STATUSES:
        source, target = codes.row(f"/from/{status}"), codes.row(f"/to/{status}?x")
        assert (source.status, source.final_url, source.error) == (status, target.url, "")
        assert (target.status, target.hops, target.depth, target.parent) == (200, 1, source.depth, source.item)


loop = OPEN.site("loop.test", "/a")
loop.on("/a", redirect("/b")).on("/b", redirect("/c")).on("/c", redirect("/a"))


def test_25_a_redirect_loop_stops_at_the_limit_and_is_one_error() -> None:
    assert loop.asked() == ["/a", "/b", "/c", "/a", "/b", "/c"]  # the first and five more
    errors = [row.error for row in OPEN.rows if "//loop.test" in row.url]
    assert sorted(errors) == [""] * 5 + ["too_many_redirects"]
    assert OPEN.status["errors"]["too_many_redirects"] == 2  # this one, and the wall of 29
    said = weft_here("explain", OPEN.data_dir, *(loop.url(path) for path in ("/a", "/b", "/c")), "--json").stdout
    ends = {(one["crawled"], one["reason"]) for one in json.loads(said)["urls"]}
    assert ends == {(False, "too_many_redirects")}, "no URL of a loop is called a redirect that was followed"


refreshed = OPEN.site("refreshed.test", "/")
refreshed.on(
    "/",
    page(
        "<head><noscript><meta http-equiv=refresh content='0; url=/for-the-scriptless'></noscript>"
        "<meta HTTP-EQUIV=Refresh content='5; URL=\"/next?a=1&amp;b=2\"'></head>"
    ),
)
refreshed.on("/next", page("<meta http-equiv=refresh content='30'>")).pages("/for-the-scriptless")


def test_26_a_meta_refresh_is_followed_but_not_inside_noscript() -> None:
    assert refreshed.asked() == ["/", "/next?a=1&b=2"]


anchored = OPEN.site("anchored.test", "/").on("/", redirect("/there?x=1#part")).pages("/there")


def test_27_the_fragment_of_a_location_is_not_sent() -> None:
    assert anchored.asked() == ["/", "/there?x=1"]
    assert anchored.row("/").final_url == anchored.url("/there?x=1")


def behind_login(ask: Ask) -> Page:
    if ask.header("authorization") is None:
        return Page(b"", ("WWW-Authenticate: Basic realm=x",), "401 Unauthorized")
    return redirect("http://beyond.test:PORT/landing", "302 Found", "Set-Cookie: secret=1; Path=/")


cross = CROSS.site("cross.test", "/", "/to-metadata")
cross.on("/", linking("/out", "/denied", "/login", "/slow-1", "/slow-2"))
cross.on("/out", redirect("http://outside.test:PORT/")).on("/denied", redirect("http://beyond.test:PORT/private/x"))
cross.on("/slow-1", redirect("http://beyond.test:PORT/one")).on("/slow-2", redirect("http://beyond.test:PORT/two"))
cross.on("/login", behind_login).on("/to-metadata", redirect("http://metadata.test:PORT/latest/"))
beyond = CROSS.site("beyond.test", "/begin").pages("/begin", "/one", "/two", "/landing", "/private/x")
beyond.on("/robots.txt", robots("Disallow: /private", delay_s=0.4))
outside = CROSS.site("outside.test").pages("/")


def test_28_a_redirect_to_another_host_is_checked_again_in_everything() -> None:
    assert outside.asked() == [] and outside.arrivals == []  # scope
    assert cross.row("/out").error == "redirect to scope"
    assert sorted(beyond.asked()) == ["/begin", "/landing", "/one", "/two"]  # robots
    assert beyond.row("/private/x").error == "robots: Disallow: /private (line 3)"
    times = [ask.at for ask in beyond.arrivals]  # politeness
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.4
    (refused,) = (row for row in CROSS.rows if "metadata.test" in row.url)  # address
    assert refused.status == 0 and f"address: {METADATA}: cloud metadata" in refused.error
    assert cross.asks("/login")[-1].header("authorization") is not None  # authorisation
    assert {(ask.header("authorization"), ask.header("cookie")) for ask in beyond.arrivals} == {(None, None)}


def wall(ask: Ask) -> Page:
    if "passed=yes" in (ask.header("cookie") or ""):
        return linking("/inside")
    return redirect("/", "302 Found", "Set-Cookie: passed=yes; Path=/")


cookie_wall = OPEN.site("wall.test", "/").on("/", wall).pages("/inside")
closed_wall = OPEN.site("closed-wall.test", "/").on("/", redirect("/", "302 Found", "Set-Cookie: passed=no"))
detour = OPEN.site("detour.test", "/").on("/", lambda ask: wall(ask) if ask.header("cookie") else redirect("/door"))
detour.on("/door", redirect("/", "303 See Other", "Set-Cookie: passed=yes; Path=/")).pages("/inside")


def test_29_a_cookie_wall_is_passed_and_one_that_never_opens_is_left() -> None:
    assert cookie_wall.asked() == ["/", "/", "/inside"]
    assert [ask.header("cookie") for ask in cookie_wall.arrivals if ask.target != "/robots.txt"][1:3] == [
        "passed=yes"
    ] * 2
    assert [row.status for row in cookie_wall.rows("/")] == [302, 200]
    assert detour.asked() == ["/", "/door", "/", "/inside"]
    assert closed_wall.asked() == ["/"] * 6
    assert [row.error for row in closed_wall.rows("/")] == [""] * 5 + ["too_many_redirects"]


REFUSAL = ("WWW-Authenticate: Basic realm=x", "Set-Cookie: from=401; Path=/")
refusing = OPEN.site("refusing.test", "/locked", "/open").on("/locked", Page(b"", REFUSAL, "401 Unauthorized"))
refusing.pages("/open")
kept_login = OPEN.site("kept-login.test", "/").on("/", Page(b"", REFUSAL, "401 Unauthorized"), page("in"))


def test_30_a_cookie_set_on_a_401_is_kept() -> None:
    assert refusing.row("/locked").status == 401
    assert refusing.asks("/open")[0].header("cookie") == "from=401"
    first, second = kept_login.asks("/")
    assert (first.header("cookie"), second.header("cookie")) == (None, "from=401")
    assert second.header("authorization") == "Basic " + b64encode(b"me:secret").decode()
    assert kept_login.row("/").status == 200


FOREIGN = (
    "Set-Cookie: net=1; Domain=example.net; Path=/", "Set-Cookie: suffix=1; Domain=com; Path=/",
    "Set-Cookie: below=1; Domain=deep.www.example.com; Path=/", "Set-Cookie: like=1; Domain=ample.com; Path=/",
    "Set-Cookie: ours=1; Domain=.example.com; Path=/", "Set-Cookie: mine=1; Path=/",
)  # fmt: skip
NEXT_DOORS = ("www.example.com", "shop.example.com", "www.example.net", "deep.www.example.com", "ample.com")
setter = OPEN.site("www.example.com", "/")
setter.on("/", page("".join(f"<a href=http://{host}:PORT/1>" for host in NEXT_DOORS), *FOREIGN))
doors = [setter, *(OPEN.site(host) for host in NEXT_DOORS[1:])]
for door in doors:
    door.pages("/1")


def test_31_a_cookie_for_another_domain_is_refused() -> None:
    sent = {door.host: set((door.asks("/1")[0].header("cookie") or "").split("; ")) for door in doors}
    assert sent == {
        "www.example.com": {"ours=1", "mine=1"}, "shop.example.com": {"ours=1"}, "deep.www.example.com": {"ours=1"},
        "www.example.net": {""}, "ample.com": {""},
    }  # fmt: skip


PAST = "Expires=Wed, 21 Oct 2015 07:28:00 GMT"
FRESH = ("Set-Cookie: a=1; Path=/", "Set-Cookie: b=1; Path=/; Max-Age=1", f"Set-Cookie: c=1; Path=/; {PAST}",
         "Set-Cookie: d=1; Path=/; Max-Age=0", "Set-Cookie: e=1; Path=/; Max-Age=3600")  # fmt: skip
expiring = OPEN.site("expiring.test", "/").on("/", page("<a href=/pause><a href=/later>", *FRESH))


async def pause(visit: Visit) -> None:
    """Answers when the cookie of one second is over; the next page is asked for after that."""
    await asyncio.sleep(1.1)
    await visit.send(NOT_FOUND)


expiring.on("/pause", pause)
expiring.on("/later", page("<a href=/last>", f"Set-Cookie: a=1; Path=/; {PAST}")).pages("/last")


def test_32_an_expired_cookie_is_not_sent() -> None:
    assert (
        {"a=1", "e=1"} <= set((expiring.asks("/pause")[0].header("cookie") or "").split("; ")) <= {"a=1", "b=1", "e=1"}
    )
    assert expiring.asks("/later")[0].header("cookie") == "a=1; e=1"
    assert expiring.asks("/last")[0].header("cookie") == "e=1"


def basic(ask: Ask) -> Page:
    if ask.header("authorization") == "Basic " + b64encode(b"me:secret").decode():
        return linking("/other")
    return Page(b"no", ('WWW-Authenticate: Negotiate, Basic realm="x, y"',), "401 Unauthorized")


class Digest:
    """A server that takes its nonces seriously: each count once, for its own URI, until the nonce is used up."""

    def __init__(self, uses: int = 1000) -> None:
        self._uses = uses
        self._nonces: dict[str, set[str]] = {}

    def __call__(self, ask: Ask) -> Page:
        fields = {
            name: quoted or bare
            for name, quoted, bare in re.findall(r'(\w+)=(?:"([^"]*)"|([\w/.-]+))', ask.header("authorization") or "")
        }
        counts = self._nonces.get(fields.get("nonce", ""))
        if (
            counts is not None
            and len(counts) < self._uses
            and fields["nc"] not in counts
            and self._is_right(ask, fields)
        ):
            counts.add(fields["nc"])
            return linking("/other", "/third?x=1")
        nonce = f"nonce{len(self._nonces)}"
        self._nonces[nonce] = set()
        return Page(b"no", (f'WWW-Authenticate: Digest realm="x", qop="auth", nonce="{nonce}", opaque="o"',), "401 No")

    def _is_right(self, ask: Ask, fields: dict[str, str]) -> bool:
        secret, asked = _md5("me:x:secret"), _md5(f"GET:{ask.target}")
        proof = _md5(":".join((secret, fields["nonce"], fields["nc"], fields["cnonce"], "auth", asked)))
        return (fields["uri"], fields["response"], fields["opaque"]) == (ask.target, proof, "o")


def _md5(text: str) -> str:
    return md5(text.encode()).hexdigest()


basic_site = LOGINS.site("basic.test", "/").on("/", basic).on("/other", basic)
digest_site, one_time = LOGINS.site("digest.test", "/"), LOGINS.site("one-time.test", "/")
basic_wrong = LOGINS.site("basic-wrong.test", "/", "/second").on("/", basic).on("/second", basic)
digest_wrong = LOGINS.site("digest-wrong.test", "/", "/second")
for site, uses in ((digest_site, 1000), (one_time, 1), (digest_wrong, 1000)):
    answer = Digest(uses)
    for path in ("/", "/other", "/third", "/second"):
        site.on(path, answer)


def test_33_a_login_is_answered_once_and_then_the_answer_is_final() -> None:
    assert basic_site.asked() == ["/", "/", "/other"]
    assert digest_site.asked() == ["/", "/", "/other", "/third?x=1"]
    assert [digest_site.row(path).status for path in ("/", "/other", "/third?x=1")] == [200] * 3
    assert sorted(one_time.asked()) == ["/"] * 2 + ["/other"] * 2 + ["/third?x=1"] * 2  # a new nonce for each answer
    assert [one_time.row(path).status for path in ("/", "/other", "/third?x=1")] == [200] * 3
    for site in (basic_wrong, digest_wrong):
        assert len(site.asks("/")) == 2 and len(site.asks("/second")) <= 2
        assert [site.row(path).status for path in ("/", "/second")] == [401, 401]
    assert len(basic_wrong.asked()) == 3  # what was refused once is not offered again


unasked = LOGINS.site("unasked.test", "/").on(
    "/", linking("/next", "http://asking.test:PORT/", "http://me:own@asking.test:PORT/x")
)
unasked.pages("/next")
asking = LOGINS.site("asking.test").on("/", basic).on("/x", basic)


def test_34_credentials_are_never_sent_unasked_or_across_hosts() -> None:
    assert unasked.asked() == ["/", "/next"]
    assert sorted(asking.asked()) == ["/", "/x"]
    for site in (unasked, asking):
        assert {ask.header("authorization") for ask in site.arrivals} == {None}
    for site in (basic_site, digest_site):
        assert site.asks("/")[0].header("authorization") is None
    assert asking.row("/").status == 401
