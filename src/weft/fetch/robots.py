"""Parses robots.txt and decides what an agent may fetch: RFC 9309, as interpreted by Google's open-source parser.

`Robots` is one file: the (cut) body it was parsed from, and one compiled `RobotsRules` for each agent, made on first
use. A cache may keep `robots.body` and parse it again, or keep only `robots.for_agent(token)`.

Three things must stay true. Every input parses: there are no errors, only lines that are ignored. Memory is linear in
the body, and the body is at most 500 KiB. A check costs a binary search plus the wildcard rules whose literal head is
a prefix of the path; a wildcard matches in one pass, without backtracking, so a hostile one only costs its length.

Where Google and the RFC differ, Google is followed: `%62` in a rule is not decoded to `b`. Two additions of ours:
`/robots.txt` itself is always allowed (RFC 9309 §2.2.2), and escapes in a URL compare without regard to the case of
their hex digits, as RFC 3986 has it, because canonical URLs keep `%c3` as the page wrote it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import ClassVar, NamedTuple

MAX_BODY_BYTES = 500 * 1024  # RFC 9309 §2.5: what a crawler must at least read is also all that we read
MAX_LINE_BYTES = 2083 * 8 - 1  # what follows on a longer line is ignored
MAX_AGENTS_CACHED = 16
FEW_GLOBS = 64  # up to this number a linear search is faster than an index
FEW_RULES = 16  # up to this number they are looked for in all URLs at once, however few those are
GRAM = 3

_AGENT, _ALLOW, _DISALLOW, _SITEMAP, _DELAY = range(5)

# Prefixes of keys: what follows them is ignored. Common misspellings are accepted.
_KEYS: tuple[tuple[int, tuple[bytes, ...]], ...] = (
    (_AGENT, (b"user-agent", b"useragent", b"user agent")),
    (_ALLOW, (b"allow",)),
    (_DISALLOW, (b"disallow", b"disalow", b"dissallow", b"dissalow", b"disallaw", b"diasllow")),
    (_SITEMAP, (b"sitemap", b"site-map")),
    (_DELAY, (b"crawl-delay", b"crawldelay", b"crawl delay")),
)
_KNOWN = {name: kind for kind, names in _KEYS for name in names}

_BOM = b"\xef\xbb\xbf"
_TWO_WORDS = re.compile(rb"([^ \t]+)[ \t]+([^ \t]+)")
_AFTER_NUL = re.compile(rb"\0[^\r\n]*")
_TOKEN = re.compile(r"[A-Za-z_-]*")
_ESCAPABLE = re.compile(rb"%[0-9A-Fa-f]{2}|[\x80-\xff]")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_NUMBER = re.compile(rb"\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}")
# Scheme and authority are skipped, the fragment is left off; what remains starts with `/`, `?` or `;`.
_PATH = re.compile(r"(?://)?(?:[^/?;#]*?://)?[^/?;#]*([/?;][^#]*)?")

_LINE_BITS = 20
_LINE_MASK = (1 << _LINE_BITS) - 1


class RobotsVerdict(NamedTuple):
    """Whether a URL may be fetched, and the deciding rule; None: no rule of the file matches."""

    allowed: bool
    rule: str | None = None
    line: int | None = None


class Glob(NamedTuple):
    """A pattern with a `*`, split: the pieces that must follow its literal head, in order."""

    rank: int
    need: str  # the longest piece: a path without it cannot match
    pieces: tuple[str, ...]
    last: str | None  # with a final `$`: the required end of the path
    pattern: str


def product_token(user_agent: str) -> str:
    """`Weft/0.1 (+mail)` -> `Weft`: the name that robots.txt groups are looked up by."""
    return _TOKEN.match(user_agent)[0]  # type: ignore[index]  # the empty token always matches


class RobotsRules:
    """The rules of one origin for one agent. Immutable; keeps nothing of the file but its rules.

    Rules are one sorted list of literal heads, each linked to its longest proper prefix in the list. The greatest head
    that is not greater than a path descends from every head that is a prefix of that path, so the links alone lead to
    all rules that may match. A rank is `(pattern length, allows, earlier line)` in one integer: the greatest wins.
    """

    __slots__ = ("_exact", "_globs", "_heads", "_literals", "_needs", "_parents", "_starts", "_verdicts", "crawl_delay")

    def __init__(self, rules: list[tuple[str, bool, int]], crawl_delay: float | None = None) -> None:
        self.crawl_delay = crawl_delay
        self._exact: dict[str, int] = {}
        self._verdicts: dict[int, RobotsVerdict] = {}  # a cache by rank
        literals: dict[str, int] = {}
        globs: dict[str, list[Glob]] = {}
        self._starts: set[str] = set()  # a path that is forbidden begins with one of these,
        self._needs: set[str] = set()  # or contains one of these
        for pattern, allow, line in rules:
            rank = _rank(len(pattern), allow, line)
            if "*" in pattern.rstrip("*"):
                head, glob = _glob(pattern, rank)
                globs.setdefault(head, []).append(glob)
                if not allow:
                    (self._needs if glob.need else self._starts).add(glob.need or head)
                continue
            if not allow:
                self._starts.add(pattern.rstrip("*").removesuffix("$"))
            if pattern.endswith("$"):
                self._exact[pattern[:-1]] = max(rank, self._exact.get(pattern[:-1], 0))
            else:
                literal = pattern.rstrip("*")
                literals[literal] = max(rank, literals.get(literal, 0))
        self._heads = sorted(literals.keys() | globs.keys())
        self._literals = [literals.get(head, 0) for head in self._heads]
        self._parents = _parents(self._heads)
        self._globs = {at: _buckets(globs[head]) for at, head in enumerate(self._heads) if head in globs}

    def allows(self, url: str) -> bool:
        """Whether the URL may be fetched."""
        path = _path(url)
        rank = self._best(path)
        return not rank or bool(rank >> _LINE_BITS & 1) or path == "/robots.txt"

    def forbidden(self, origin: str, urls: Sequence[str]) -> list[str]:
        """Those of an origin's canonical URLs that may not be fetched.

        Most linked URLs are allowed: one search per rule in all URLs at once usually proves that all are.
        """
        if len(self._starts) + len(self._needs) <= max(FEW_RULES, len(urls)) and not self._concerns(origin, urls):
            return []
        return [url for url in urls if not self.allows(url)]

    def _concerns(self, origin: str, urls: Sequence[str]) -> bool:
        """Whether a rule that forbids something may apply to one of these URLs."""
        text = "\n".join(urls)
        for need in self._needs:
            if need in text:
                return True
        for start in self._starts:
            if origin + start in text:
                return True
        return "%" in text

    def verdict(self, url: str) -> RobotsVerdict:
        """Whether the URL may be fetched, and by which rule."""
        path = _path(url)
        rank = self._best(path)
        if not rank or path == "/robots.txt":
            return RobotsVerdict(allowed=True)
        verdict = self._verdicts.get(rank)
        if verdict is None:
            allowed = bool(rank >> _LINE_BITS & 1)
            text = f"{'Allow' if allowed else 'Disallow'}: {self._pattern(rank)}"
            verdict = self._verdicts[rank] = RobotsVerdict(allowed, text, _LINE_MASK - (rank & _LINE_MASK))
        return verdict

    def _best(self, path: str) -> int:
        """The rank of the rule that decides; 0 when none matches."""
        heads, literals, globs = self._heads, self._literals, self._globs
        best = self._exact.get(path, 0)
        at = bisect_right(heads, path) - 1
        while at >= 0:
            if path.startswith(heads[at]):
                if literals[at] > best:
                    best = literals[at]
                if at in globs:
                    best = _best_of_buckets(globs[at], path, len(heads[at]), best)
            at = self._parents[at]
        return best

    def _pattern(self, rank: int) -> str:
        """The (escaped) pattern of the rule with this rank."""
        exact = (f"{path}$" for path, found in self._exact.items() if found == rank)
        literals = (self._heads[at] for at, found in enumerate(self._literals) if found == rank)
        buckets = chain.from_iterable(several.values() for several in self._globs.values())
        globs = (glob.pattern for bucket in buckets for glob in bucket if glob.rank == rank)
        return next(chain(exact, literals, globs)).ljust(rank >> _LINE_BITS + 1, "*")


class Robots:
    """One robots.txt. `ALLOW_ALL` and `DISALLOW_ALL` stand for a missing file and one that cannot be fetched."""

    __slots__ = ("_rules", "_sitemaps", "body", "reason")

    ALLOW_ALL: ClassVar[Robots]
    DISALLOW_ALL: ClassVar[Robots]

    def __init__(self, body: bytes, reason: str | None = None) -> None:
        self.body = body
        self.reason = reason
        self._rules: dict[str, RobotsRules] = {}
        self._sitemaps: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, body: bytes) -> Robots:
        """Parses any bytes. What is beyond 500 KiB is cut off at a line's end, so that no rule is cut in two."""
        if len(body) > MAX_BODY_BYTES:
            # A line that began before this is read as far as it is here.
            within = MAX_BODY_BYTES - MAX_LINE_BYTES, MAX_BODY_BYTES
            end = max(body.rfind(b"\n", *within), body.rfind(b"\r", *within)) + 1
            body = body[: end or MAX_BODY_BYTES]
        return cls(bytes(body))

    def for_agent(self, agent: str) -> RobotsRules:
        """The rules for this agent, compiled at the first call and kept."""
        rules = self._rules.get(agent)
        if rules is None:
            if len(self._rules) >= MAX_AGENTS_CACHED:
                self._rules.clear()
            rules = self._rules[agent] = _rules_for(agent, self.body)
        return rules

    def allows(self, agent: str, url: str) -> bool:
        """Whether the agent may fetch the URL (canonical, escaped). The agent is a product token: see `product_token`.

        A text that is not a token (`Foo/1.2`, `Foo Bar`) matches no group and gets the rules for `*`.
        """
        return self.for_agent(agent).allows(url)

    def verdict(self, agent: str, url: str) -> RobotsVerdict:
        """As `allows`, with the rule and its line, or with the reason why there is no file."""
        verdict = self.for_agent(agent).verdict(url)
        return verdict if self.reason is None else RobotsVerdict(verdict.allowed, self.reason)

    def crawl_delay(self, agent: str) -> float | None:
        """The longest Crawl-delay for this agent, in seconds."""
        return self.for_agent(agent).crawl_delay

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The Sitemap lines, as they are written, each once, in order."""
        if self._sitemaps is None:
            found = (value.decode("utf-8", "replace") for kind, value, _ in _directives(self.body) if kind == _SITEMAP)
            self._sitemaps = tuple(dict.fromkeys(filter(None, found)))
        return self._sitemaps


Robots.ALLOW_ALL = Robots(b"", "robots.txt is missing (4xx): everything is allowed")
Robots.DISALLOW_ALL = Robots(b"User-agent: *\nDisallow: /\n", "robots.txt cannot be reached: nothing is allowed")


def _directives(body: bytes) -> Iterator[tuple[int, bytes, int]]:
    """The recognised lines, as (kind, value, line number)."""
    if b"\0" in body:
        body = _AFTER_NUL.sub(b"", body)
    lines = _without_bom(body).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE_BYTES:
            line = line[:MAX_LINE_BYTES]
        if b"#" in line:
            line = line[: line.index(b"#")]
        key, colon, value = line.partition(b":")
        if not colon:
            # The colon is often missing: exactly two words are taken as key and value.
            words = _TWO_WORDS.fullmatch(line.strip())
            if words is None:
                continue
            key, value = words.groups()
        key = key.strip().lower()
        kind = _KNOWN.get(key)
        if kind is None:
            kind = next((kind for kind, names in _KEYS if key.startswith(names)), None)
        if kind is not None:
            yield kind, value.strip(), number


def _without_bom(body: bytes) -> bytes:
    """The body without a byte order mark, or the beginning of one."""
    for length in (3, 2, 1):
        if body.startswith(_BOM[:length]):
            return body[length:]
    return body


def _rules_for(agent: str, body: bytes) -> RobotsRules:
    """All groups that name the agent, merged; where none does, all groups for `*`.

    Only Allow and Disallow end a run of User-agent lines. A Crawl-delay applies to the agents named so far: formally it
    does not end the run either, but authors do not mean it for agents further down.
    """
    wanted, named = agent.lower(), False
    specific = general = closed = False
    rules: tuple[list[tuple[str, bool, int]], list[tuple[str, bool, int]]] = ([], [])
    delays: tuple[list[float], list[float]] = ([], [])
    for kind, value, line in _directives(body):
        if kind == _AGENT:
            if closed:
                specific = general = closed = False
            if value == b"*" or (value[:1] == b"*" and value[1:2].isspace()):
                general = True
            elif product_token(value.decode("latin-1")).lower() == wanted:
                named = specific = True
        elif kind in (_ALLOW, _DISALLOW):
            closed = True
            if value and (specific or general):
                rules[not specific].extend(_rules_of(_escaped(value), kind == _ALLOW, line))
        elif kind == _DELAY and (specific or general) and (number := _NUMBER.match(value)):
            delays[not specific].append(float(number[0]))
    return RobotsRules(rules[not named], max(delays[not named], default=None))


def _rules_of(pattern: str, allow: bool, line: int) -> list[tuple[str, bool, int]]:
    """The rules of one line; if a directory's index page is allowed, so is the directory itself."""
    slash = pattern.rfind("/") + 1
    if allow and pattern.startswith("index.htm", slash) and slash:
        return [(pattern, allow, line), (pattern[:slash] + "$", allow, line)]
    return [(pattern, allow, line)]


