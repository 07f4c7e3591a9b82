"""An IPv4 address inside an IPv6 one is judged as if it were asked for by itself, however it was put there."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch import guard
from weft.fetch.guard import Guard, refusal

# One a line, with whose it is: they hand out credentials, or what a machine was started with.
METADATA_4 = [
    "169.254.169.254",  # most clouds
    "169.254.170.2",  # AWS, of a container
    "169.254.170.23",  # AWS, of a pod
    "169.254.42.42",  # Scaleway
    "169.254.0.23",  # Tencent
    "100.100.100.200",  # Alibaba
    "192.0.0.192",  # Oracle
    "168.63.129.16",  # Azure
]
METADATA_6 = [
    "fd00:ec2::254",  # AWS
    "fd00:ec2::23",  # AWS, of a pod
    "fd20:ce::254",  # Google
    "fd00:42::42",  # Scaleway
    "fd00:c1::a9fe:a9fe",  # Oracle
    "fd00:a9fe:a9fe::1",  # Linode
    "fe80::a9fe:a9fe",  # OpenStack
]
PRIVATE_4 = [
    IPv4Network(block)
    for block in "127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 100.64.0.0/10".split()
]
OPEN, SHUT = Guard(allow_private=True), Guard()
_TEREDO = int(IPv6Address("2001::"))


def _behind(prefix: str) -> Callable[[int], int]:
    """The IPv4 address as the last 32 bits after a prefix."""
    return lambda inner: int(IPv6Address(prefix)) | inner


EMBEDDINGS: dict[str, Callable[[int], int]] = {
    "mapped": _behind("::ffff:0:0"),
    "compatible": _behind("::"),
    "translated (SIIT)": _behind("::ffff:0:0:0"),
    "6to4": lambda inner: 0x2002 << 112 | inner << 80,
    "6to4, of a host": lambda inner: 0x2002 << 112 | inner << 80 | 1,
    "NAT64": _behind("64:ff9b::"),
    "local NAT64 /96": _behind("64:ff9b:1::"),
    "local NAT64 /96 in a subnet": _behind("64:ff9b:1:fffe::"),
    "local NAT64 /48": lambda inner: 0x64FF9B0001 << 80 | inner >> 16 << 64 | (inner & 0xFFFF) << 40,
    "Teredo, the client": lambda inner: _TEREDO | 0x08080808 << 64 | (inner ^ 0xFFFFFFFF),
    "Teredo, the server": lambda inner: _TEREDO | inner << 64 | (0x08080808 ^ 0xFFFFFFFF),
    "ISATAP, link-local": _behind("fe80::5efe:0:0"),
    "ISATAP, link-local, global": _behind("fe80::200:5efe:0:0"),
    "ISATAP, private": _behind("fd12:3456:789a:1::5efe:0:0"),
    "ISATAP, private, global": _behind("fd12:3456:789a:1:200:5efe:0:0"),
    "ISATAP, site-local": _behind("fec0::5efe:0:0"),
    "ISATAP, public": _behind("2a00:1450::5efe:0:0"),
    "ISATAP, public, global": _behind("2a00:1450::200:5efe:0:0"),
    "ISATAP, no prefix": _behind("::5efe:0:0"),
    "ISATAP, no prefix, global": _behind("::200:5efe:0:0"),
    "ISATAP behind 6to4": _behind("2002:808:808::5efe:0:0"),
    "an operator's NAT64, private": _behind("fd12:3456:789a::"),
    "an operator's NAT64, link-local": _behind("fe80::"),
}
EMBEDDED = sorted(EMBEDDINGS)


@pytest.mark.parametrize("address", METADATA_4 + METADATA_6)
def test_a_metadata_service_is_never_connected_to(address: str) -> None:
    assert refusal(address) == SHUT.check(address) == OPEN.check(address) == guard.METADATA


@pytest.mark.parametrize("form", EMBEDDED)
@pytest.mark.parametrize("address", METADATA_4)
def test_no_embedding_leads_to_a_metadata_service(address: str, form: str) -> None:
    outer = IPv6Address(EMBEDDINGS[form](int(IPv4Address(address))))
    for text in (outer.compressed, outer.exploded, socket.inet_ntop(socket.AF_INET6, outer.packed)):
        assert SHUT.check(text) is not None
        assert OPEN.check(text) is not None


@given(st.sampled_from(PRIVATE_4), st.sampled_from(EMBEDDED), st.data())
def test_no_embedding_makes_a_private_address_public(block: IPv4Network, form: str, data: st.DataObject) -> None:
    inner = int(block[0]) + data.draw(st.integers(0, block.num_addresses - 1))
    assert SHUT.check(IPv6Address(EMBEDDINGS[form](inner))) is not None


@given(st.integers(0, 2**64 - 1), st.sampled_from([0x00005EFE, 0x02005EFE]), st.sampled_from([*METADATA_4, "10.0.0.1"]))
def test_an_isatap_address_is_judged_under_any_prefix(prefix: int, mark: int, inner: str) -> None:
    address = IPv6Address(prefix << 64 | mark << 32 | int(IPv4Address(inner)))
    assert SHUT.check(address) is not None
    if inner != "10.0.0.1":
        assert OPEN.check(address) is not None


@given(st.sampled_from(["fd00::/8", "fe80::/64", "fec0::/64"]).map(IPv6Network), st.data())
def test_an_address_inside_that_embeds_no_metadata_service_is_opened_by_choice(
    block: IPv6Network, data: st.DataObject
) -> None:
    """The other side: a guard that refuses all would pass the tests above."""
    address = block[data.draw(st.integers(0, block.num_addresses - 1))]
    known = [*(IPv6Network(f"{one}/128") for one in METADATA_6), *map(IPv6Network, ("fd00:ec2::/32", "fd20:ce::/32"))]
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in one for one in known) or refusal(low) == guard.METADATA:
        return
    assert SHUT.check(address) in {guard.PRIVATE, guard.LINK_LOCAL}
    assert OPEN.check(address) is None


@pytest.mark.parametrize(
    "address", ["fe80::5efe:192.168.0.1", "fd00::200:5efe:10.0.0.1", "fd00:42::41", "169.254.42.41"]
)
def test_private_machines_beside_them_are_opened_by_choice(address: str) -> None:
    assert SHUT.check(address) is not None
    assert OPEN.check(address) is None
