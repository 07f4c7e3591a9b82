"""`/docs`: the OpenAPI document as one page, without scripts and with nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from starlette.responses import HTMLResponse

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code { font: 14px/1.4 ui-monospace, monospace; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { display: inline-block; min-width: 4.5rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884; }
h2 { margin-top: 2rem; }
@media (max-width: 46rem) {
  body { margin-top: 1rem; }
  code, td, th, p { overflow-wrap: anywhere; }
  tr { display: flex; flex-wrap: wrap; gap: 0 .8rem; padding: .3rem 0; border-bottom: 1px solid #8884; }
  td { border: 0; padding: 0; }
  td:first-child { font-weight: 600; }
  td:last-child { flex: 1 0 100%; }
  tr:has(th) { display: none; }
}
"""


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def docs_page(document: dict[str, Any]) -> HTMLResponse:
    """The page."""
    info = document["info"]
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    body = (
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('summary', ''))} "
        'The same for programs: <a href="/openapi.json">/openapi.json</a>; for people: <a href="/">dashboard</a>.</p>'
        f"<main><h2>Routes</h2>{''.join(operations)}<h2>Bodies</h2>{''.join(schemas)}</main>"
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<title>Weft: HTTP interface</title><link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
        f"<style>{_STYLE}</style>{body}</html>"
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = [
        (one["name"], one["in"], _kind(one["schema"]), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    answers = [(status, one["description"]) for status, one in operation["responses"].items()]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        + (f"<p>Body: {_kind(body)}</p>" if body else "")
        + (_table(("parameter", "in", "type", "meaning"), parameters) if parameters else "")
        + _table(("status", "meaning"), answers)
        + "</details>"
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    fields: list[Any] = [(value, "", "") for value in schema.get("enum", ())]
    for field, one in schema.get("properties", {}).items():
        fields.append((field, _kind(one), one.get("description", "")))
    said = escape(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{said}</p>{_table(("field", "type", "meaning"), fields)}'


def _kind(schema: dict[str, Any]) -> Markup:
    return Markup(_type_words(schema))


def _type_words(schema: dict[str, Any]) -> str:
    """The type of a value, in words, with its limits; HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema.get("enum", [schema.get("const")]))
    words = escape(str(schema.get("type", "any")))
    if schema.get("type") == "array":
        words += f" of {_kind(schema.get('items') or {})}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        words += f", {low if low is not None else ''} to {high if high is not None else ''}"
    if "default" in schema:
        words += f", default <code>{escape(str(schema['default']))}</code>"
    return words


def _table(names: tuple[str, ...], rows: list[Any]) -> str:
    def cell(value: object) -> str:
        return f"<td>{value if isinstance(value, Markup) else escape(str(value))}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
