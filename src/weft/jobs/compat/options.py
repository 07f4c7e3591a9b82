"""Translates a Firecrawl client's `scrapeOptions` into the options of a task."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from weft.config.contradictions import wrong_action
from weft.extract.formats import check_shape
from weft.extract.rules.field_rules import BadRules, compile_rules
from weft.jobs.compat.fields import BodyFields, bad

MOST_FORMATS = 50
_UNSUPPORTED_ACTIONS = ("scrape",)
MOST_ATTRIBUTES = 100
_FORMATS = ("markdown", "html", "rawHtml", "links", "images")
_NEEDS_LANGUAGE_MODEL = "it needs a language model, which Weft does not have"
_UNSUPPORTED_FORMATS = dict.fromkeys(
    ("summary", "json", "extract", "deterministicJson", "question", "query", "highlights", "product", "menu"),
    _NEEDS_LANGUAGE_MODEL
) | dict.fromkeys(("branding", "audio", "video"), "it is not taken from pages") | {
    "changeTracking": "pages are not compared with earlier ones", "rawBase64": "ask for rawHtml",
}  # fmt: skip
# Clients send skipTlsVerification: true by default; certificates are verified nevertheless.
_HARMLESS_FIELDS = (
    "skipTlsVerification", "timeout", "fastMode", "blockAds", "removeBase64Images", "maxAge", "storeInCache",
    "auditMetadata", "origin", "integration", "safeMode",
)  # fmt: skip
_UNSUPPORTED_FIELDS = {
    "headers": "pages are asked for with the service's own headers",
    "onlyCleanContent": _NEEDS_LANGUAGE_MODEL,
    "profile": "each page has a profile of its own",
    "location": "pages are asked for from where the service is",
    "useMock": "it is for Firecrawl's own tests",
    "minAge": "pages are always fetched, never taken from a cache",
    "lockdown": "pages are always fetched, never taken from a cache",
    "redactPII": _NEEDS_LANGUAGE_MODEL,
    "threatProtection": "addresses are guarded, contents are not judged",
    "zeroDataRetention": "tasks are kept for as long as the service is set to",
}
_UNSUPPORTED_FIELDS_V1 = {
    "jsonOptions": _NEEDS_LANGUAGE_MODEL, "extract": _NEEDS_LANGUAGE_MODEL, "agent": _NEEDS_LANGUAGE_MODEL,
    "geolocation": _UNSUPPORTED_FIELDS["location"],
    "changeTrackingOptions": _UNSUPPORTED_FORMATS["changeTracking"],
}  # fmt: skip


class PageOptions(Struct, frozen=True):
    """What a task stores of each page."""

    formats: tuple[str, ...]
    format_options: dict[str, Any]
    extract: dict[str, Any]  # a rule for each pair of `attributes`
    attributes: tuple[tuple[str, str], ...]  # selector and attribute, in the order of the rules
    render: str = ""
    render_options: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()


def page_options(fields: BodyFields, version: int) -> PageOptions:
    """Reads all fields of `scrapeOptions`; a scrape or a batch has them in the body itself."""
    formats, attributes, picture = _formats(fields, version)
    wishes = _browser_options(fields, picture)
    shape: dict[str, Any] = {
        "only_main_content": fields.flag("onlyMainContent", True),
        "include_tags": fields.texts("includeTags", 50),
        "exclude_tags": fields.texts("excludeTags", 50),
    }
    try:
        check_shape(
            shape["only_main_content"], shape["include_tags"], shape["exclude_tags"],
            (fields.at("includeTags"), fields.at("excludeTags")),
        )  # fmt: skip
        extract = {f"a{number}": _attribute_rule(*pair) for number, pair in enumerate(attributes)}
        compile_rules(extract)
    except BadRules as error:
        raise bad(*error.found[0]) from None
    fields.harmless(*_HARMLESS_FIELDS)
    proxy = fields.text("proxy", among=("basic", "auto", "stealth", "enhanced"))
    if proxy in ("stealth", "enhanced"):
        raise bad(fields.at("proxy"), f"{proxy!r} is not available: use basic or auto")
    _check_parsers(fields, version)
    fields.lacking(_UNSUPPORTED_FIELDS if version == 2 else _UNSUPPORTED_FIELDS | _UNSUPPORTED_FIELDS_V1)
    return PageOptions(formats, shape, extract, attributes, "always" if wishes else "", wishes)


def _browser_options(fields: BodyFields, picture: dict[str, Any]) -> dict[str, Any]:
    """The options that need a browser; without any, the service's default for rendering applies."""
    wishes = dict(picture)
    if wait_ms := fields.number("waitFor", 0, 0, 60_000):
        wishes["wait_for"] = wait_ms / 1000
    if fields.flag("mobile"):
        wishes["mobile"] = True
    actions = fields.pop("actions", [])
    if not isinstance(actions, list) or not all(isinstance(one, dict) for one in actions):
        raise bad(fields.at("actions"), "must be a list of objects with `type`")
    for number, action in enumerate(actions):
        if action.get("type") in _UNSUPPORTED_ACTIONS:
            raise bad(f"{fields.at('actions')}.{number}", f"{action['type']!r} is not available")
        if why := wrong_action(action):
            raise bad(f"{fields.at('actions')}.{number}", why)
    if actions:
        wishes["actions"] = actions
    return wishes


