"""A broker behind TLS with a certificate of one's own, and a folder that brain and workers share for large pages."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster_crawls import cluster_at
from crawling import Crawler, audited
from hands import HandProcess, wait_until
from test_cluster_crawl import LARGE, SmallSite

from weft.cluster.broker import Broker
from weft.store.pages import PageStore
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]


@pytest.fixture
def site() -> Iterator[SmallSite]:
    made = SmallSite()
    yield made
    made.close()


@pytest.fixture
def tls_url(tmp_path: Path, start_server: StartServer) -> Iterator[str]:
    """The address of a broker that is asked over TLS, with the file of its authority."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    with tls_in_front(start_server("valkey").socket, cert, key) as port:
        yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={cert}"


@contextmanager
def tls_in_front(path: Path, cert: Path, key: Path) -> Iterator[int]:
    """TLS in front of a server that may have been built without it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()


def test_a_crawl_over_tls_has_its_large_pages_by_the_broker_and_by_a_shared_folder(
    tmp_path: Path, tls_url: str, site: SmallSite
) -> None:
    shared = tmp_path / "shared"
    with cluster_at(tmp_path, tls_url, 0) as cluster:
        cluster.start_hand(environment={"WEFT_SHARED_DIR": str(shared)})
        broker = Broker(tls_url, cluster.key.cluster_id)
        for name, more in (("broker", ()), ("folder", ("--shared-dir", shared))):
            crawler = Crawler([site.url + "/"], tmp_path / name, *cluster.flags, *more, "--header", "X-Key=secret")
            assert crawler.run() == 0, crawler.logs()
            assert [*audited(crawler.data_dir).hands] == [cluster.hands[0].name], "credentials go to it, too"
            store = PageStore.open([crawler.data_dir], read_only=True)
            (large,) = [row for row in crawler.rows() if row.url.endswith(".txt")]
            http = store.read_page(large).http
            store.abandon()
            assert http is not None and http.body == LARGE
        assert shared.is_dir(), "the second crawl's page was there"
        assert [path for path in shared.rglob("*") if path.is_file()] == [], "and was deleted"
        assert not broker.client.keys(broker.key("body:*"))


def test_a_broker_whose_certificate_nobody_has_signed_is_not_used(tmp_path: Path, tls_url: str) -> None:
    with cluster_at(tmp_path, tls_url, 0) as cluster:
        hand = HandProcess(tmp_path / "stranger", tls_url.partition("?")[0], cluster.key_file)
        wait_until(lambda: "certificate" in hand.output.lower() or hand.popen.poll() is not None, "it said nothing")
        hand.stop()
        assert "certificate" in hand.output.lower() and "serves" not in hand.output
        assert "Traceback" not in hand.output
