"""Scans and encodes the lists of a page's links as a whole: the part of admission that runs for every link.

`_link_lists.c` is the same, compiled where there is a compiler at installation
(docs/decisions/0048-compiled-lists-of-links.md). The quick check selects links that the rules must judge one by one. It
may select too many but never too few, and the two versions need not select the same.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import TYPE_CHECKING

from weft import urls
from weft.compiled import counterpart

DATED_PATH = r"/([1-3][0-9]{3})[/-](?:0?[1-9]|1[0-2])(?![0-9])"
_find_years = re.compile(DATED_PATH).findall  # of paths alone, which is ten times as fast


def grouped(
    links: list[str],
    earliest_year: int,
    latest_year: int,
    most_segments: int,
    longest_extension: int,
    extensions: Container[str],
) -> list[tuple[str, list[str], set[str]]]:
    """Canonical URLs by their origins, in order: the origin, its URLs, and which of them must be judged one by one.

    These are all that may be a trap (a segment three times, or more than `most_segments` of them; a year of a calendar
    before or after the given ones; parameters) and all that end in one of the extensions.
    """
    groups = []
    for start, there in urls.by_origin(links).items():
        odd = _possible_traps(there, earliest_year, latest_year, most_segments)
        odd.update(urls.with_extension(start, there, longest_extension, extensions))
        groups.append((start[:-1], there, odd))
    return groups


def _possible_traps(links: list[str], earliest_year: int, latest_year: int, most_segments: int) -> set[str]:
    """Those of canonical URLs that the trap rules may object to: few, and selected by a quick check.

    Their patterns would take longer than all the rest of an admission.
    """
    text = "\n".join(links)
    suspects = {url for url in links if "?" in url or "=" in url} if "?" in text or "=" in text else set[str]()
    for url in links:
        slashes = url.count("/") - 2  # without those of "http://"
        if slashes == 3:  # three segments can only be a trap if all are equal
            segments = url.split("/")
            if segments[-3] == segments[-2]:
                suspects.add(url)
        elif slashes > 3:  # one must be there three times
            segments = url.split("/")
            if slashes > most_segments or len(segments) - len(set(segments)) > 1:
                suspects.add(url)
    if any(not earliest_year <= int(year) <= latest_year for year in _find_years(text)):
        suspects.update(url for url in links if _find_years(url))
    return suspects


def numbered(first: int, middle: str, links: list[str], cut: int) -> bytes:
    """A line for each URL: its number, counted from `first`, the common `middle`, and the URL from `cut` on."""
    return "".join([f"{item}{middle}{url[cut:]}\n" for item, url in enumerate(links, first)]).encode()


if not TYPE_CHECKING and (compiled := counterpart("weft.frontier._link_lists")) is not None:
    grouped, numbered = compiled.grouped, compiled.numbered
