"""The settings of logins by a form: the fields to fill in, and the check of success.

`fields` holds references, `${env:NAME}` and `${file:PATH}`, instead of secrets. They are resolved by the process that
sends the form and nowhere else, so that settings, journals and logs have the references alone. A password as plain text
is refused for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from weft import urls
from weft.errors import BadInput, BadUrl
from weft.references import is_broken_reference, is_reference, resolve, with_absolute_paths

MOST_FIELDS = 100
_IS_SECRET = re.compile(r"pass|pwd|secret|token|otp|\bpin\b", re.IGNORECASE)
_COOKIE_NAME = re.compile(r"[A-Za-z0-9_-]+")


class SuccessCheck(StrEnum):
    """The evidence that a login has worked."""

    FORM_GONE = "form gone"  # nothing is named: there is a cookie, and no password is asked for any more
    SELECTOR = "css"
    COOKIE = "cookie"
    URL = "url"


class Success(NamedTuple):
    """How success is checked."""

    check: SuccessCheck
    value: str = ""


class FormLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A login by a form, done before the first page of its host.

    `url` is the page with the form; `form` a CSS selector of it, by default the first form that asks for a password.
    `actions`, in the place of `fields` and `form`, are what a browser does on the page instead: write, click, press,
    wait and others (docs/rendering.md); a `text` that is secret is a reference, as the values of `fields` are.
    `fields` gives values by the names of the form's controls: `"${env:NAME}"` for a variable of the environment,
    `"${file:PATH}"` for the content of a file. `success` shows that it has worked: a CSS selector, a cookie's name, or
    a pattern of the URL that it leads to; `css:`, `cookie:` or `url:` before it says which. `logged_out` is a CSS
    selector: a page that has it was sent to nobody, so that the login is repeated, and then the page, once.
    """

    url: str
    fields: dict[str, str] = {}
    actions: tuple[dict[str, Any], ...] = ()
    form: str = ""
    success: str = ""
    logged_out: str = ""

    def __post_init__(self) -> None:
        if why := _wrong(self):
            raise ValueError(why)

    @property
    def checked_by(self) -> Success:
        """How its success is seen."""
        kind, mark, value = self.success.partition(":")
        if mark and kind in ("css", "cookie", "url"):
            return Success(SuccessCheck(kind), value.strip())
        if not self.success:
            return Success(SuccessCheck.FORM_GONE)
        if self.success.startswith(("/", "http://", "https://", "*")):
            return Success(SuccessCheck.URL, self.success)
        is_cookie = _COOKIE_NAME.fullmatch(self.success) is not None
        return Success(SuccessCheck.COOKIE if is_cookie else SuccessCheck.SELECTOR, self.success)

    def as_settings(self) -> dict[str, Any]:
        """As the setting `login` has it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class NamedLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A login that the operator of a service has configured, by its name."""

    name: str


def read_login(given: Mapping[str, Any]) -> FormLogin | NamedLogin:
    """The setting `login`, checked as far as its text goes; BadInput says what is wrong, and never a value."""
    try:
        if set(given) == {"name"}:
            return msgspec.convert(dict(given), NamedLogin)
        return msgspec.convert(dict(given), FormLogin)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ValueError):
            raise BadInput(str(error.__cause__)) from None
        text = re.sub(r" - at `\$\.?(.*)`", r" (\1)", str(error))
        raise BadInput(
            f"{text}: a login has `url`, `fields` or `actions`, and where needed `form`, `success`, `logged_out`"
        ) from None


def login_of(login: Mapping[str, Any], logins: Mapping[str, Mapping[str, Any]]) -> FormLogin | None:
    """The login of a crawl's settings, by name if it is one of the configured ones; None without one."""
    if not login:
        return None
    found = read_login(login)
    if isinstance(found, FormLogin):
        return found
    if found.name not in logins:
        raise BadInput(f"login: there is no login {found.name!r} here; {_names(logins)}")
    named = read_login(logins[found.name])
    if isinstance(named, NamedLogin):
        raise BadInput(f"logins: {found.name}: names another login: write it out")
    return named


