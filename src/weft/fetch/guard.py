"""Decides which addresses may be connected to: the public ones, and by choice private ones. Pure.

Called with each address just before a connection is opened to it, on every hop, so that neither a redirect nor a name
that resolves differently the second time leads into a private network. What must stay true: an address is refused
unless it is known to be public. A text that is not a plain address is refused, and so is every IPv6 address whose
embedded IPv4 address would be.

`ipaddress.is_global` alone will not do: it is wrong for 64:ff9b::/96, 2002::/16, ::/96, fec0::/10, multicast and
192.0.0.8, and it does not know the metadata services of clouds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

UNSPECIFIED = "unspecified"
LOOPBACK = "loopback"
PRIVATE = "private"
LINK_LOCAL = "link-local"
CARRIER_NAT = "carrier-grade NAT"
METADATA = "cloud metadata"
MULTICAST = "multicast"
BROADCAST = "broadcast"
DOCUMENTATION = "documentation"
BENCHMARK = "benchmark"
RESERVED = "reserved"
TUNNEL = "tunnel"
ZONED = "zone id"
NO_ADDRESS = "no address"

# Reasons that `allow_private` permits. Metadata services hand out credentials, so they are always refused.
INSIDE = frozenset({LOOPBACK, PRIVATE, LINK_LOCAL, CARRIER_NAT})

# The first block that holds an address names it.
_BLOCKS_4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(block), reason)
    for reason, blocks in (
        (METADATA, "169.254.169.0/24 169.254.170.0/24 169.254.42.42/32 169.254.0.23/32"),
        (METADATA, "100.100.100.200/32 168.63.129.16/32 192.0.0.192/32"),
        (UNSPECIFIED, "0.0.0.0/8"),
        (LOOPBACK, "127.0.0.0/8"),
        (PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16"),
        (LINK_LOCAL, "169.254.0.0/16"),
        (CARRIER_NAT, "100.64.0.0/10"),
        (DOCUMENTATION, "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 233.252.0.0/24"),
        (BENCHMARK, "198.18.0.0/15"),
        (MULTICAST, "224.0.0.0/4"),
        (BROADCAST, "255.255.255.255/32"),
        (RESERVED, "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4"),
    )
    for block in blocks.split()
)
_BLOCKS_6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(block), reason)
    for reason, blocks in (
        (METADATA, "fd00:ec2::/32 fd20:ce::/32 fe80::a9fe:a9fe/128"),
        (METADATA, "fd00:42::42/128 fd00:c1::a9fe:a9fe/128 fd00:a9fe:a9fe::1/128"),
        (UNSPECIFIED, "::/128"),
        (LOOPBACK, "::1/128"),
        (PRIVATE, "fc00::/7 fec0::/10"),
        (LINK_LOCAL, "fe80::/10"),
        (MULTICAST, "ff00::/8"),
        (DOCUMENTATION, "2001:db8::/32 3fff::/20"),
        (BENCHMARK, "2001:2::/48"),
        # These embed several IPv4 addresses, or one at a position that only the operator knows, so they cannot be
        # checked.
        (TUNNEL, "2001::/32 64:ff9b:1::/48"),
        (RESERVED, "2001::/23"),
    )
    for block in blocks.split()
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
# IPv6 blocks that embed an IPv4 address, and the right shift in bits that brings it to the low 32.
_EMBEDDING: tuple[tuple[IPv6Network, int], ...] = (
    (_MAPPED, 0),
    (_NAT64, 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),  # SIIT
    (IPv6Network("2002::/16"), 80),  # 6to4
)
_ISATAP = (0x00005EFE, 0x02005EFE)


@dataclass(frozen=True, slots=True)
class Guard:
    """The address policy of a crawl."""

    allow_private: bool = False

    def check(self, address: str | IPv4Address | IPv6Address) -> str | None:
        """Why this address must not be connected to; None when it may be."""
        reason = refusal(address)
        return None if self.allow_private and reason in INSIDE else reason


def is_loopback(host: str) -> bool:
    """Whether a host or address is this machine."""
    return host in ("localhost", "[::1]", "::1") or host.startswith("127.")


def is_private_host(host: str) -> bool:
    """Whether a host or address is recognisably this machine, or in a private network."""
    return is_loopback(host) or refusal(host.strip("[]")) in INSIDE


@lru_cache(maxsize=65536)
def refusal(address: str | IPv4Address | IPv6Address) -> str | None:
    """Why this address is not public, as a word; None if it is."""
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return NO_ADDRESS
    if isinstance(address, IPv4Address):
        return next((reason for block, reason in _BLOCKS_4 if address in block), None)
    return ZONED if address.scope_id is not None else _refusal_6(address)


def _refusal_6(address: IPv6Address) -> str | None:
    number = int(address)
    for block, reason in _BLOCKS_6:
        if address in block:
            # `allow_private` may permit these, and an ISATAP host or an operator's NAT64 prefix may be among them: both
            # have the IPv4 address at the end.
            if reason in INSIDE and refusal(IPv4Address(number & 0xFFFFFFFF)) == METADATA:
                return f"{TUNNEL} to {METADATA}"
            return reason
    for block, shift in _EMBEDDING:
        if address in block and (inner := refusal(IPv4Address(number >> shift & 0xFFFFFFFF))):
            # Only a mapped address is the inner one itself; the others are reached through a gateway and are called a
            # tunnel.
            return inner if block is _MAPPED else f"{TUNNEL} to {inner}"
    if number >> 32 & 0xFFFFFFFF in _ISATAP and (inner := refusal(IPv4Address(number & 0xFFFFFFFF))):
        return f"{TUNNEL} to {inner}"
    return None if any(address in block for block in (_GLOBAL_UNICAST, _MAPPED, _NAT64)) else RESERVED
