"""Judges the end of a request through a proxy: the proxy's result, and whether the answer is the site's at all. Pure.

A failure before the request was sent to the site is the proxy's. Through an HTTP proxy a plain request is sent to the
proxy alone, so that silence is the proxy's, too, and so are answers that carry its mark; any other is the site's.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.fetch.headers import Head
from weft.fetch.proxies.rotation import ProxyOutcome
from weft.records import FetchResult

# The kinds of errors that are no site's. A proxy that is bad rests from then on, so that such a request can be made
# again as if it had not been, without end; one that could not get to the site costs a try.
BAD_PROXY, PROXY = "bad_proxy", "proxy"
_BLOCKS = frozenset({403, 429})
_LOGIN_CODES = frozenset({401, 407})
# libcurl's CURLPX_* codes of a SOCKS proxy that tried, and could not reach the site.
_SOCKS_UNREACHED = frozenset({19, 20, 21, 22, 24})
_OWN = frozenset({"aborted", "stale"})  # ends that neither the proxy nor the site has caused


class TransferFacts(NamedTuple):
    """The facts about a transfer at its end, besides its result."""

    is_plain: bool  # an http URL through an HTTP proxy: the proxy is asked for it by its whole URL
    asked: bool  # the request was sent
    connected: bool  # there was a connection to the proxy
    connect_code: int = 0  # an HTTP proxy's answer to CONNECT
    socks_code: int = 0  # libcurl's CURLPX_*
    is_tls: bool = False  # it failed at the site's certificate or handshake, inside the tunnel


def judge(result: FetchResult, facts: TransferFacts) -> tuple[ProxyOutcome | None, str]:
    """The meaning for the proxy (None: none), and why the error is the proxy's; empty if it is not."""
    if result.error in _OWN:
        return None, ""
    if not facts.asked:
        return _unsent(result, facts)
    if facts.is_plain and (mark := _proxys_own(result)):
        return (
            ProxyOutcome.FAILED if result.status in _LOGIN_CODES or not result.status else ProxyOutcome.UNREACHED
        ), mark
    if not result.status:
        return ProxyOutcome.UNREACHED, ""
    return (ProxyOutcome.BLOCKED if is_block(result) else ProxyOutcome.OK), ""


def is_block(result: FetchResult) -> bool:
    """Whether a site's answer is a block."""
    return result.status in _BLOCKS or (result.status >= 400 and bool(Head(result.head).get("cf-mitigated")))


def _unsent(result: FetchResult, facts: TransferFacts) -> tuple[ProxyOutcome, str]:
    has_tried = facts.connect_code >= 400 and facts.connect_code not in _LOGIN_CODES
    if facts.connected and (has_tried or facts.socks_code in _SOCKS_UNREACHED or facts.is_tls):
        return ProxyOutcome.UNREACHED, result.detail
    if facts.connected and result.error == "timeout":
        return ProxyOutcome.UNREACHED, result.detail
    return ProxyOutcome.FAILED, result.detail


def _proxys_own(result: FetchResult) -> str:
    """Why an answer to a plain request is the proxy's own; empty if it may be the site's."""
    if not result.status:
        return result.detail
    if result.status == 407:
        return "it asks for a login (407)"
    head = Head(result.head)
    status = head.get("proxy-status") or ""
    marked = head.get("x-squid-error") or "error=" in status or (head.get("server") or "").startswith("tinyproxy")
    return f"it answers itself, with {result.status}" if marked and result.status >= 400 else ""
