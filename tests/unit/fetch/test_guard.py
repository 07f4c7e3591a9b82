"""The address guard: a table of addresses, then every block from end to end and the public rest at random."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weft.fetch import guard
from weft.fetch.guard import Guard, refusal

PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.215.14 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255
198.20.0.0 198.51.99.255 203.0.114.0 223.255.255.255 168.63.129.15 192.31.196.1 192.175.48.1
2001:200:: 2001:4860:4860::8888 2606:4700::1111 2a00:1450:4001:80b::200e 2620:4f:8000::1 2003::1 3ffe::1
::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 2a00:1450::5efe:808:808 2a00:1450::200:5efe:808:808
2a00:1450::5eff:7f00:1
""".split()

REFUSED = {
    guard.UNSPECIFIED: "0.0.0.0 0.0.0.1 0.255.255.255 :: ::ffff:0.0.0.0",
    guard.LOOPBACK: "127.0.0.1 127.0.0.53 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:7f00:1 0:0:0:0:0:ffff:7f00:0001",
    guard.PRIVATE: "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255 ::ffff:10.1.2.3"
    " fc00:: fd00::1 fdff:ffff::1 fec0:: fec0::1 feff::1",
    guard.LINK_LOCAL: "169.254.0.1 169.254.255.255 fe80::1 febf::1 ::ffff:169.254.1.1",
    guard.METADATA: "169.254.169.254 169.254.170.2 169.254.169.253 100.100.100.200 168.63.129.16 192.0.0.192"
    " fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fe80::a9fe:a9fe ::ffff:169.254.169.254 ::ffff:a9fe:a9fe",
    guard.CARRIER_NAT: "100.64.0.0 100.127.255.255 ::ffff:100.64.0.1",
    guard.MULTICAST: "224.0.0.1 239.255.255.250 ff02::1 ff0e::1 ::ffff:224.0.0.1",
    guard.BROADCAST: "255.255.255.255 ::ffff:255.255.255.255",
    guard.DOCUMENTATION: "192.0.2.1 198.51.100.7 203.0.113.255 233.252.0.1 2001:db8::1 3fff::1 3fff:fff::1",
    guard.BENCHMARK: "198.18.0.0 198.19.255.255 2001:2::1",
    guard.RESERVED: "192.0.0.0 192.0.0.8 192.0.0.9 192.0.0.170 192.88.99.1 240.0.0.1 254.255.255.255 255.255.255.254"
    " ::2 ::8.8.8.8 ::127.0.0.1 ::a00:1 100::1 200::1 4000::1 5f00::1 fe00::1 64:ff9b:2::1 64:ff9a::1 ::fffe:808:808"
    " 2001:1::1 2001:3::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 ::ffff:0:808:808",
    guard.TUNNEL: "2001::1 2001:0:808:808::1 64:ff9b:1::1 64:ff9b:1::808:808 64:ff9b:1:ffff::7f00:1",
    "tunnel to loopback": "64:ff9b::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: 2002:7f00:1::8 ::ffff:0:7f00:1"
    " 2a00:1450::5efe:7f00:1 2a00:1450::200:5efe:127.0.0.1",
    "tunnel to private": "64:ff9b::10.0.0.1 2002:a00:1::1 2002:c0a8:101:: 2a00::5efe:192.168.0.1",
    "tunnel to cloud metadata": "64:ff9b::169.254.169.254 2002:a9fe:a9fe:: 2a00::5efe:a9fe:a9fe",
    "tunnel to unspecified": "64:ff9b:: 2002:: 2002::1",
    "tunnel to broadcast": "64:ff9b::255.255.255.255 2002:ffff:ffff:: 2a00::5efe:255.255.255.255",
    guard.ZONED: "fe80::1%eth0 fe80::1%1 2606:4700::1111%eth0 ::1%lo",
    guard.NO_ADDRESS: "0x7f.1 0x7f000001 2130706433 017700000001 127.1 127.0.1 0177.0.0.1 127.0.0.01 ①②⑦.0.0.1"
    " １２７.0.0.1 localhost example.org [::1] 1.2.3.4:80 1.2.3.4/32 ::ffff:1.2.3 256.1.1.1 1.2.3.4.5 :::1 1.2.3.4. %",
}  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert refusal(address) is None
    assert refusal(ip_address(address)) is None
    assert Guard().check(address) is None
    assert Guard(allow_private=True).check(address) is None


