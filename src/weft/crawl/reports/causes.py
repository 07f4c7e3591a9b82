"""Explains the status and error of a row to a user who expected a page, with a hint what to do. Pure functions.

Settings are named in backticks, as in Python; the command line converts them to flags (`cli.messages`).
"""

from __future__ import annotations

from typing import NamedTuple

from weft.config import Config
from weft.fetch.contract import NOT_TLS
from weft.records import TOO_MANY_REDIRECTS, Reason


class CauseMeaning(NamedTuple):
    """A cause: its name, an explanation, and a hint."""

    cause: str
    message: str
    hint: str = ""
    may_pass: bool = False  # retrying failed URLs on resume requests it once more
    settings: str = ""  # settings that a retry needs


_ADVICE_RETRY_LATER = "Later: `resume=True` with `retry_failed=True`"
# Where credentials are sent: a page behind a redirect to another host gets none.
_ADVICE_NAMED_HEADERS = (
    "`headers={'HOST:NAME': 'VALUE'}`; without HOST it goes to the seeds' origins alone, never to another host"
)
_ADVICE_CHECK_PROXY = (
    "Check host, user and password; over http a login goes to a seed's origin alone, unless it names http://HOST"
)
_ADVICE_SCOPE_RULES = "See `scope`, `include`, `exclude` and `exclude_file`"
# error or reason → (explanation, hint)
_MEANINGS: dict[str, tuple[str, str]] = {
    Reason.ROBOTS: ("robots.txt forbids it", "weft explain names the rule and its line"),
    Reason.ROBOTS_UNREACHABLE: ("its robots.txt could not be read, so no page may be requested", _ADVICE_RETRY_LATER),
    Reason.BREAKER: ("its site failed again and again, and was given up", _ADVICE_RETRY_LATER),
    Reason.RETRY_AFTER: ("its site asked to wait longer than this crawl does", "See `max_retry_after_seconds`"),
    Reason.ADDRESS: ("its address is private, loopback or reserved", "`allow_private=True` allows such addresses"),
    Reason.PATTERN: ("the patterns of `include` and `exclude` leave it out", "See docs/crawl.md on patterns"),
    Reason.EXCLUDED: ("its domain is in `exclude_file`", ""),
    Reason.SCOPE: ("it is outside the crawl's scope", "`scope='any'`, or `offsite_hops`, includes it"),
    Reason.CONTENT_TYPE: ("its content type is none of those in `accept`", "`accept='*/*'` takes everything"),
    Reason.UNKNOWN_OUTCOME: (
        "the request may have been sent, and its answer is not known",
        "Check the site, and send the request again by hand",
    ),
    Reason.LOST_REQUEST: ("the stored request is damaged", "Start over with `fresh=True`"),
    "callback_error": ("the spider's callback failed", "weft errors says why"),
    Reason.BUDGET: ("its domain has had its `max_pages_per_domain`", ""),
    "dns": ("its host name could not be resolved", "Check its spelling, and this machine's network"),
    "connect": ("nothing accepts a connection there", "Check host and port, and whether the server runs"),
    "tls": ("its TLS certificate was not accepted", "`tls_verify=False` takes any certificate"),
    "timeout": ("it did not answer in time", "`connect_timeout`, `read_timeout` and `total_timeout` give it longer"),
    "reset": ("it closed the connection", _ADVICE_RETRY_LATER),
    "proxy": ("no proxy could reach it", "weft proxies test URL shows the result for each"),
    "hand": (
        "no worker could fetch it",
        "weft cluster status shows the workers; " + _ADVICE_RETRY_LATER[0].lower() + _ADVICE_RETRY_LATER[1:],
    ),
    "truncated": ("its answers end too early", _ADVICE_RETRY_LATER),
    "protocol": ("its answer is not valid HTTP", ""),
    "too_large": ("it is larger than `max_body_bytes`", "Raise it to include the page"),
    "headers_too_large": ("the head of its answer has no end", ""),
    TOO_MANY_REDIRECTS: ("its redirects go in a circle, or on for too long", "`max_redirects` follows longer chains"),
    "noindex": ("it asks not to be stored (noindex)", ""),
    "parse_crash": ("parsing it crashed", ""),
}
_MAY_PASS = frozenset(
    {Reason.ROBOTS_UNREACHABLE, Reason.BREAKER, Reason.RETRY_AFTER, Reason.ADDRESS, "dns", "connect", "timeout",
     "reset", "truncated", "protocol", "proxy", "hand"}
)  # fmt: skip
_HELPFUL_SETTINGS = {
    Reason.RETRY_AFTER: "`max_retry_after_seconds=3600`",
    Reason.ADDRESS: "`allow_private=True`",
    Reason.SCOPE: "`scope='any'`",
    Reason.CONTENT_TYPE: "`accept='*/*'`",
    "tls": "`tls_verify=False`",
    "too_large": "`max_body_bytes=100000000`",
    TOO_MANY_REDIRECTS: "`max_redirects=20`",
    "http_401": "`auth={'HOST': 'USER:PASSWORD'}`",
    "no-text": "`store='warc'`",
}
_MEANINGS_BY_STATUS: dict[int, tuple[str, str]] = {
    401: ("it asks for a login", f"Give one: `auth={{'HOST': 'USER:PASSWORD'}}`, or {_ADVICE_NAMED_HEADERS}"),
    403: (
        "the site refuses access to this crawler",
        f"Ask its owner; see `user_agent_template`. If it wants a session or a key: {_ADVICE_NAMED_HEADERS}",
    ),
    404: ("there is no such page", "Check the URL"),
    410: ("the page is gone", "Check the URL"),
    407: ("a proxy asks for a login", ""),
    429: ("the site asks for fewer requests", "Try later, with a longer `delay`"),
    451: ("the site may not show it, for legal reasons", ""),
}
_MEANINGS_OF_LACKS = {
    "javascript": ("the page is filled in by JavaScript in a browser", "Render pages: `render='auto'`"),
    "login": ("the page is a login form", f"The cookie of a session can be sent: {_ADVICE_NAMED_HEADERS}"),
    "blank": ("the page is empty", ""),
    "no-text": ("it has no text, and `store='text'` stores only text", "`store='warc'` stores pages as received"),
}  # fmt: skip


