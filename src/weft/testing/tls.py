"""TLS for the synthetic web: the test certificates, and a listener that never completes a handshake.

The PEM files under certs/ are made by certs/make.sh and protect nothing: their keys are public.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

CERTS = Path(__file__).parent / "certs"
CA_FILE = CERTS / "ca.pem"
# Addresses that leaf.pem is valid for; names under weft-web.test are valid in any number.
CERTIFIED_ADDRESSES = 100
# Addresses of hosts with a TLS fault when hosts have names (other hosts share 127.0.0.1).
FAULT_ADDRESSES = {
    "tls-stall": "127.0.0.2",
    "tls-expired": "127.0.0.3",
    "tls-wrong-host": "127.0.0.4",
    "tls-self-signed": "127.0.0.5",
}
STALL_S = 600.0


def server_context(fault: str | None = None) -> ssl.SSLContext:
    """The server context of a listener: with the valid certificate, or with the fault of a tls-… behaviour."""
    name = "leaf" if fault is None else fault.removeprefix("tls-")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / f"{name}.pem")
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_context() -> ssl.SSLContext:
    """A client context that trusts only the test authority."""
    return ssl.create_default_context(cafile=str(CA_FILE))


class Stall(asyncio.Protocol):
    """Reads and never answers, so that a TLS handshake never completes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        asyncio.get_running_loop().call_later(STALL_S, transport.abort)