def _names(logins: Mapping[str, object]) -> str:
    return f"there are: {', '.join(sorted(logins))}" if logins else "none is configured (`logins`)"


def absolute(given: Any) -> Any:
    """The setting with the paths of `${file:PATH}` made absolute: a resume may have another working directory."""

    if isinstance(given, FormLogin):
        given = given.as_settings()
    if not isinstance(given, Mapping):
        return given
    if isinstance(actions := given.get("actions"), list | tuple):
        acted = [
            {**one, "text": with_absolute_paths(one["text"])} if isinstance(one, Mapping) and "text" in one else one
            for one in actions
        ]
        given = {**given, "actions": acted}
    fields = given.get("fields")
    if not isinstance(fields, Mapping):
        return given
    named = {name: with_absolute_paths(value) if isinstance(value, str) else value for name, value in fields.items()}
    return {**given, "fields": named}


def filled_in(login: FormLogin, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The fields with their values; BadInput names a variable that is not set, or a file that cannot be read."""
    needed_by = f"the login at {login.url}"
    return {name: resolve(text, needed_by, environment) for name, text in login.fields.items()}


def filled_actions(login: FormLogin, environment: Mapping[str, str] | None = None) -> tuple[dict[str, Any], ...]:
    """The actions with their values; `is_plain` marks a text that was written out, which no password may be."""
    actions = []
    for action in login.actions:
        if isinstance(text := action.get("text"), str):
            one = msgspec.structs.replace(login, fields={"text": text}, actions=())
            action = {**action, **filled_in(one, environment), "is_plain": not is_reference(text)}
        actions.append(action)
    return tuple(actions)


def _wrong(login: FormLogin) -> str:
    try:
        if urls.seed(login.url) and not login.url.startswith(("http://", "https://")):
            return "`url` must begin with https:// or http://"
    except BadUrl as error:
        return f"`url`: {error}"
    if login.actions:
        return _wrong_actions(login) or _wrong_success(login)
    if not login.fields:
        return "`fields` is empty: give the form's fields, as `{user: ${env:SITE_USER}, ...}`"
    if len(login.fields) > MOST_FIELDS:
        return f"`fields` has more than {MOST_FIELDS} names"
    for name, value in login.fields.items():
        if is_broken_reference(value):
            return f"`fields`: {name} has a reference that is none: write ${{env:NAME}} or ${{file:PATH}}"
        if _IS_SECRET.search(name) and not is_reference(value):
            return (
                f"`fields`: {name} is given as plain text, which would be written down: write ${{env:NAME}} or "
                "${file:PATH}"
            )
    return _wrong_success(login)


def _wrong_actions(login: FormLogin) -> str:
    from weft.config.contradictions import MOST_ACTIONS, wrong_action  # most logins have none

    if login.fields or login.form:
        return "`actions` are done by a browser, `fields` and `form` are sent without one: leave out one of the two"
    if len(login.actions) > MOST_ACTIONS:
        return f"`actions` has {len(login.actions)} actions: {MOST_ACTIONS} are the most"
    for number, action in enumerate(login.actions, 1):
        why = wrong_action(action)
        if action.get("type") == "executeJavascript":
            why = "a login runs no scripts of its own"
        text, selector = str(action.get("text", "")), str(action.get("selector", ""))
        if is_broken_reference(text):
            why = "has a reference that is none: write ${env:NAME} or ${file:PATH}"
        elif action.get("type") == "write" and _IS_SECRET.search(selector) and not is_reference(text):
            why = "is given as plain text, which would be written down: write ${env:NAME} or ${file:PATH}"
        if why:
            return f"`actions`: action {number}: {why}"
    return ""


def _wrong_success(login: FormLogin) -> str:
    kind, mark, value = login.success.partition(":")
    if mark and kind in ("css", "cookie", "url") and not value.strip():
        return f"`success`: nothing follows {kind}:"
    return ""
