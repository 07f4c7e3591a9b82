"""What a URL is. The only place that parses, joins or canonicalises one, or derives a domain, pod or data dir from it.

Invariants: `canonical(canonical(u)) == canonical(u)`; whatever leaves this module is http or https, has no fragment, no
credentials, no default port, and at most MAX_LENGTH characters; what is derived is the same in every process and run.

Parsing is WHATWG's, by the ada engine. A page's links mostly look alike, so `join_all` has those that need no parser
joined by concatenation (`plain_links`); the rest goes through ada.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from hashlib import md5, sha256
from ipaddress import ip_address
from pathlib import Path
from typing import cast
from urllib.parse import quote_from_bytes

import ada_url
import publicsuffixlist
from publicsuffixlist import PSLFILE, PublicSuffixList

from weft.errors import BadUrl
from weft.plain_links import END, PATH, QUERY, join_plain, rooted

MAX_LENGTH = 2000

SKIPPED_EXTENSIONS = frozenset(
    "jpg jpeg png gif bmp svg webp ico tiff tif "  # images
    "mp4 avi mov wmv flv webm mkv mpg mpeg m4v "  # video
    "mp3 wav flac aac ogg wma m4a opus "  # audio
    "pdf doc docx xls xlsx ppt pptx odt "  # documents
    "zip rar 7z tar gz bz2 xz tgz "  # archives
    "exe msi dmg pkg deb rpm apk app "  # programs
    "iso bin dat db sqlite dll so dylib "  # binaries
    "psd ai eps indd sketch fig xd "  # design
    "csv json xml sql".split()  # data
)
LONGEST_EXTENSION = max(map(len, SKIPPED_EXTENSIONS))

_ABSOLUTE = re.compile(rf"(https?:)?(//[A-Za-z0-9.-]+(?::[0-9]+)?)((?:{PATH})?)({QUERY}){END}").match
_ORIGIN = re.compile(r"(https?://[^/?#]*)(.*)", re.DOTALL).match

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?![0-9]+(?:[/?#]|\Z))").match
_PATH = re.compile(r"/(?!/)|\.{1,2}(?:[/\\]|\Z)|~").match
_UNSEEN = re.compile(r"[\x00-\x20\x7f]").search


def parse(text: str, base: str | None = None) -> ada_url.URL:
    """Parses a text as the web platform does, with any scheme; BadUrl if it is not a URL."""
    try:
        return ada_url.URL(text, base) if base is not None else ada_url.URL(text)
    except ValueError:
        raise BadUrl(text, "syntax", _why_not(text)) from None


def absolute(text: str, base: str) -> str:
    """A reference made absolute as the web platform does, its fragment and any scheme kept; BadUrl if it is invalid."""
    if (match := rooted(text)) and match[1] == text and (origin := _canonical_origin(base)):
        return origin + text
    match = _ABSOLUTE(text)
    if match and match[1] and match.end(4) == len(text) and (origin := _origin(match[1] + match[2])):
        return origin + (match[3] or "/") + match[4]
    try:
        return str(ada_url.join_url(base, text))
    except ValueError:
        raise BadUrl(text, "syntax", _why_not(text)) from None


def canonical(text: str, base: str | None = None) -> str:
    """The canonical form, which is used everywhere in Weft."""
    try:
        href: str = ada_url.normalize_url(text) if base is None else ada_url.join_url(base, text)
    except ValueError:
        raise BadUrl(text, "syntax", _why_not(text)) from None
    if not href.startswith(("http://", "https://")):
        raise BadUrl(text, "scheme", f"scheme {href.partition(':')[0]!r} is not crawled: use http or https")
    if "#" in href:
        href = href.partition("#")[0]
    if "@" in href and "@" in (authority := href.split("/", 3)[2]):
        href = href.replace(authority, authority.rpartition("@")[2], 1)
    if len(href) > MAX_LENGTH:
        raise BadUrl(text, "length", f"{len(href)} characters are too many: at most {MAX_LENGTH} are kept")
    return href


def seed(text: str) -> str:
    """The canonical URL of a user's input: stricter than for links, and a missing scheme means https."""
    text = text.strip()
    if not text:
        raise BadUrl(text, "empty", "the URL is empty")
    if bad := _UNSEEN(text):
        name = "a space" if bad[0] == " " else f"the control character {bad[0]!r}"
        raise BadUrl(text, "whitespace", f"has {name} at position {bad.start() + 1}: write it percent-encoded")
    if _PATH(text):
        raise BadUrl(text, "syntax", "a path, not a URL: write it whole, like https://example.com/")
    if text.startswith("//"):
        text = "https:" + text
    elif not _SCHEME(text):
        text = "https://" + text
    return canonical(text)