def meaning_of(status: int, error: str, config: Config) -> CauseMeaning | None:
    """Why a row is not a page; None for a page, and for a redirect that was followed."""
    if error.startswith("redirect to "):
        reason = error.removeprefix("redirect to ")
        message, hint = _MEANINGS.get(reason, (reason, _ADVICE_SCOPE_RULES))
        led = f"it redirects, and for the target: {message}"
        return CauseMeaning(f"redirect-{reason}", led, hint, settings=_HELPFUL_SETTINGS.get(reason, ""))
    kind, _, detail = error.partition(": ")
    if kind == Reason.ROBOTS_UNREACHABLE and detail:
        return _meaning_of_robots(detail)
    if kind in _MEANINGS and not (status >= 400 and kind not in (Reason.RETRY_AFTER,)):
        meaning = _meaning_of_kind(kind, detail, may_pass=kind in _MAY_PASS)
        if kind == Reason.ROBOTS and config.fetch.allow_private and not config.politeness.ignore_robots:
            return meaning._replace(hint=f"{meaning.hint}; for a server of your own there is `ignore_robots=True`")
        return meaning
    if status >= 400:
        return _meaning_of_status(status, config)
    return CauseMeaning(kind, f"it failed ({error})") if not status else None


def meaning_of_lack(lack: str) -> CauseMeaning:
    """Why a stored page has no content."""
    return CauseMeaning(lack, *_MEANINGS_OF_LACKS[lack], settings=_HELPFUL_SETTINGS.get(lack, ""))


def unmatched_words(flag: str, pattern: str) -> str:
    """A pattern as a setting."""
    return f"`{flag}={pattern!r}`"


def _meaning_of_robots(detail: str) -> CauseMeaning:
    """The meaning of a robots.txt that could not be fetched. It is requested first, so an unreachable site ends
    here."""
    kind, _, more = detail.partition(": ")
    return (
        _meaning_of_kind(kind, more) if kind in _MEANINGS else _meaning_of_kind(str(Reason.ROBOTS_UNREACHABLE), detail)
    )


def _meaning_of_kind(kind: str, detail: str, *, may_pass: bool = True) -> CauseMeaning:
    message, hint = _MEANINGS[kind]
    if kind == "tls" and detail and "certificate" not in detail:
        is_plain = detail == NOT_TLS
        message = "no TLS connection could be made"
        return CauseMeaning(kind, f"{message} ({detail})", "Write http:// if the site has no https" if is_plain else "")
    return CauseMeaning(
        kind, f"{message} ({detail})" if detail else message, hint, may_pass, _HELPFUL_SETTINGS.get(kind, "")
    )


def _meaning_of_status(status: int, config: Config) -> CauseMeaning:
    message, hint = _MEANINGS_BY_STATUS.get(
        status, ("the site has a fault", _ADVICE_RETRY_LATER) if status >= 500 else ("it is refused", "")
    )
    if status == 401 and config.fetch.auth:
        message, hint = "it asks for a login, and `auth` has none that it accepts", _ADVICE_CHECK_PROXY
    cause = f"http_{status}"
    may_pass = status >= 500 or status in (408, 429)
    return CauseMeaning(cause, f"HTTP {status}, {message}", hint, may_pass, _HELPFUL_SETTINGS.get(cause, ""))
