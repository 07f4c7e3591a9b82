"""The robots.txt files of the synthetic web: their text, how they are served, and their meaning for `weft`.

The meaning (`rules`) is stated beside the text, never parsed from it: the oracle must not share a parser with anyone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

AGENT = "weft"
MOVED_TO = "/robots/real.txt"

Rule = tuple[bool, str]  # (allowed, pattern)


@dataclass(frozen=True)
class ServedRobots:
    """One origin's robots.txt.

    `answer` is ok, missing (404: all allowed), dead (always 503: all refused), late (503 for the first `failures`
    requests, then ok) or moved (a redirect to MOVED_TO).
    """

    style: str
    body: bytes = b""
    rules: tuple[Rule, ...] = ()
    crawl_delay_s: float = 0.0
    answer: str = "ok"
    failures: int = 0

    def allows(self, path: str) -> bool:
        """Whether `weft` may request a path (with its query): the longest matching pattern decides, a tie allows."""
        best = (-1, True)
        for allowed, pattern, regex in self._compiled_rules:
            if regex.match(path):
                best = max(best, (len(pattern), allowed))
        return best[1]

    @cached_property
    def _compiled_rules(self) -> list[tuple[bool, str, re.Pattern[str]]]:
        return [(allowed, pattern, compile_pattern(pattern)) for allowed, pattern in self.rules]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A robots.txt pattern as a regular expression: `*` matches any text, a final `$` the end."""
    anchored = pattern.endswith("$")
    parts = [re.escape(part) for part in (pattern[:-1] if anchored else pattern).split("*")]
    return re.compile(".*".join(parts) + ("$" if anchored else ""), re.DOTALL)


_PRIVATE_RULE: Rule = (False, "/private/")

_PLAIN_TEXT = "# keep out of the back office\nUser-agent: *\nDisallow: /private/\n"
_AGENT_GROUP_TEXT = (
    "User-agent: *\nDisallow: /\n\nUser-agent: otherbot\nAllow: /\n\nUser-agent: Weft\nDisallow: /only-weft/ # you\n"
    "Disallow: /private/\n\nUser-agent: thirdbot\nuser-agent: WEFT\ndisallow: /x/secret-1.html$\n"
)
_WILDCARD_TEXT = (
    "User-agent: weftling\nDisallow: /\n\nUser-agent: *\nDisallow: /*/secret-*.html$\nDisallow: /private/\n"
    "Allow: /private/open/\nDisallow: /tie/\nAllow: /tie/\nDisallow:\n"
)
_PERCENT_TEXT = "user-agent: *\ndisallow: /caf%C3%A9/\nDisallow: /naïve/\nDisallow: /private/\nNoindex: /x/\n"
_EXCEPTION_TEXT = (
    "Disallow: /\nUser-agent: otherbot\n\n\nUser-agent: *\nAllow: /private/open/\nDisallow: /private/\n"
    "Disallow: /x/*?\nAllow: /x/*.html?v=1\n"
)


def make(style: str, *, sitemap: str | None, crawl_delay_s: float, failures: int) -> ServedRobots:
    """The robots.txt of a style; names `sitemap` if it is not None."""
    if style == "missing":
        return ServedRobots(style, answer="missing")
    if style == "dead":
        return ServedRobots(style, answer="dead")
    text, rules = _TEXT_BY_STYLE.get(style, (_PLAIN_TEXT, (_PRIVATE_RULE,)))
    if style == "delayed":
        text += f"Crawl-delay: {crawl_delay_s:g}\n"
    if sitemap:
        text += f"\nSitemap: {sitemap}\n"
    if style == "crlf":
        text = text.replace("\n", "\r\n")
    body = text.encode()
    if style == "bom":
        body = b"\xef\xbb\xbf" + body
    answer = {"late": "late", "moved": "moved"}.get(style, "ok")
    return ServedRobots(style, body, rules, crawl_delay_s if style == "delayed" else 0.0, answer, failures)


_TEXT_BY_STYLE: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "walled": ("User-agent: *\nDisallow: /\n", ((False, "/"),)),
    "agent": (_AGENT_GROUP_TEXT, ((False, "/only-weft/"), _PRIVATE_RULE, (False, "/x/secret-1.html$"))),
    "wildcard": (
        _WILDCARD_TEXT,
        ((False, "/*/secret-*.html$"), _PRIVATE_RULE, (True, "/private/open/"), (False, "/tie/"), (True, "/tie/")),
    ),
    "percent": (_PERCENT_TEXT, ((False, "/caf%C3%A9/"), (False, "/na%C3%AFve/"), _PRIVATE_RULE)),
    "exception": (
        _EXCEPTION_TEXT,
        ((True, "/private/open/"), _PRIVATE_RULE, (False, "/x/*?"), (True, "/x/*.html?v=1")),
    ),
    "bom": (_PLAIN_TEXT.removeprefix("# keep out of the back office\n"), (_PRIVATE_RULE,)),
}

# Which style the ordinary host i has: STYLES[i % len]. Host 1 holds the sitemap that no robots.txt names.
CALM_STYLES = ("plain", "plain", "agent", "wildcard", "percent", "missing", "delayed", "plain")
MESSY_STYLES = (
    *("plain", "plain", "agent", "wildcard", "percent", "missing", "delayed", "late"),
    *("crlf", "exception", "moved", "bom", "plain", "wildcard", "delayed", "agent"),
)