def _escaped(value: bytes) -> str:
    """Non-ASCII bytes as `%XX`, escapes in capitals, everything else unchanged."""
    if b"%" in value or not value.isascii():
        value = _ESCAPABLE.sub(lambda m: m[0].upper() if len(m[0]) == 3 else b"%%%02X" % m[0][0], value)
    return value.decode("ascii")


def _path(url: str) -> str:
    """Path, parameters and query of a URL; `/` when there is none."""
    path = _PATH.match(url)[1]  # type: ignore[index]  # every text matches
    if not path:
        return "/"
    if "%" in path:
        path = _ESCAPE.sub(lambda m: m[0].upper(), path)
    return path if path[0] == "/" else "/" + path


def _rank(length: int, allow: bool, line: int) -> int:
    """Longer beats shorter, then Allow beats Disallow, then the earlier line is the one to quote."""
    return (length << 1 | allow) << _LINE_BITS | (_LINE_MASK - line)


def _glob(pattern: str, rank: int) -> tuple[str, Glob]:
    """A pattern with a `*` inside: its literal head, and its other pieces."""
    anchored = pattern.endswith("$")
    head, *rest = (pattern[:-1] if anchored else pattern).split("*")
    last = rest.pop() if anchored else None
    pieces = tuple(filter(None, rest))
    return head, Glob(rank, max((*pieces, last or ""), key=len), pieces, last, pattern)


