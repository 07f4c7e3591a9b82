"""The traps of a messy web: endless spaces of URLs, each under its own prefix.

    calendar   /calendar/YYYY/MM                       next and previous month forever
    session    /cart/pN?sid=<32 hex>, /store/pN;jsessionid=<32 hex>     every link has a new session id
    deeper     /loop/a/b/a/b/…                         relative links that only lead deeper
    listing    /list?color=…&size=…&sort=…&page=…      every combination, in several orders

A trap page links to more of its trap, and to ordinary pages that are linked elsewhere, too: no real page is reachable
through a trap only.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from weft.testing.content.resources import Reference, Resource, mix
from weft.testing.content.sites import SyntheticSite

COLORS = ("red", "green", "blue", "black", "white", "amber", "teal", "rose")
SIZES = ("xs", "s", "m", "l", "xl", "xxl")
SORTS = ("price", "name", "date", "rating", "stock")
LIST_PAGES = 50
ITEMS = 12

# The URLs that a crawl may request in each trap: regular expressions for path and query, matched in full.
PATTERNS: dict[str, tuple[str, ...]] = {
    "calendar": (r"/calendar/\d{1,4}/\d{2}",),
    "session": (r"/cart/p\d+(\?sid=[0-9a-f]{32})?", r"/store/p\d+(;jsessionid=[0-9a-f]{32})?"),
    "deeper": (r"/loop/((a|b)/)*",),
    "listing": (r"/list(\?[a-z=&0-9]*)?",),
}
ENTRANCES: dict[str, tuple[str, ...]] = {
    "calendar": ("/calendar/2031/05",),
    "session": (
        "/cart/p1?sid=0123456789abcdef0123456789abcdef",
        "/store/p1;jsessionid=fedcba9876543210fedcba9876543210",
    ),
    "deeper": ("/loop/",),
    "listing": ("/list?color=red&size=m&sort=price&page=1",),
}
_COMPILED = {kind: [re.compile(pattern) for pattern in patterns] for kind, patterns in PATTERNS.items()}


def entrances(site: SyntheticSite) -> list[Reference]:
    """The links into a site's traps."""
    paths = [path for kind in site.traps for path in ENTRANCES[kind]]
    return [Reference(path.replace("&", "&amp;"), site.origin + path) for path in paths]


def find(site: SyntheticSite, path: str) -> Resource | None:
    """The trap page at a path; None if the path is not in a trap."""
    for kind in site.traps:
        if any(pattern.fullmatch(path) for pattern in _COMPILED[kind]):
            links = _BUILDERS[kind](site, path)
            if links is None:
                return None
            return Resource(
                path,
                kind=f"trap-{kind}",
                references=[*links, *_links_out(site)],
                language=site.language.code,
                title=f"Trap {path}",
                key=mix(site.key, *path.encode()),
                trap=True,
            )
    return None


def _links_out(site: SyntheticSite) -> list[Reference]:
    return [Reference(path.replace("&", "&amp;"), site.origin + path) for path in site.paths[:3]]


def _trap_link(site: SyntheticSite, path: str) -> Reference:
    return Reference(path.replace("&", "&amp;"), site.origin + path)


def _calendar_links(site: SyntheticSite, path: str) -> list[Reference] | None:
    _, _, year_text, month_text = path.split("/")
    year, month = int(year_text), int(month_text)
    if not (1 <= year <= 9999 and 1 <= month <= 12):
        return None
    months = [year * 12 + month - 1 + step for step in (1, -1)]
    return [_trap_link(site, f"/calendar/{at // 12}/{at % 12 + 1:02d}") for at in months if 12 <= at < 120000]


def _session_links(site: SyntheticSite, path: str) -> list[Reference]:
    links = []
    for item in range(1, ITEMS + 1):
        # deterministic: derived from the path of the page, which itself contains an id
        session_id = f"{mix(site.key, item, *path.encode()):016x}{mix(site.key, item, 7, *path.encode()):016x}"
        tail = f"p{item};jsessionid={session_id}" if path.startswith("/store/") else f"p{item}?sid={session_id}"
        links.append(_trap_link(site, f"{path[: path.index('/p') + 1]}{tail}"))
    return links


def _deeper_links(site: SyntheticSite, path: str) -> list[Reference]:
    return [Reference(f"{step}/", f"{site.origin}{path}{step}/") for step in ("a", "b")]


def _listing_links(site: SyntheticSite, path: str) -> list[Reference]:
    values = {"color": "red", "size": "m", "sort": "price", "page": "1", **dict(parse_qsl(path.partition("?")[2]))}
    choices = {"color": COLORS, "size": SIZES, "sort": SORTS}
    links = []
    for name, options in choices.items():
        for option in options:
            changed = {**values, name: option}
            order = ("page", "sort", "size", "color") if option == options[-1] else ("color", "size", "sort", "page")
            links.append(_trap_link(site, "/list?" + "&".join(f"{key}={changed[key]}" for key in order)))
    page = int(values["page"]) if values["page"].isdigit() else 1
    following = {**values, "page": str(page % LIST_PAGES + 1)}
    return [*links, _trap_link(site, "/list?" + "&".join(f"{key}={following[key]}" for key in choices | {"page": ()}))]


_BUILDERS = {"calendar": _calendar_links, "session": _session_links, "deeper": _deeper_links, "listing": _listing_links}
