"""The lines of admitted items in the journal: `item rank parent hops offsite crawl letter url about`.

The rank is the depth, and the priority where there is one (`ranks`). Behind the URL of a page that is known by a key
(letter `k`) comes the key. Its request is kept elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.frontier.ranks import depth_in, priority_in, rank_of
from weft.records import Found, Purpose

LETTER = {Purpose.PAGE: "p", Purpose.SITEMAP: "s"}
_BY_KEY = "k"  # a page that is known by a key
_PURPOSE = {letter: purpose for purpose, letter in LETTER.items()} | {_BY_KEY: Purpose.PAGE}


class Line(NamedTuple):
    """The fields of a line."""

    item: int
    crawl: int
    found: Found


def line_of(item: int, crawl: int, found: Found) -> str:
    """The line of an item."""
    about = " " + found.about if found.about else ""
    letter, key = (_BY_KEY, " " + found.key) if found.key else (LETTER[found.purpose], "")
    rank = rank_of(found.depth, found.priority)
    return f"{item} {rank} {found.parent} {found.hops} {found.offsite} {crawl} {letter} {found.url}{key}{about}\n"


def parsed(line: str) -> Line:
    """Parses a line without its newline."""
    item, number, parent, hops, offsite, crawl, letter, rest = line.split(" ", 7)
    url, _, about = rest.partition(" ")
    rank, key = int(number), ""
    if letter == _BY_KEY:
        key, _, about = about.partition(" ")
    found = Found(
        url, depth_in(rank), int(parent), int(hops), _PURPOSE[letter], about, int(offsite), priority_in(rank), key
    )
    return Line(int(item), int(crawl), found)
