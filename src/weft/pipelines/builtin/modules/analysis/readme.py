"""Checks of a README: what is there for somebody who wants to use the repository. Pure.

Headings are read as Markdown and reStructuredText write them, outside code blocks. What must stay true: the time it
takes grows with the length of the text, whatever that is: lines are cut, and no pattern runs further than it must.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

SHORT_WORDS = 50
MAX_CHARS = 300_000
MAX_LINE_CHARS = 2_000
_FENCE = re.compile(r"^\s{0,3}(```|~~~)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(\S.*)")
_HTML_HEADING = re.compile(r"<h[1-6][^<>]{0,200}>([^<]{1,200})", re.IGNORECASE)
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+])\1{2,}\s*$")
_IMAGE_LINK = re.compile(
    r"!\[[^\[\]]{0,200}\]\(<?([^)\s>]+)|<img[^<>]{1,200}?src=[\"']?([^\"'\s>]+)|^\.\. (?:image|figure):: ?(\S+)",
    re.IGNORECASE,
)
_BADGE_URL = re.compile(r"shields\.io|badge|\.svg(?:\?|$)|travis-ci|codecov|coveralls", re.IGNORECASE)
_TOPIC_HEADINGS = {
    "installation": re.compile(r"install|set ?up|getting started|quick ?start|einrichtung", re.IGNORECASE),
    "usage": re.compile(r"usage|using|how to use|example|getting started|quick ?start|tutorial|command", re.IGNORECASE),
    "configuration": re.compile(r"config|option|setting|parameter", re.IGNORECASE),
    "licence": re.compile(r"licen[cs]e|copyright", re.IGNORECASE),
    "updating": re.compile(r"updat|upgrad|changelog|release", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class ReadmeChecks:
    """The findings about a README. `problems` describes the checks that it fails."""

    file: str
    words: int
    headings: int
    code_blocks: int
    images: tuple[str, ...]
    badges: int
    has: dict[str, bool]
    problems: tuple[str, ...]

    def plain(self) -> dict[str, object]:
        """The checks as a dictionary of plain values."""
        return asdict(self) | {"images": list(self.images), "problems": list(self.problems)}


def checked(file: str, text: str) -> ReadmeChecks:
    """Checks the text of a README; `file` is its name."""
    prose, fences = _without_code(text)
    headings = _find_headings(prose)
    images = [next(filter(None, match.groups())) for line in prose for match in _IMAGE_LINK.finditer(line)]
    badges = sum(1 for image in images if _BADGE_URL.search(image))
    has = {topic: any(pattern.search(heading) for heading in headings) for topic, pattern in _TOPIC_HEADINGS.items()}
    has["title"] = bool(headings)
    has["image"] = len(images) > badges
    has["code"] = fences > 0 or "\n    " in text
    words = len(re.findall(r"\w+", " ".join(prose)))
    pictures = tuple(image for image in images if not _BADGE_URL.search(image))[:50]
    problems = tuple(_problems_of(words, has))
    return ReadmeChecks(file, words, len(headings), fences, pictures, badges, has, problems)


def _problems_of(words: int, has: dict[str, bool]) -> list[str]:
    problems = []
    if words < SHORT_WORDS:
        problems.append(f"it has {words} words" if words else "it is empty")
    if not has["title"]:
        problems.append("it has no heading")
    for topic in ("installation", "usage"):
        if not has[topic]:
            problems.append(f"no section about {topic}")
    if not has["licence"]:
        problems.append("the licence is not mentioned in a heading")
    return problems


def _without_code(text: str) -> tuple[list[str], int]:
    """The lines outside fenced code, and how many fenced blocks there are."""
    prose, fence, count = [], "", 0
    for line in text[:MAX_CHARS].splitlines():
        line = line[:MAX_LINE_CHARS]
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1] == fence else fence
        elif mark:
            fence, count = mark[1], count + 1
        else:
            prose.append(line)
    return prose, count


def _find_headings(lines: list[str]) -> list[str]:
    headings = []
    for above, line in zip(["", *lines], lines, strict=False):
        if heading := _HEADING.match(line):
            headings.append(heading[1].rstrip("# \t"))
        elif _UNDERLINE.match(line) and above.strip() and not _UNDERLINE.match(above):
            headings.append(above.strip())
        headings += _HTML_HEADING.findall(line)
    return headings