def _buckets(globs: list[Glob]) -> dict[str, tuple[Glob, ...]]:
    """Each pattern once, the highest rank first. Many patterns are indexed by the start of their longest piece.

    The bucket "" has those that every path is tried against.
    """
    best = {glob.pattern: glob for glob in sorted(globs)}
    buckets: dict[str, list[Glob]] = {"": []}
    for glob in sorted(best.values(), reverse=True):
        parted = len(best) > FEW_GLOBS and len(glob.need) >= GRAM
        buckets.setdefault(glob.need[:GRAM] if parted else "", []).append(glob)
    return {gram: tuple(bucket) for gram, bucket in buckets.items()}


def _parents(heads: list[str]) -> list[int]:
    """For each of the sorted heads the place of its longest proper prefix among them, or -1."""
    parents: list[int] = []
    open_: list[int] = []
    for at, head in enumerate(heads):
        while open_ and not head.startswith(heads[open_[-1]]):
            open_.pop()
        parents.append(open_[-1] if open_ else -1)
        open_.append(at)
    return parents


def _best_of_buckets(buckets: dict[str, tuple[Glob, ...]], path: str, start: int, best: int) -> int:
    """The greatest rank above `best` of a pattern that matches the path from `start` on; else `best`."""
    best = _best_glob(buckets[""], path, start, best)
    if len(buckets) > 1:
        for gram in {path[at : at + GRAM] for at in range(start, len(path) - GRAM + 1)}:
            if gram in buckets:
                best = _best_glob(buckets[gram], path, start, best)
    return best


def _best_glob(globs: tuple[Glob, ...], path: str, start: int, best: int) -> int:
    """As `_best_of_buckets`, for one bucket, which is sorted: the first match is the best."""
    for rank, need, pieces, last, _ in globs:
        if rank <= best:
            break
        if need in path and _matches(path, start, pieces, last):
            return rank
    return best


def _matches(path: str, start: int, pieces: tuple[str, ...], last: str | None) -> bool:
    """Matches each piece at its first occurrence after the one before: an early match never hurts later pieces."""
    for piece in pieces:
        start = path.find(piece, start)
        if start < 0:
            return False
        start += len(piece)
    return last is None or (path.endswith(last) and len(path) - len(last) >= start)
