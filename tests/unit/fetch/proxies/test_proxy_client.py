"""Requests through real proxies: what the site sees, what the guard keeps from the proxy, whose failure it is."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest
from pace import patience
from ports import free_port
from proxying import EchoSite, Proxies, hangs, hijacks, speaks_socks4

from weft.config import FetchSection
from weft.fetch.proxies.entry import Proxy, parse
from weft.fetch.proxies.proxied_client import ProxyClient
from weft.fetch.proxies.rotation import ProxyOutcome
from weft.records import FetchResult

pytestmark = pytest.mark.usefixtures("proxies_here")
SECTION = FetchSection(
    email="a@b.test", resolve={"*.test": "127.0.0.1", "inside.test": "127.0.0.9", "gate.test": "127.0.0.1"},
    connect_timeout_s=2, read_timeout_s=2, total_timeout_s=6,
)  # fmt: skip


def refusal(address: str) -> str | None:
    return "inside" if address in ("127.0.0.9", "127.0.0.8") else None


class Chosen:
    """One proxy for everything; None: none is free."""

    def __init__(self) -> None:
        self.proxy: Proxy | None = None
        self.outcomes: list[ProxyOutcome] = []

    def choose(self, _host: str, _tag: object, _now: float) -> Proxy | None:
        return self.proxy

    def ended(self, _proxy: Proxy, _host: str, outcome: ProxyOutcome, _took_s: float, _now: float) -> None:
        self.outcomes.append(outcome)


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite() as running:
        yield running


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    with Proxies(tmp_path_factory.mktemp("proxies")) as running:
        yield running


@pytest.fixture
def chosen() -> Chosen:
    return Chosen()


@pytest.fixture
def client(chosen: Chosen) -> Iterator[ProxyClient]:
    made = ProxyClient(SECTION, refusal=refusal, handles=4, chooser=chosen)
    yield made
    made.close()


def ended(client: ProxyClient) -> FetchResult:
    until = time.monotonic() + patience(15)
    while not (done := client.poll(0.2)):
        assert time.monotonic() < until, "it does not end"
    ((_, result),) = done
    return result


def fetch(client: ProxyClient, url: str) -> FetchResult:
    client.submit(url, (), "tag")
    return ended(client)


def test_a_plain_request_is_asked_for_by_its_whole_url_and_kept_as_the_site_gets_it(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    proxy = proxies.tinyproxy("127.0.0.3", "user secret77")
    chosen.proxy = parse(f"http://user:secret77@127.0.0.1:{proxy.port}")
    result = fetch(client, f"{site.url}a%7eb?q=1%2f2")
    assert (result.status, result.error, result.ip) == (200, None, "")
    assert site.asked[-1][:3] == ("127.0.0.3", f"127.0.0.1:{site.port}", "/a%7eb?q=1%2f2")
    assert result.request_head.startswith(b"GET /a%7eb?q=1%2f2 HTTP/1.1\r\n")
    assert "secret77" not in repr(result) and b"uthorization" not in result.request_head
    assert chosen.outcomes == [ProxyOutcome.OK]
    assert f"GET {site.url}a%7eb?q=1%2f2 HTTP/1.1" in proxy.requests()[-1]


def test_a_wrong_password_is_the_proxys_failure_and_nothing_of_its_page_is_kept(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    proxy, before = proxies.tinyproxy("127.0.0.3", "user right"), len(site.asked)
    for login in ("", "user:wrong@"):
        chosen.proxy = parse(f"http://{login}127.0.0.1:{proxy.port}")
        result = fetch(client, site.url)
        assert (result.status, result.error, result.head, result.body) == (0, "bad_proxy", b"", b"")
        assert "wrong" not in result.detail
    assert chosen.outcomes == [ProxyOutcome.FAILED, ProxyOutcome.FAILED]
    assert len(site.asked) == before


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_socks5_takes_a_password_with_any_letters(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite, scheme: str
) -> None:
    proxy = proxies.microsocks("127.0.0.4", "user", "p@ss:w/rd")
    chosen.proxy = parse(f"{scheme}://user:p@ss:w%2Frd@127.0.0.1:{proxy.port}")
    assert fetch(client, site.url).status == 200
    assert site.asked[-1].source == "127.0.0.4"
    chosen.proxy = parse(f"{scheme}://user:other@127.0.0.1:{proxy.port}")
    assert fetch(client, site.url).error == "bad_proxy"  # not over the connection of the other login


def test_with_local_names_the_proxy_gets_the_address_that_was_checked(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    proxy = proxies.microsocks()
    chosen.proxy = parse(f"socks5://127.0.0.1:{proxy.port}")
    assert fetch(client, f"http://site.test:{site.port}/").status == 200
    assert f"127.0.0.1:{site.port}" in proxy.requests()[-1]
    assert site.asked[-1].host == f"site.test:{site.port}"


@pytest.mark.parametrize("scheme", ["socks4", "socks4a"])
def test_socks4(client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite, scheme: str) -> None:
    chosen.proxy = parse(f"{scheme}://127.0.0.1:{proxies.listening(speaks_socks4)}")
    assert fetch(client, site.url).status == 200
    assert site.asked[-1].source == "127.0.0.6"


@pytest.mark.parametrize("scheme", ["socks4", "socks5"])
def test_behind_socks_a_page_whose_site_closes_the_connection_is_complete(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, scheme: str
) -> None:
    port = proxies.microsocks().port if scheme == "socks5" else proxies.listening(speaks_socks4)
    chosen.proxy = parse(f"{scheme}://127.0.0.1:{port}")
    result = fetch(client, f"http://127.0.0.1:{proxies.listening(hijacks)}/")
    assert (result.status, result.body, result.error, result.surplus) == (200, b"Buy this!", None, False)


def test_a_handle_goes_from_proxy_to_proxy_to_none_and_keeps_nothing(
    chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    http, socks = proxies.tinyproxy("127.0.0.3"), proxies.microsocks("127.0.0.4")
    client = ProxyClient(SECTION, refusal=refusal, handles=1, chooser=chosen, direct_fallback=True)
    sources = []
    for proxy in (
        f"socks5://127.0.0.1:{socks.port}",
        f"http://127.0.0.1:{http.port}",
        "",
        f"socks5h://127.0.0.1:{socks.port}",
    ):
        chosen.proxy = parse(proxy) if proxy else None
        assert fetch(client, f"{site.url}x").status == 200
        assert site.asked[-1].path == "/x"
        sources.append(site.asked[-1].source)
    client.close()
    assert [line.split(": ")[-1].split()[0] for line in http.requests()] == ["GET"]
    assert sources == ["127.0.0.4", "127.0.0.3", "127.0.0.1", "127.0.0.4"]


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_a_proxy_is_never_asked_for_an_address_that_is_refused(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite, scheme: str
) -> None:
    proxy = proxies.tinyproxy() if scheme == "http" else proxies.microsocks()
    before = proxy.requests()
    chosen.proxy = parse(f"{scheme}://127.0.0.1:{proxy.port}")
    for host in ("inside.test", "127.0.0.9"):
        result = fetch(client, f"http://{host}:{site.port}/")
        assert (result.error, result.detail) == ("address", "127.0.0.9: inside")
    assert proxy.requests() == before
    assert chosen.outcomes == []


def test_a_proxy_inside_is_not_connected_to(client: ProxyClient, chosen: Chosen, site: EchoSite) -> None:
    for host in ("127.0.0.8", "inside.test"):
        chosen.proxy = parse(f"http://{host}:3128")
        result = fetch(client, site.url)
        assert result.error == "bad_proxy"
        assert "inside" in result.detail
    assert chosen.outcomes == [ProxyOutcome.FAILED] * 2


def test_dead_and_hanging_proxies_fail_and_the_site_is_not_blamed(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    for proxy, outcome in (
        (f"http://127.0.0.1:{free_port()}", ProxyOutcome.FAILED),
        (f"socks5://127.0.0.1:{free_port()}", ProxyOutcome.FAILED),
        (f"http://127.0.0.1:{proxies.listening(hangs)}", ProxyOutcome.FAILED),
        (f"socks5://127.0.0.1:{proxies.listening(hangs)}", ProxyOutcome.UNREACHED),
        (f"socks5://127.0.0.1:{proxies.listening(hijacks)}", ProxyOutcome.FAILED),
    ):
        chosen.proxy = parse(proxy)
        assert fetch(client, site.url).error == ("bad_proxy" if outcome is ProxyOutcome.FAILED else "proxy")
        assert chosen.outcomes[-1] is outcome, proxy


def test_a_proxy_that_cannot_reach_the_site_is_not_given_up(
    client: ProxyClient, chosen: Chosen, proxies: Proxies
) -> None:
    for scheme, proxy in (("http", proxies.tinyproxy()), ("socks5", proxies.microsocks())):
        chosen.proxy = parse(f"{scheme}://127.0.0.1:{proxy.port}")
        for start in ("http", "https"):
            assert fetch(client, f"{start}://127.0.0.1:{free_port()}/").error == "proxy"
    assert chosen.outcomes == [ProxyOutcome.UNREACHED] * 4


def test_a_block_is_the_sites(client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite) -> None:
    chosen.proxy = parse(f"http://127.0.0.1:{proxies.tinyproxy('127.0.0.5').port}")
    site.blocked.add("127.0.0.5")
    result = fetch(client, site.url)
    assert (result.status, result.error) == (403, None)
    assert chosen.outcomes == [ProxyOutcome.BLOCKED]


def test_a_request_waits_for_a_proxy_and_is_given_back_unasked(
    client: ProxyClient, chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    before = len(site.asked)
    client.submit(site.url, (), "tag")
    assert client.poll(0.5) == []
    assert client.in_flight == 1
    chosen.proxy = parse(f"http://127.0.0.1:{proxies.tinyproxy().port}")
    assert ended(client).status == 200
    chosen.proxy = None
    result = fetch(client, site.url)
    assert (result.error, result.detail) == ("aborted", "no proxy is free")
    assert len(site.asked) == before + 1


def test_no_more_wait_than_leave_room_for_others(
    chosen: Chosen, site: EchoSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.fetch.proxies.proxied_client.MOST_WAITING", 2)
    client = ProxyClient(SECTION, refusal=refusal, handles=4, chooser=chosen)
    for number in range(3):
        client.submit(site.url, (), number)
    ((tag, result),) = client.poll(0)
    assert (tag, result.error) == (2, "aborted")
    client.abort(0)
    assert [tag for tag, _ in client.poll(0)] == [0]
    client.close()


def test_the_name_of_a_proxy_is_resolved_and_a_request_that_waits_for_it_can_be_aborted(
    chosen: Chosen, proxies: Proxies, site: EchoSite
) -> None:
    proxy = proxies.tinyproxy()
    client = ProxyClient(SECTION, refusal=refusal, handles=2, chooser=chosen)
    chosen.proxy = parse(f"http://gate.test:{proxy.port}")
    assert fetch(client, site.url).status == 200
    chosen.proxy = parse("http://no-such-name.invalid:3128")
    client.submit(site.url, (), "tag")
    client.abort("tag")
    assert ended(client).error == "aborted"
    client.close()


def test_a_wildcard_pin_is_for_sites_and_does_not_redirect_a_proxy_and_its_login(
    chosen: Chosen, proxies: Proxies
) -> None:
    proxy = proxies.tinyproxy("127.0.0.3", "user secret77")
    section = msgspec.structs.replace(SECTION, resolve={"*": "127.0.0.2"})
    client = ProxyClient(section, refusal=refusal, handles=2, chooser=chosen)
    chosen.proxy = parse(f"http://user:secret77@127.0.0.1:{proxy.port}")
    with EchoSite(("127.0.0.2",)) as site:
        assert fetch(client, f"http://127.0.0.2:{site.port}/").status == 200
    client.close()
