"""HTML forms: which controls they have, what is sent by default, and where it goes (HTML, "form submission"). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from weft.extract.text.full_text import one_line
from weft.extract.turbo import Document, Element

_SENT_WHEN_CHECKED = frozenset(("checkbox", "radio"))
_NEVER_SENT = frozenset(("button", "file", "image", "reset", "submit"))  # a button is sent when it was pressed
_URLENCODED = "application/x-www-form-urlencoded"


class Form(NamedTuple):
    """A form as a browser would send it without any input by the user."""

    action: str  # as written; empty: the page's own URL
    method: str  # GET or POST
    encoding: str  # the content type of a POST
    fields: list[tuple[str, str]]

    def filled(self, data: Mapping[str, str | list[str]]) -> list[tuple[str, str]]:
        """The fields with other values: each name of `data` replaces what the form has under it."""
        kept = [(name, value) for name, value in self.fields if name not in data]
        given = [(name, one) for name, value in data.items() for one in ([value] if isinstance(value, str) else value)]
        return kept + given


class NoForm(ValueError):
    """The page has no such form; `str` lists those that it has."""


def find_form(document: Document, css: str) -> Element:
    """The form that a selector names: itself, or the one around the element that matches."""
    found = document.select(css)
    for element in found:
        form = element if element.tag == "form" else element.closest("form")
        if form is not None:
            return form
    forms = len(document.select("form"))
    there = "it has no form" if not forms else f"none of its {forms} forms is or holds what matches"
    raise NoForm(f"no form matches {css!r:.80}: {there}")


def read_form(form: Element) -> Form:
    """What a form sends."""
    method = (form.attr("method") or "get").strip().upper()
    encoding = (form.attr("enctype") or "").strip().lower() or _URLENCODED
    action = (form.attr("action") or "").strip()
    return Form(action, "POST" if method == "POST" else "GET", encoding, list(_fields(form)))


def password_form(document: Document) -> Element | None:
    """The first form with a field for a password."""
    for field in document.select("form input"):
        if (field.attr("type") or "").lower() == "password":
            return field.closest("form")
    return None


def urlencoded(fields: list[tuple[str, str]], charset: str = "utf-8") -> str:
    """Fields as they go into a query or a body; what the charset lacks becomes a character reference, as HTML says."""
    try:
        return urlencode(fields, encoding=charset, errors="xmlcharrefreplace")
    except LookupError:
        return urlencode(fields)


def _fields(form: Element) -> Iterator[tuple[str, str]]:
    for control in form.select("input, select, textarea"):
        name = control.attr("name")
        if not name or control.attr("disabled") is not None:
            continue
        if control.tag == "select":
            yield from ((name, value) for value in _chosen(control))
        elif control.tag == "textarea":
            yield name, control.text
        elif (value := _input(control)) is not None:
            yield name, value


def _input(control: Element) -> str | None:
    kind = (control.attr("type") or "text").lower()
    if kind in _NEVER_SENT:
        return None
    if kind in _SENT_WHEN_CHECKED:
        checked = control.attr("checked") is not None
        return (control.attr("value") if control.attr("value") is not None else "on") if checked else None
    return control.attr("value") or ""


def _chosen(select: Element) -> list[str]:
    """The values of the options that are selected; of a list that shows one, the first if none is."""
    options = [option for option in select.select("option") if option.attr("disabled") is None]
    chosen = [option for option in options if option.attr("selected") is not None]
    if select.attr("multiple") is None:
        chosen = chosen[-1:] or options[:1]
    return [_value(option) for option in chosen]


def _value(option: Element) -> str:
    value = option.attr("value")
    return one_line(option) if value is None else value