def stored_as(text: str) -> list[str]:
    """The URLs under which a user's input may be stored: without a scheme, that of https and that of http."""
    url, typed = seed(text), text.strip()
    is_open = not _SCHEME(typed) or typed.startswith("//")
    return [url, canonical("http" + url.removeprefix("https"))] if is_open else [url]


def join_all(
    base: str,
    hrefs: Iterable[str],
    encoding: str = "utf-8",
    refused: Callable[[str, str], None] | None = None,
) -> list[str]:
    """The canonical URLs of a page's references, in order; for others `refused(href, reason)` is called.

    `base` is a canonical URL or a `<base href>` already resolved; `encoding` is the page's, which the standard wants
    for the query alone.
    """
    split = _ORIGIN(base)
    if not split:
        return []
    origin = _origin(split[1]) or ""
    path = (split[2].split("?", 1)[0].split("#", 1)[0].rpartition("/")[0] or "") + "/"
    hrefs = hrefs if isinstance(hrefs, list) else list(hrefs)
    joined, others = join_plain(origin, origin + path if rooted(path) else "", hrefs, MAX_LENGTH)
    if others:
        scheme = base[: base.index("/")]
        for at, href in enumerate(hrefs):
            if joined[at] is None:
                joined[at] = _joined(base, scheme, href, encoding, refused)
    return [url for url in joined if url is not None] if others else cast(list[str], joined)


def _joined(base: str, scheme: str, href: str, encoding: str, refused: Callable[[str, str], None] | None) -> str | None:
    """The canonical URL of a reference that is not plain; None if it has none, or an unwanted one."""
    if match := _ABSOLUTE(href):
        start = _origin((match[1] or scheme) + match[2])
        url, reason = (start + (match[3] or "/") + match[4], "") if start is not None else ("", "syntax")
    else:
        try:
            is_as_sent = href.isascii() or encoding in ("utf-8", "utf8", "UTF-8")
            url, reason = canonical(href if is_as_sent else _query_in(href, encoding), base), ""
        except BadUrl as error:
            url, reason = "", error.reason
    if len(url) > MAX_LENGTH:
        reason = "length"
    if not reason:
        return url
    if refused is not None:
        refused(href, reason)
    return None


def join(base: str, href: str, encoding: str = "utf-8") -> str:
    """The canonical URL of one reference."""
    return canonical(href if href.isascii() else _query_in(href, encoding), base)


def origin_of(url: str) -> str:
    """`https://host:port` of a canonical URL."""
    return url[: url.index("/", 8)]


def host_of(url: str) -> str:
    """The host of a canonical URL, without the port."""
    start = url.index("//") + 2
    host = url[start : url.index("/", start)]
    if host.endswith("]"):
        return host
    return host.rpartition(":")[0] if ":" in host else host


def domain_of(url: str) -> str:
    """The registrable domain of a canonical URL."""
    return domain(host_of(url))


@lru_cache(maxsize=65536)
def domain(host: str) -> str:
    """The registrable domain of a host; addresses, `localhost` and hosts under no known suffix are their own."""
    if host.startswith("[") or _is_address(host):
        return host
    dot = host.rfind(".")
    if (
        "xn--" not in host
        and host[dot + 1 :] in _plain_suffixes()
        and (two := host[host.rfind(".", 0, dot) + 1 :]) not in _longer_suffixes()
    ):
        return two  # as for most hosts: under a suffix of one label, and no longer one may match
    found = _suffixes().privatesuffix(host.rstrip("."))
    return str(found) if found else host


@lru_cache(maxsize=65536)
def registered(host: str) -> tuple[str, str]:
    """The suffix a registry gives names under, and the name registered there; empty if there is none.

    Unlike `domain` this knows no private suffixes: `blogspot.com` is registered under `com`.
    """
    if host.startswith("[") or _is_address(host):
        return "", ""
    plain = host.rstrip(".")
    return str(_registries().publicsuffix(plain) or ""), str(_registries().privatesuffix(plain) or "")


@lru_cache(maxsize=65536)
def suffix(host: str) -> str:
    """The public suffix of a host, private ones included; empty if there is none."""
    if host.startswith("[") or _is_address(host):
        return ""
    return str(_suffixes().publicsuffix(host.rstrip(".")) or "")


def pod_of(domain_name: str, pods: int) -> int:
    """The pod that owns a domain."""
    return int(md5(domain_name.encode()).hexdigest()[:8], 16) % pods


def data_dir_of(url: str, data_dirs: int) -> int:
    """The number of the data dir that holds a URL's content."""
    return int(sha256(url.encode()).hexdigest()[:8], 16) % data_dirs