def _formats(fields: BodyFields, version: int) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...], dict[str, Any]]:
    given = fields.pop("formats", ["markdown"])
    if not isinstance(given, list) or len(given) > MOST_FORMATS:
        raise bad(fields.at("formats"), f"must be a list of at most {MOST_FORMATS} formats")
    formats: list[str] = []
    attributes: list[tuple[str, str]] = []
    picture: dict[str, Any] = {}
    for number, one in enumerate(given):
        at = f"{fields.at('formats')}.{number}"
        name, more = (one, {}) if isinstance(one, str) else _read_typed_format(one, at, version)
        if name == "attributes" and version == 2:
            attributes += _read_attributes(BodyFields(more, at))
        elif name in ("screenshot", "screenshot@fullPage"):
            picture = _screenshot_options(BodyFields(more, at), is_full="@" in name)
        elif name in _UNSUPPORTED_FORMATS:
            raise bad(at, f"{name!r} is not available: {_UNSUPPORTED_FORMATS[name]}")
        elif name not in _FORMATS or (name == "images" and version == 1):
            raise bad(at, f"{str(name)[:60]!r} is not a format: use {', '.join(_FORMATS)}")
        else:
            formats.append(name)
    return (*dict.fromkeys(formats), "metadata"), tuple(attributes), picture


def _screenshot_options(fields: BodyFields, *, is_full: bool) -> dict[str, Any]:
    """The format `screenshot`. Pictures are PNGs: `quality` has no effect on one."""
    picture = {"screenshot": "full" if fields.flag("fullPage", is_full) else "viewport"}
    fields.number("quality", 100, 1, 100)
    size = fields.pop("viewport", None)
    if size is not None:
        if not isinstance(size, dict) or set(size) != {"width", "height"}:
            raise bad(fields.at("viewport"), "must be an object with `width` and `height`")
        sides = BodyFields(size, fields.at("viewport"))
        picture["viewport"] = "x".join(str(sides.number(side, 0, 10, 9999)) for side in ("width", "height"))
    fields.end()
    return picture


def _read_typed_format(one: Any, at: str, version: int) -> tuple[Any, dict[str, Any]]:
    if version == 1 or not isinstance(one, dict) or "type" not in one:
        raise bad(at, "must be a text" + ("" if version == 1 else ", or an object with `type`"))
    if not isinstance(one["type"], str):
        raise bad(f"{at}.type", "must be a text")
    return one["type"], {name: value for name, value in one.items() if name != "type"}


def _read_attributes(fields: BodyFields) -> list[tuple[str, str]]:
    given = fields.pop("selectors", [])
    if not isinstance(given, list) or len(given) > MOST_ATTRIBUTES:
        raise bad(fields.at("selectors"), f"must be a list of at most {MOST_ATTRIBUTES} objects")
    pairs = []
    for number, one in enumerate(given):
        pair = BodyFields(one, f"{fields.at('selectors')}.{number}")
        selector, attribute = pair.text("selector"), pair.text("attribute")
        pair.end()
        if not selector or not attribute:
            raise bad(pair.at("selector"), "an object with `selector` and `attribute` is needed")
        pairs.append((selector, attribute))
    fields.end()
    return pairs


def _attribute_rule(selector: str, attribute: str) -> dict[str, Any]:
    return {"css": selector, "attr": attribute, "many": True}


def _check_parsers(fields: BodyFields, version: int) -> None:
    if version == 1:
        fields.flag("parsePDF", True)
        return
    given = fields.pop("parsers", [])
    if not isinstance(given, list) or any(one not in ("pdf", "image") for one in given):
        raise bad(fields.at("parsers"), "is not available: use a list of 'pdf' and 'image', which changes nothing")
