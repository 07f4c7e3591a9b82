"""Reads the pages of a login: the form to send, and whether the login has worked. Pure.

No message made here contains the value of a field: messages are displayed, logged and stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft import urls
from weft.engine.admission.rules import Patterns
from weft.errors import BadInput, BadUrl
from weft.extract.forms import Form, NoForm, find_form, password_form, read_form, urlencoded
from weft.extract.page import ParsedPage
from weft.extract.rules.selectors import BadSelector, selector
from weft.extract.turbo import Document, Element
from weft.logins import FormLogin, SuccessCheck
from weft.references import is_reference

FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
_ADVICE_COOKIES = "log in with a browser, and give the session's cookie: `headers={'HOST:Cookie': 'NAME=VALUE'}`"
_CODE_FIELD_NAME = re.compile(r"otp|code|2fa|mfa|verif", re.IGNORECASE)
_UNSEEN_INPUT_TYPES = frozenset({"hidden", "submit", "button", "image", "reset"})


class LoginFault(Exception):
    """Why a login has not worked: its `str` is a message for users."""


class SentForm(NamedTuple):
    """A filled-in form, ready to send."""

    url: str
    body: bytes


def check_login(login: FormLogin) -> None:
    """BadInput for a selector or a pattern that cannot be used."""
    success = login.checked_by
    selectors = {"form": login.form, "logged_out": login.logged_out}
    if success.check is SuccessCheck.SELECTOR:
        selectors["success"] = success.value
    for name, css in selectors.items():
        try:
            if css:
                selector(css)
        except BadSelector as error:
            raise BadInput(f"login: {name}: {error}") from None
    if success.check is SuccessCheck.URL:
        try:
            Patterns("success", [success.value])
        except Exception as error:  # each pattern library raises its own error for an invalid pattern
            raise BadInput(f"login: success: {success.value!r} is no pattern: {error}") from None


def form_to_send(page: ParsedPage, login: FormLogin, values: Mapping[str, str]) -> SentForm:
    """The login's form, filled in; LoginFault if the page has none that can be sent."""
    document = page.searchable
    if document is None:
        raise LoginFault(f"{page.url} is no HTML page")
    element = _find_login_form(document, login)
    form, there = read_form(element), _field_names(element)
    if missing := [name for name in login.fields if name not in there]:
        raise LoginFault(f"the form has no field {missing[0]!r}; it has {_join_names(there)}")
    _check_passwords(element, login)
    if form.method != "POST":
        raise LoginFault(f"the form sends its fields in the URL, where logs and caches keep them: {_ADVICE_COOKIES}")
    if form.encoding != FORM_CONTENT_TYPE:
        raise LoginFault(f"the form is sent as {form.encoding}, which is not supported: {_ADVICE_COOKIES}")
    body = urlencoded(form.filled(dict(values)), page.charset or "utf-8")
    return SentForm(_form_target(page, form), body.encode("ascii"))


def has_worked(
    login: FormLogin, page: ParsedPage | None, url: str, before: Mapping[str, str], cookies: Mapping[str, str]
) -> bool:
    """Whether the answer to the form is a page for a logged-in user. `page`: None if it has no body; `before` and
    `cookies`: the session's cookies before the form was sent and now.
    """
    check, value = login.checked_by
    if check is SuccessCheck.COOKIE:
        return value in cookies and cookies[value] != before.get(value)
    if check is SuccessCheck.URL:
        return bool(Patterns("success", [value]).match(url, set()))
    document = page.searchable if page is not None else None
    if document is None:
        return False
    if check is SuccessCheck.SELECTOR:
        return bool(document.select(value))
    return bool(cookies) and password_form(document) is None and not _second_factor_fields(document)


def failure_text(login: FormLogin, page: ParsedPage | None, status: int) -> str:
    """The reason for a failed login, as the page gives it."""
    if status >= 400:
        return f"the site answers HTTP {status} to the form"
    document = page.searchable if page is not None else None
    if document is None:
        return f"what follows the form is no HTML page, and {_describe_wanted_form(login)} was not seen"
    if password_form(document) is not None:
        return "the site shows its form again, as it does for a wrong user name or password"
    if step := _second_factor_fields(document):
        return f"the site asks for a second step ({_join_names(step)}), which is not supported: {_ADVICE_COOKIES}"
    return f"the page that follows does not show {_describe_wanted_form(login)}"


def matches_selector(page: ParsedPage, css: str) -> bool:
    """Whether an element of a page matches the selector."""
    document = page.searchable
    return document is not None and bool(document.select(css))


def _describe_wanted_form(login: FormLogin) -> str:
    check, value = login.checked_by
    if check is SuccessCheck.FORM_GONE:
        return "a new cookie"
    what = {SuccessCheck.SELECTOR: "the element", SuccessCheck.COOKIE: "the cookie", SuccessCheck.URL: "a URL like"}[
        check
    ]
    return f"{what} {value!r} (`success`)"


def _find_login_form(document: Document, login: FormLogin) -> Element:
    if login.form:
        try:
            return find_form(document, login.form)
        except NoForm as error:
            raise LoginFault(str(error)) from None
    element = password_form(document)
    if element is not None:
        return element
    forms = [names for form in document.select("form") if (names := _visible_field_names(form))]
    if not forms:
        raise LoginFault("the page has no form with a field for a password: if scripts draw it, " + _ADVICE_COOKIES)
    raise LoginFault(
        f"no form of the page asks for a password (one has {_join_names(forms[0])}): a login in two steps is not "
        f"supported: {_ADVICE_COOKIES}"
    )


def _check_passwords(form: Element, login: FormLogin) -> None:
    for control in form.select("input"):
        name = control.attr("name") or ""
        is_password = (control.attr("type") or "").lower() == "password"
        if is_password and name in login.fields and not is_reference(login.fields[name]):
            raise LoginFault(f"the field {name!r} is a password, and is given as plain text: write ${{env:NAME}}")


def _form_target(page: ParsedPage, form: Form) -> str:
    try:
        return urls.join(page.base, form.action) if form.action else page.url
    except BadUrl:
        raise LoginFault("the form is sent to no web address: if scripts send it, " + _ADVICE_COOKIES) from None


def _second_factor_fields(document: Document) -> list[str]:
    """The fields by which a page asks for a second factor."""
    return [
        control.attr("name") or "a code"
        for control in document.select("form input")
        if (control.attr("type") or "text").lower() not in _UNSEEN_INPUT_TYPES
        and (control.attr("autocomplete") == "one-time-code" or _CODE_FIELD_NAME.search(control.attr("name") or ""))
    ]


def _field_names(form: Element) -> list[str]:
    controls = form.select("input, select, textarea")
    return list(dict.fromkeys(name for control in controls if (name := control.attr("name") or "")))


def _visible_field_names(form: Element) -> list[str]:
    """The names of the fields that a person would fill in."""
    seen = [
        one for one in form.select("input, textarea") if (one.attr("type") or "text").lower() not in _UNSEEN_INPUT_TYPES
    ]
    return list(dict.fromkeys(name for control in seen if (name := control.attr("name") or "")))


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join("".join(filter(str.isprintable, name[:40])) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown or "no fields"