def skipped_extension(url: str) -> str | None:
    """The extension that shows that a link does not lead to text, or None."""
    path = url.partition("?")[0]
    dot = path.rfind(".", -LONGEST_EXTENSION - 1)
    if dot < 0:
        return None
    extension = path[dot + 1 :].lower()
    return extension if extension in SKIPPED_EXTENSIONS else None


def with_extension(origin: str, links: list[str], longest: int, extensions: Container[str]) -> list[str]:
    """Those of an origin's URLs that have such an extension, of at most `longest` letters; of those with a query, not
    all."""
    if "".join(links).count(".") == len(links) * origin.count("."):
        return []  # no path has a dot
    ends = {url[url.rfind(".", -longest - 1) + 1 :] for url in links}  # of most pages one, `html`
    skipped = tuple([f".{end}" for end in ends if end.lower() in extensions])
    return [url for url in links if url.endswith(skipped)] if skipped else []


def by_origin(links: Iterable[str]) -> dict[str, list[str]]:
    """Canonical URLs by their origins (with the slash that follows), in order; most of a page's are of one."""
    groups: dict[str, list[str]] = {}
    start, group = "\0", list[str]()
    for url in links:
        if not url.startswith(start):
            start = url[: url.index("/", 8) + 1]
            group = groups.setdefault(start, [])
        group.append(url)
    return groups


def suffix_list_version() -> str:
    """The version of the public suffix list in use; a crawl records it (spec §12.15)."""
    if (told := getattr(publicsuffixlist, "__version__", None)) is not None:
        return str(told)
    from importlib.metadata import version  # slow, and the same

    return version("publicsuffixlist")


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False)


@lru_cache(maxsize=1)
def _rules() -> frozenset[str]:
    """The list's rules, but for those of international names: to encode these would take longer than all the rest."""
    rules = re.findall(r"^(?!//)[\x21-\x7e]+(?!\S)", Path(PSLFILE).read_text("utf-8").lower(), re.MULTILINE)
    return frozenset(rules)


@lru_cache(maxsize=1)
def _plain_suffixes() -> frozenset[str]:
    """The suffixes of one label under which not every name is a suffix in turn (`*.ck`)."""
    rules = _rules()
    return frozenset(rule for rule in rules if "." not in rule and f"*.{rule}" not in rules)


@lru_cache(maxsize=1)
def _longer_suffixes() -> frozenset[str]:
    """The last two labels of every rule that has more than one."""
    rules = _rules()
    return frozenset(".".join(rule.lstrip("!").split(".")[-2:]) for rule in rules if "." in rule)


@lru_cache(maxsize=1)
def _registries() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False, only_icann=True)


def _is_address(host: str) -> bool:
    if not host[-1:].isdigit():
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=65536)
def _origin(text: str) -> str | None:
    """The canonical `scheme://host[:port]` of such a text, or None."""
    try:
        return canonical(text + "/")[:-1]
    except BadUrl:
        return None


@lru_cache(maxsize=1024)
def _canonical_origin(base: str) -> str | None:
    """The `scheme://host[:port]` at the beginning of a URL, if it is canonical already and has no credentials."""
    split = _ORIGIN(base)
    return split[1] if split and _origin(split[1]) == split[1] else None


def _query_in(href: str, encoding: str) -> str:
    """The reference with its query percent-encoded in the page's encoding, as browsers send it."""
    path, mark, rest = href.partition("?")
    query, hash_mark, fragment = rest.partition("#")
    if query.isascii() or "#" in path:
        return href
    try:
        encoded = query.encode(encoding, "weft-query")
    except LookupError:
        return href
    safe = quote_from_bytes(encoded, safe="!$%&()*+,-./:;=?@_~[]")
    return path + mark + safe + hash_mark + fragment


def _as_references(error: UnicodeError) -> tuple[str, int]:
    """Unencodable characters as escaped character references (WHATWG URL, percent-encode after encoding)."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(f"%26%23{ord(character)}%3B" for character in missing), error.end


codecs.register_error("weft-query", _as_references)


def _why_not(text: str) -> str:
    """The error in a text that is not a URL, for the message."""
    if not text.strip():
        return "the URL is empty"
    if "://" not in text:
        return "not a URL: write it whole, like https://example.com/"
    authority = re.split(r"[/?#\\]", text.split("://", 1)[1], maxsplit=1)[0].rpartition("@")[2]
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    if not authority or (colon and not host):
        return "the host is missing"
    if colon and (not port.isdigit() or int(port) > 65535):
        return f"port {port!r} is not a number from 0 to 65535"
    host = host or authority
    if bad := _UNSEEN(host):
        return f"the host {host!r} has {'a space' if bad[0] == ' ' else 'the control character ' + repr(bad[0])} in it"
    return f"the host {host!r} is not a valid name or address"
