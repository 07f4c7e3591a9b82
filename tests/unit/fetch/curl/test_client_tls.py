"""The client over TLS: whom it trusts, what it refuses and says about it, and that sessions are taken up again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pace import patience
from wire_server import AUTHORITY, CERTS, Server, Visit, page

from weft.config import FetchSection
from weft.fetch.curl.client import Client
from weft.fetch.curl.handles import ca_bundle
from weft.records import FetchResult

SECTION = FetchSection(
    resolve={"*.test": "127.0.0.1"}, connect_timeout_s=patience(0.4), read_timeout_s=patience(1),
    total_timeout_s=patience(2),
)  # fmt: skip


@pytest.fixture(scope="module")
def good() -> Iterator[Server]:
    with Server("good.pem") as running:
        running.on("/", page(b"secret"))
        yield running


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(SECTION, refusal=lambda _: None, handles=4, ca_file=AUTHORITY)
    yield made
    made.close()


def fetch(client: Client, url: str) -> FetchResult:
    client.submit(url, (), None)
    until = time.monotonic() + patience(5)
    while not (done := client.poll(0.5)):
        assert time.monotonic() < until
    return done[0][1]


@pytest.mark.parametrize("host", ["site.test", "www.site.test", "127.0.0.1"])
def test_a_good_certificate_is_accepted(client: Client, good: Server, host: str) -> None:
    result = fetch(client, good.url("/", host))
    assert (result.status, result.body, result.error, result.ip) == (200, b"secret", None, "127.0.0.1")


@pytest.mark.parametrize(
    ("certificate", "host", "says"),
    [
        ("expired.pem", "site.test", "expired"),
        ("self_signed.pem", "site.test", "self-signed"),
        ("other_host.pem", "site.test", "site.test"),
        ("good.pem", "elsewhere.test", "elsewhere.test"),
        ("good.pem", "a.b.site.test", "a.b.site.test"),
    ],
)
def test_a_bad_certificate_is_refused_with_its_reason(client: Client, certificate: str, host: str, says: str) -> None:
    with Server(certificate) as bad:
        result = fetch(client, bad.url("/", host))
        assert (result.status, result.error) == (0, "tls") and says in result.detail
        assert bad.visits == []


@pytest.mark.parametrize("certificate", ["expired.pem", "self_signed.pem", "other_host.pem"])
def test_a_bad_certificate_is_accepted_when_so_configured(certificate: str) -> None:
    section = FetchSection(resolve={"*.test": "127.0.0.1"}, tls_verify=False)
    made = Client(section, refusal=lambda _: None, handles=1, ca_file=AUTHORITY)
    with Server(certificate) as bad:
        assert fetch(made, bad.on("/", page(b"hi"), host="site.test")).body == b"hi"
    made.close()


def test_an_unknown_authority_is_refused_by_the_systems_bundle(good: Server) -> None:
    if ca_bundle() is None:
        pytest.skip("no authorities on this system")
    made = Client(SECTION, refusal=lambda _: None, handles=1)
    assert fetch(made, good.url("/", "site.test")).error == "tls"
    made.close()


def test_ssl_cert_file_names_the_authorities(good: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", AUTHORITY)
    made = Client(SECTION, refusal=lambda _: None, handles=1)
    assert fetch(made, good.url("/", "site.test")).error is None
    made.close()


def test_a_bundle_that_does_not_exist_refuses_everything(good: Server) -> None:
    made = Client(SECTION, refusal=lambda _: None, handles=1, ca_file=str(CERTS / "nothing.pem"))
    result = fetch(made, good.url("/", "site.test"))
    made.close()
    assert result.error == "tls" and "nothing.pem" in result.detail


class _Quiet(BaseHTTPRequestHandler):
    """Answers a TLS hello with a plain 400."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_plain_http_on_a_tls_port_and_the_other_way_round(client: Client, good: Server) -> None:
    assert fetch(client, f"http://127.0.0.1:{good.port}/").error in ("reset", "protocol")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Quiet) as plain:
        threading.Thread(target=plain.serve_forever, args=(0.05,), daemon=True).start()
        result = fetch(client, f"https://127.0.0.1:{plain.server_port}/")
        plain.shutdown()
        assert (result.error, result.detail) == ("tls", "the port does not speak TLS, it may be plain HTTP")


def test_a_connection_is_used_again(client: Client) -> None:
    with Server("good.pem") as fresh:
        url = fresh.on("/", page(b"hi"), host="site.test")
        for _ in range(5):
            assert fetch(client, url).error is None
        assert fresh.connections == 1


def test_sessions_are_taken_up_again_whichever_handle_comes_next(client: Client) -> None:
    with Server("good.pem") as fresh:
        hosts = [f"h{number}.site.test" for number in range(100)]
        for host in hosts * 2:
            client.submit(fresh.on("/", page(b"hi", b"Connection: close"), close=True, host=host), (), host)
            if not client.free:
                client.poll(1)
        while client.in_flight:
            client.poll(1)
        assert fresh.connections == 200 and sum(fresh.resumed[100:]) > 90


def test_certificates_are_verified_for_each_name_on_one_address(client: Client, good: Server) -> None:
    assert fetch(client, good.url("/", "site.test")).error is None
    assert fetch(client, good.url("/", "elsewhere.test")).error == "tls"
    assert fetch(client, good.url("/", "site.test")).error is None


def test_cut_off_without_farewell(client: Client) -> None:
    async def cut(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart")
        visit.writer.transport.abort()

    with Server("good.pem") as fresh:
        result = fetch(client, fresh.on("/cut", cut, host="site.test"))
    assert (result.error, result.body) in ((("truncated", b"part")), ("reset", b"part"))


def test_a_sloppy_server_over_tls(client: Client) -> None:
    with Server("good.pem") as fresh:
        url = fresh.on("/", b"HTTP/1.1 200 OK\r\nsloppy\r\n\r\n" + b"x" * 50_000, close=True, host="site.test")
        assert fetch(client, url).error == "protocol"
        result = fetch(client, url)
        assert (result.error, len(result.body)) == (None, 50_000)
        assert fetch(client, fresh.url("/", "127.0.0.1")).error == "protocol"  # another origin