@pytest.mark.parametrize(("address", "reason"), [(a, reason) for reason, all_ in REFUSED.items() for a in all_.split()])
def test_any_other_address_is_refused_with_its_reason(address: str, reason: str) -> None:
    assert refusal(address) == reason
    assert Guard().check(address) == reason


@pytest.mark.parametrize("address", ["", " ", " 8.8.8.8", "8.8.8.8 ", "8.8.8.8\n", "\0", "8.8.8.8\0"])
def test_a_text_with_more_than_an_address_is_refused(address: str) -> None:
    assert refusal(address) == guard.NO_ADDRESS


def test_private_addresses_may_be_opened_and_nothing_else_is() -> None:
    opened = Guard(allow_private=True)
    inside = {guard.LOOPBACK, guard.PRIVATE, guard.LINK_LOCAL, guard.CARRIER_NAT}
    for reason, addresses in REFUSED.items():
        for address in addresses.split():
            assert opened.check(address) == (None if reason in inside else reason)


def test_an_address_object_is_judged_like_its_text() -> None:
    assert refusal(IPv4Address("127.0.0.1")) == guard.LOOPBACK
    assert refusal(IPv6Address("::ffff:10.0.0.1")) == guard.PRIVATE
    assert refusal(IPv6Address("2606:4700::1111%eth0")) == guard.ZONED


BLOCKS_4 = [
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24",
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4",
]
BLOCKS_6 = [
    "::/96 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/8 200::/7 400::/6 800::/5 1000::/4 2001::/23 2001:db8::/32 3fff::/20",
    "4000::/2 8000::/2 c000::/3 e000::/4 f000::/5 f800::/6 fc00::/7 fe00::/9 fe80::/10 fec0::/10 ff00::/8",
    "2002:7f00::/24 2002:a00::/24 2002:c0a8::/32 2002:e000::/20 64:ff9b::7f00:0/104 64:ff9b::a00:0/104",
    "::ffff:10.0.0.0/104",
]
SPECIAL = [ip_network(block) for line in BLOCKS_4 + BLOCKS_6 for block in line.split()]


@given(st.sampled_from(SPECIAL), st.data())
def test_every_address_of_a_special_block_is_refused(block: IPv4Network | IPv6Network, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, block.num_addresses - 1))
    assert refusal(block[offset]) is not None
    assert refusal(block[0]) is not None
    assert refusal(block[-1]) is not None


def inside_any(address: IPv4Address | IPv6Address) -> bool:
    return any(address in block for block in SPECIAL if block.version == address.version)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_address_is_public_if_it_is_outside_all_blocks(address: IPv4Address) -> None:
    assert (refusal(address) is None) == (not inside_any(address) and str(address) != "168.63.129.16")
    assert refusal(address) is not None or address.is_global


@given(st.integers(0x2003 << 112, (0x3FFF << 112) - 1).map(IPv6Address))
def test_an_address_of_the_global_unicast_space_is_public(address: IPv6Address) -> None:
    assume(int(address) >> 32 & 0xFFFF != 0x5EFE)
    assert refusal(address) is None


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_no_embedding_makes_a_refused_address_public(inner: IPv4Address) -> None:
    number = int(inner)
    mapped, nat64 = IPv6Address(0xFFFF << 32 | number), IPv6Address(0x64FF9B << 96 | number)
    six, isatap = IPv6Address(0x2002 << 112 | number << 80 | 1), IPv6Address(0x2A00 << 112 | 0x5EFE << 32 | number)
    wanted = refusal(inner)
    assert refusal(mapped) == wanted
    for address in (nat64, six, isatap):
        assert refusal(address) == (wanted and f"tunnel to {wanted}")
    for address in (IPv6Address(number), IPv6Address(0x64FF9B0001 << 80 | number)):
        assert refusal(address) is not None


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_whatever_the_standard_library_calls_private_is_refused(address: IPv6Address) -> None:
    assert refusal(address) is not None or address.is_global


@given(st.text(max_size=40))
def test_any_text_gets_an_answer(text: str) -> None:
    refusal(text)
