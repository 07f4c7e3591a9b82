"""TLS and proxies: through a tunnel to the site, and to the proxy itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pace import patience
from proxying import EchoSite, Proxies
from wire_server import AUTHORITY, CERTS, Server, page

from weft.config import FetchSection, ProxySection
from weft.fetch.proxies.entry import Proxy, parse
from weft.fetch.proxies.probe import Probe
from weft.fetch.proxies.proxied_client import ProxyClient
from weft.fetch.proxies.rotation import ProxyOutcome
from weft.records import FetchResult

pytestmark = pytest.mark.usefixtures("proxies_here")
SECTION = FetchSection(
    resolve={"*.test": "127.0.0.1", "site.test": "127.0.0.1"}, connect_timeout_s=4, read_timeout_s=4, total_timeout_s=8
)


class Chosen:
    """One proxy for everything."""

    def __init__(self, proxy: str) -> None:
        self.proxy = parse(proxy)
        self.outcomes: list[ProxyOutcome] = []

    def choose(self, _host: str, _tag: object, _now: float) -> Proxy | None:
        return self.proxy

    def ended(self, _proxy: Proxy, _host: str, outcome: ProxyOutcome, _took_s: float, _now: float) -> None:
        self.outcomes.append(outcome)


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[Proxies]:
    with Proxies(tmp_path) as running:
        yield running


def fetch(chosen: Chosen, url: str) -> FetchResult:
    client = ProxyClient(SECTION, refusal=lambda _: None, handles=1, chooser=chosen, ca_file=AUTHORITY)
    client.submit(url, (), None)
    until = time.monotonic() + patience(10)
    while not (done := client.poll(0.5)):
        assert time.monotonic() < until
    client.close()
    return done[0][1]


def test_https_goes_through_a_tunnel_and_the_proxy_sees_no_more_than_the_host(proxies: Proxies) -> None:
    proxy = proxies.tinyproxy("127.0.0.3", "user secret77")
    chosen = Chosen(f"http://user:secret77@127.0.0.1:{proxy.port}")
    with Server("good.pem") as site:
        site.on("/hidden", page(b"secret"))
        result = fetch(chosen, site.url("/hidden"))
    assert (result.status, result.body, chosen.outcomes) == (200, b"secret", [ProxyOutcome.OK])
    assert "CONNECT " not in result.head.decode() and b"secret77" not in result.request_head
    assert "hidden" not in proxy.log.read_text()
    assert proxy.requests()[-1].endswith(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1")


@pytest.mark.parametrize("certificate", ["expired.pem", "self_signed.pem"])
def test_a_bad_certificate_behind_a_proxy_is_tried_by_another_one(proxies: Proxies, certificate: str) -> None:
    chosen = Chosen(f"http://127.0.0.1:{proxies.tinyproxy().port}")
    with Server(certificate) as site:
        result = fetch(chosen, site.url("/"))
    assert (result.status, result.error, chosen.outcomes) == (0, "proxy", [ProxyOutcome.UNREACHED])
    assert "certificate" in result.detail


def test_an_https_proxy_is_asked_over_tls_by_its_name(proxies: Proxies) -> None:
    behind = proxies.tinyproxy("127.0.0.3")
    with EchoSite() as site:
        good = Chosen(f"https://site.test:{proxies.tls_front(behind, CERTS / 'good.pem')}")
        assert fetch(good, site.url).status == 200
        assert [one.source for one in site.asked] == ["127.0.0.3"]
        for host, certificate in (("site.test", "expired.pem"), ("elsewhere.test", "good.pem")):
            bad = Chosen(f"https://{host}:{proxies.tls_front(behind, CERTS / certificate)}")
            assert fetch(bad, site.url).error == "bad_proxy"
            assert bad.outcomes == [ProxyOutcome.FAILED]
        assert len(site.asked) == 1


def test_a_test_tells_who_lets_tls_through(proxies: Proxies) -> None:
    open_, closed = proxies.tinyproxy("127.0.0.3"), proxies.tinyproxy("127.0.0.5", tunnels=False)
    fetching = FetchSection(email="a@b.test", tls_verify=False)
    with EchoSite() as site, Server("good.pem") as safe:
        safe.on("/", page(b"here"))
        section = ProxySection(test_url=site.url, tls_url=safe.url("/"), timeout_s=patience(2))
        probe = Probe(section, fetching, lambda _: None)
        listed = [parse(f"127.0.0.1:{one.port}") for one in (open_, closed)]
        found = {one.proxy: (one.why, one.tls) for one in probe.run(listed, probe.expect())}
    assert found == {listed[0]: ("", True), listed[1]: ("", False)}
