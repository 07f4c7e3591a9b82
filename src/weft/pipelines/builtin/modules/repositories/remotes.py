"""Which git remotes are taken: transports, the form of addresses, and where their hosts are. Asked before git is.

Used by the stage `clone`, for every command that talks to a remote. What must stay true: git is given no text that it
could take for an option or for a transport helper; no connection goes to an address that `weft.fetch.guard` refuses.
For that the host is resolved here, its addresses are judged, and git is tied to those that passed: by
`http.curloptResolve` for https and http (git refuses redirects; `heads` follows them, each target judged again), and by
ssh's `HostName` for ssh.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from weft.errors import BadUrl
from weft.fetch.dns.dns_system import lookup
from weft.fetch.guard import INSIDE, Guard
from weft.pipelines.builtin.modules.errors import GitFailed, RefusedRepository
from weft.urls import parse

TRANSPORTS = ("https", "ssh", "file", "http")
DEFAULT_TRANSPORTS = ("https", "ssh", "file")
_PORTS = {"https": 443, "http": 80, "ssh": 22}
_MAX_CHARS = 2_000
_REMOTE_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9._-]*)@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?!//)([^-:].*)")
_SSH = re.compile(
    r"ssh://(?:([A-Za-z0-9_][A-Za-z0-9._-]*)@)?([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?/.+"
)
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_BRANCH = re.compile(r"(?!/|-|\.)(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)|/\.))[^\x00-\x20\x7f~^:?*\[\\]{1,250}(?<![/.])")

Lookup = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Remote:
    """A checked remote, with the addresses that git may connect to; one of the transport `file` has no host."""

    url: str
    transport: str
    host: str = ""
    port: int = 0
    addresses: tuple[str, ...] = ()  # of the host, those that passed the guard

    def config(self) -> list[str]:
        """The configuration that ties git's HTTP connections to the addresses."""
        if self.transport not in ("https", "http"):
            return []
        return [f"http.curloptResolve={self.host.strip('[]')}:{self.port}:{','.join(self.addresses)}"]

    def environment(self) -> dict[str, str]:
        """The ssh command that does the same. It is read by a shell, so it has only what was checked by patterns."""
        if self.transport != "ssh":
            return {}
        options = {
            "BatchMode": "yes",  # nothing is asked: neither a password nor whether an unknown host is to be trusted
            "StrictHostKeyChecking": "yes",
            "HostName": self.addresses[0],
            "HostKeyAlias": self.host.strip("[]"),
            "ProxyCommand": "none",
            "ProxyJump": "none",
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "ConnectTimeout": "15",
        }
        return {"GIT_SSH_COMMAND": " ".join(["ssh", *(f"-o {name}={value}" for name, value in options.items())])}


def remote_of(text: object, settings: Mapping[str, object], resolve: Lookup = lookup) -> Remote:
    """Checks a remote's address and resolves its host; raises `RefusedRepository`, or `GitFailed` if its host has no
    address now.
    """
    remote = judged(text, settings)
    if not remote.host:
        return remote
    try:
        addresses = resolve(remote.host.strip("[]"))
    except OSError as error:
        raise GitFailed("dns", f"{remote.host}: its name cannot be resolved ({error.strerror or error})") from None
    guard = Guard(bool(settings.get("allow_private", False)))
    reasons = {address: guard.check(address) for address in addresses}
    passed = tuple(address for address, why in reasons.items() if why is None)
    if not passed:
        address, why = next(iter(reasons.items()), ("", "no address"))
        hint = "; `clone.allow_private` permits it" if why in INSIDE else ""
        raise RefusedRepository(f"{remote.host} is not public: {address or 'it'} is {why}{hint}")
    return Remote(remote.url, remote.transport, remote.host, remote.port, passed)


def judged(text: object, settings: Mapping[str, object]) -> Remote:
    """Parses and checks the text of a remote, without resolving its host."""
    if not isinstance(text, str) or not text:
        raise RefusedRepository("it has no `url`: the address of a git repository, https://, ssh:// or file://")
    shown = repr(text if len(text) < 120 else text[:100] + "…")
    if text.startswith("-"):
        raise RefusedRepository(f"{shown}: an address that begins with `-` would be an option of git")
    if _REMOTE_HELPER.match(text):
        raise RefusedRepository(f"{shown}: transport helpers (`ext::` and the like) run commands and are never used")
    if len(text) > _MAX_CHARS or _UNPRINTABLE.search(text):
        raise RefusedRepository(
            f"{shown}: an address of a repository has no blanks and at most {_MAX_CHARS} characters"
        )
    scheme = _SCHEME.match(text)
    transport = scheme[1].lower() if scheme else "ssh" if _SCP.fullmatch(text) else ""
    if not transport:
        raise RefusedRepository(
            f"{shown}: no address of a git repository; a folder on this machine is written file:///path"
        )
    allowed = settings.get("transports", DEFAULT_TRANSPORTS)
    if transport not in TRANSPORTS or not isinstance(allowed, list | tuple) or transport not in allowed:
        raise RefusedRepository(f"{shown}: the transport {transport!r} is not allowed (`clone.transports`)")
    return {"ssh": _parse_ssh, "file": _parse_file}.get(transport, _parse_http)(text, shown)


def branch_of(text: object) -> str:
    """Checks the name of a branch (may be empty) by git's rules; refuses names that git could read as options."""
    if text is None or text == "":
        return ""
    if not isinstance(text, str) or not _BRANCH.fullmatch(text):
        raise RefusedRepository(f"{str(text)[:100]!r} cannot be the name of a branch")
    return text


def _parse_http(text: str, shown: str) -> Remote:
    try:
        url = parse(text)  # as browsers read it: `0x7f.1` and `①②⑦.0.0.1` come out as the addresses they are
    except (BadUrl, ValueError):
        raise RefusedRepository(f"{shown}: not a URL") from None
    if url.username or url.password:
        raise RefusedRepository(
            f"{text.split('//')[0]}//…@{url.host}: an address with a login in it would end up in logs"
        )
    if not url.hostname:
        raise RefusedRepository(f"{shown}: it names no host")
    scheme = url.protocol.rstrip(":")
    port = int(url.port) if url.port else _PORTS[scheme]
    return Remote(f"{url.protocol}//{url.host}{url.pathname}{url.search}", scheme, url.hostname, port)


def _parse_ssh(text: str, shown: str) -> Remote:
    if text[:6].lower() == "ssh://":
        match = _SSH.fullmatch("ssh://" + text[6:])
        if not match:
            raise RefusedRepository(f"{shown}: an ssh address is ssh://user@host/path, without a password")
        return Remote("ssh://" + text[6:], "ssh", match[2], int(match[3] or _PORTS["ssh"]))
    scp = _SCP.fullmatch(text)
    assert scp is not None  # `judged` looked
    return Remote(text, "ssh", scp[2], _PORTS["ssh"])


def _parse_file(text: str, shown: str) -> Remote:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise RefusedRepository(f"{shown}: a repository on this machine is written file:///path")
    return Remote("file://" + parts.path, "file")
