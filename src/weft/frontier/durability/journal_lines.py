"""The lines of admitted items in the journal: `item rank parent hops offsite crawl letter url about`.

The rank is the depth, and the priority where there is one (`ranks`). Behind the URL of a page that is known by a key
(letter `k`) comes the key. Its request is kept elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.frontier.ranks import depth_in, priority_in, rank_of
from weft.records import Found, Purpose

PURPOSE_LETTERS = {Purpose.PAGE: "p", Purpose.SITEMAP: "s"}
_KEYED_PAGE_LETTER = "k"  # a page that is known by a key
_LETTER_PURPOSES = {letter: purpose for purpose, letter in PURPOSE_LETTERS.items()} | {_KEYED_PAGE_LETTER: Purpose.PAGE}


class JournalLine(NamedTuple):
    """The fields of a line."""

    item: int
    crawl: int
    found: Found


def format_line(item: int, crawl: int, found_url: Found) -> str:
    """The line of an item."""
    about = " " + found_url.about if found_url.about else ""
    letter, key = (
        (_KEYED_PAGE_LETTER, " " + found_url.key) if found_url.key else (PURPOSE_LETTERS[found_url.purpose], "")
    )
    rank = rank_of(found_url.depth, found_url.priority)
    numbers = f"{item} {rank} {found_url.parent} {found_url.hops} {found_url.offsite} {crawl}"
    return f"{numbers} {letter} {found_url.url}{key}{about}\n"


def parse_line(line: str) -> JournalLine:
    """Parses a line without its newline."""
    item, number, parent, hops, offsite, crawl, letter, rest = line.split(" ", 7)
    url, _, about = rest.partition(" ")
    rank, key = int(number), ""
    if letter == _KEYED_PAGE_LETTER:
        key, _, about = about.partition(" ")
    found_url = Found(
        url,
        depth_in(rank),
        int(parent),
        int(hops),
        _LETTER_PURPOSES[letter],
        about,
        int(offsite),
        priority_in(rank),
        key,
    )
    return JournalLine(int(item), int(crawl), found_url)
