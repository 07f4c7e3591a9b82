"""`includePaths` and `excludePaths`, which are regular expressions there and globs here. Pure.

A pattern is found anywhere in a URL's path there. What of a regular expression a glob can say is translated: texts,
`.`, `.*`, `.+`, `^`, `$`, `[abc]`, `a?` of such, and alternatives. The rest is refused, because the engine must not run
patterns of strangers that can take for ever.
"""

from __future__ import annotations

from re import _constants as sre
from re import _parser as parser
from re import error as RegexError
from typing import Any

MOST_GLOBS = 30  # of one pattern
_START, _END = "\0start", "\0end"  # marks in a translated piece, taken out in the end


class Untranslatable(ValueError):
    """A pattern that no glob says; its text is why."""


def globs(pattern: str, on_full_url: bool) -> list[str]:
    """The globs that match what a pattern does."""
    try:
        parsed = parser.parse(pattern)
    except (RegexError, RecursionError, OverflowError) as error:
        raise Untranslatable(f"is no regular expression: {error}") from None
    tokens, found = list(parsed), list[str]()
    if tokens and tokens[-1][0] in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        # What follows the last match does not matter, so the least number of repeats is as good as any.
        least, _, repeated = tokens.pop()[1]
        tokens += list(repeated) * min(least, 5)
    for piece in _sequence(tokens):
        found += _anchored(piece, on_full_url)
    return list(dict.fromkeys(found))


def _anchored(piece: str, on_full_url: bool) -> list[str]:
    begins, ends = piece.startswith(_START), piece.endswith(_END)
    body = piece.removeprefix(_START).removesuffix(_END)
    if _START in body or _END in body:
        raise Untranslatable("has ^ or $ in its middle")
    tail = "" if ends else "*"
    if on_full_url:
        if begins and body.startswith("/"):
            raise Untranslatable("matches no URL: they begin with their scheme")
        return [_short(body + tail if begins else "*" + body + tail)]
    # A path begins with a slash, and so does a glob of one.
    at_start = [body + tail] if body.startswith("/") else ["/" + body + tail] if begins and body[:1] == "*" else []
    anywhere = [] if begins else ["/*" + body + tail]
    if not (found := at_start + anywhere):
        raise Untranslatable("matches no path: they begin with a slash")
    return [_short(one) for one in found]


def _short(glob: str) -> str:
    while "**" in glob:
        glob = glob.replace("**", "*")
    return glob


def _sequence(tokens: list[Any]) -> list[str]:
    """Every way to write a sequence of tokens as a glob."""
    found = [""]
    for token in tokens:
        pieces = _token(*token)
        found = [before + piece for before in found for piece in pieces]
        if len(found) > MOST_GLOBS:
            raise Untranslatable(f"has more than {MOST_GLOBS} alternatives")
    return found


def _token(kind: Any, value: Any) -> list[str]:
    if kind is sre.LITERAL:
        return [_literal(chr(value))]
    if kind is sre.NOT_LITERAL:
        return [_one_of([(sre.NEGATE, None), (sre.LITERAL, value)])]
    if kind is sre.ANY:
        return ["?"]
    if kind is sre.AT and value is sre.AT_BEGINNING:
        return [_START]
    if kind is sre.AT and value is sre.AT_END:
        return [_END]
    if kind is sre.SUBPATTERN:
        return _sequence(list(value[-1]))
    if kind is sre.BRANCH:
        return [piece for branch in value[1] for piece in _sequence(list(branch))]
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return _repeat(*value)
    if kind is sre.IN:
        return [_one_of(value)]
    raise Untranslatable("has a part that no glob says: use texts, '.*', '^', '$' and alternatives")


def _repeat(least: int, most: Any, repeated: Any) -> list[str]:
    inner = list(repeated)
    if most is sre.MAXREPEAT:
        if len(inner) == 1 and inner[0][0] is sre.ANY and least <= 5:
            return ["?" * least + "*"]
        raise Untranslatable("repeats something else than '.': no glob says that")
    if most > 5:
        raise Untranslatable("repeats something more than five times")
    return [piece for count in range(least, most + 1) for piece in _sequence(inner * count)]


def _one_of(members: Any) -> str:
    parts = []
    for kind, value in members:
        if kind is sre.NEGATE:
            parts.append("!")
        elif kind is sre.CATEGORY and value is sre.CATEGORY_DIGIT:
            parts.append("0-9")
        elif kind is sre.LITERAL and chr(value) not in "]^-![":
            parts.append(chr(value))
        elif kind is sre.RANGE and all(chr(one).isalnum() for one in value):
            parts.append(f"{chr(value[0])}-{chr(value[1])}")
        else:
            raise Untranslatable("has a set of characters that no glob says")
    return f"[{''.join(parts)}]"


def _literal(character: str) -> str:
    return f"[{character}]" if character in "*?[" else character
