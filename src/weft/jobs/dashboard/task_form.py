"""The form for a new task: every option of a task; extraction rules can be tried on one page before it is submitted.

The form works without a script. Its fields are those of the API, checked by the same schema, so that errors are the
same, next to their field. A trial is a task of one page in the lane of single pages: politeness, robots.txt and the
address guard apply to it as to every task.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, get_args
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weft.errors import WeftError
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import needs
from weft.jobs.api.access.rates import Rate
from weft.jobs.api.bodies import SCRAPE
from weft.jobs.api.problems import Refusal, problem_of
from weft.jobs.api.routes.tasks import digest_of, read_task_request
from weft.jobs.api.settings import ApiSettings
from weft.jobs.dashboard import text
from weft.jobs.dashboard.door import Visitor
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.model import Lane, TaskSpec
from weft.jobs.reading.hub import Hub
from weft.jobs.service import JobService, Submission
from weft.jobs.store.contract import Idempotency
from weft.scraping import ExportFormat, Format, HookEvent, LinkUse, Scope

TRY_S = 20.0  # The time limit of a trial; a longer one is shown on its task's own page.
MOST_FIELDS = 300
EXCERPT = 3000
# The fields of a task, by their control in the form. `formats` has checkboxes of its own; fields with a single value
# are left out.
_FIELDS = {name: schema for name, schema in SCRAPE.fields.items() if "const" not in schema and name != "formats"}
_NUMBER_FIELDS = [name for name, schema in _FIELDS.items() if "integer" in str(schema)]
_LIST_FIELDS = [name for name, schema in _FIELDS.items() if schema.get("type") == "array"]
_CHOICE_FIELDS = [name for name, schema in _FIELDS.items() if name == "login" or len(schema.get("enum", ())) > 1]
_SWITCH_FIELDS = {  # The switches of the form, with their initial state.
    name: "on" if schema["default"] else "" for name, schema in _FIELDS.items() if schema.get("type") == "boolean"
}
Form = dict[str, list[str]]


class TaskForm:
    """Handlers of the form."""

    def __init__(self, service: JobService, pages: DashboardPages, settings: ApiSettings, rate: Rate, hub: Hub) -> None:
        self._service = service
        self._hub = hub
        self._pages = pages
        self._settings = settings
        self._rate = rate

    async def show(self, request: Request) -> Response:
        """Renders the empty form."""
        visitor = needs(request, KeyScope.SUBMIT)
        return self._form_page(visitor, {"url": [request.query_params.get("url", "")[:2000]]}, {}, is_new=True)

    async def send(self, request: Request) -> Response:
        """Handles a submitted form: tries it on one page, or submits a task."""
        visitor = needs(request, KeyScope.SUBMIT)
        form = parse_qs(
            (await request.body()).decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
        try:
            url, spec = await asyncio.to_thread(self._read_form, form)
            self._rate.check(visitor.owner)
            if "try" in form:
                return self._form_page(visitor, form, {}, tried=await self._try_on_page(visitor, url, spec))
            # A form that is sent twice, by a reload or a double click, is one task.
            key = Idempotency(f"form-{_form_token(form)}", digest_of(url, spec))
            done = await self._service.submit(Submission(urls=(url,), spec=spec, owner=visitor.owner, idempotency=key))
        except Refusal as refusal:
            return self._refused(visitor, form, refusal)
        except WeftError as error:
            return self._refused(visitor, form, problem_of(error))
        return RedirectResponse(f"/tasks/{done.task.id}", 303, {"Cache-Control": "no-store"})

    def _read_form(self, form: Form) -> tuple[str, TaskSpec]:
        try:
            body = msgspec.json.encode(task_fields_of(form))
        except RecursionError:
            raise Refusal(422, "rules or metadata are nested too deep") from None
        return read_task_request(body, self._settings)

    async def _try_on_page(self, visitor: Any, url: str, spec: TaskSpec) -> dict[str, Any]:
        one = replace(
            spec, webhook=None, max_depth=0, max_pages=1, timeout_s=60.0, lane=Lane.SCRAPE, kind="try", retry_attempts=0
        )
        task = (await self._service.submit(Submission(urls=(url,), spec=one, owner=visitor.owner))).task
        if not await self._hub.ended(task.id, TRY_S):
            return {"task": task.id, "problem": f"The page did not come within {TRY_S:g} s."}
        results = await self._service.results(task.id, limit=5, include_errors=True)
        if not results.results:
            reason = results.errors[0].error if results.errors else (await self._service.status(task.id)).task.message
            return {
                "task": task.id,
                "problem": f"No page was scraped: {text.one_line(reason or 'nothing was scraped', 300)}",
            }
        return {"task": task.id, "problem": ""} | _trial_result(results.results[-1].document, spec)

    def _refused(self, visitor: Any, form: Form, refusal: Refusal) -> Response:
        errors = dict(refusal.errors) or {"": refusal.detail}
        return self._form_page(visitor, form, errors, status=refusal.status)

    def _form_page(
        self, visitor: Any, form: Form, errors: dict[str, str], *, tried: dict[str, Any] | None = None,
        status: int = 200, is_new: bool = False,
    ) -> Response:  # fmt: skip
        assert isinstance(visitor, Visitor)
        return self._pages.page("new.html", visitor, {
            "nav": "new", "form": _field_values(form, is_new), "errors": _errors_by_field(errors), "tried": tried,
            "token": _form_token(form),
            "hints": {name: schema["description"] for name, schema in SCRAPE.fields.items()},
            "formats": get_args(Format), "scopes_there": get_args(Scope),
            "chosen": SCRAPE.fields["formats"]["default"] if is_new else form.get("formats", []),
            "hook_events": list(HookEvent), "chosen_events": list(HookEvent) if is_new else form.get("hook_events", []),
            "exports": get_args(ExportFormat), "link_uses": get_args(LinkUse),
            "articles": self._settings.max_articles,
            "has_proxies": self._settings.has_proxies, "logins": self._settings.logins,
        }, status)  # fmt: skip


def task_fields_of(form: Form) -> dict[str, Any]:
    """The API's task fields from the fields of a form; empty ones are left out."""
    given = {name: values[-1].strip() for name, values in form.items()}
    fields: dict[str, Any] = {"url": given.get("url", "")}
    fields |= {name: _number_or_text(given[name]) for name in _NUMBER_FIELDS if given.get(name)}
    fields |= {name: given[name] for name in _CHOICE_FIELDS if given.get(name)}
    fields |= {
        name: lines
        for name in _LIST_FIELDS
        if (lines := [line.strip() for line in given.get(name, "").splitlines() if line.strip()])
    }
    fields |= {name: name in form for name in _SWITCH_FIELDS}
    fields["formats"] = form.get("formats", [])
    if rules := given.get("extract"):
        fields["extract"] = rules_of(rules)
    if given.get("webhook"):
        fields["webhook"] = {"url": given["webhook"], "events": form.get("hook_events", [])} | _webhook_extras(given)
    return fields


def _webhook_extras(given: dict[str, str]) -> dict[str, Any]:
    """The headers and metadata of a webhook."""
    extras: dict[str, Any] = {}
    for line in filter(str.strip, given.get("hook_headers", "").splitlines()):
        name, colon, value = line.partition(":")
        if not colon:
            raise Refusal.of_field("webhook", f"headers: {line[:40]!r} is none; write `Name: value`")
        extras.setdefault("headers", {})[name.strip()] = value.strip()
    if metadata := given.get("hook_metadata"):
        try:
            extras["metadata"] = json.loads(metadata)
        except (ValueError, RecursionError) as error:
            raise Refusal.of_field("webhook", f"metadata: is not JSON: {error}") from None
    return extras


def rules_of(written: str) -> Any:
    """Extraction rules from JSON, or one a line: `name: css selector`; raises Refusal, which names the line."""
    if written.startswith("{"):
        try:
            return json.loads(written)
        except (ValueError, RecursionError) as error:
            raise Refusal.of_field("extract", f"is not JSON: {error}") from None
    rules: dict[str, str] = {}
    for number, line in enumerate(written.splitlines(), 1):
        name, colon, selector = (part.strip() for part in line.partition(":"))
        if not line.strip():
            continue
        if not (name and colon and selector):
            raise Refusal.of_field("extract", f"line {number}: write `name: css selector`, or all of it as JSON")
        if name in rules:
            raise Refusal.of_field("extract", f"line {number}: there is a field {name[:40]!r} already")
        rules[name] = selector
    return rules


def _number_or_text(written: str) -> int | str:
    """Text that is not a number is passed on: the schema check reports it."""
    return int(written) if written.isascii() and written.removeprefix("-").isdigit() and len(written) < 18 else written


def _field_values(form: Form, is_new: bool) -> dict[str, str]:
    """The value of each field; switches that are on have a value."""
    fields = {name: values[-1] for name, values in form.items()}
    defaults = _SWITCH_FIELDS if is_new else dict.fromkeys(_SWITCH_FIELDS, "")
    others = ("url", "extract", "webhook", "hook_headers", "hook_metadata")
    empty = dict.fromkeys((*others, *_NUMBER_FIELDS, *_LIST_FIELDS, *_CHOICE_FIELDS), "")
    return {**empty, **defaults, **fields}


def _errors_by_field(errors: dict[str, str]) -> dict[str, str]:
    """Groups errors under the field of the form that they belong to; errors of no field are together."""
    grouped: dict[str, str] = {}
    for where, problem in errors.items():
        field = where.partition(".")[0].partition("[")[0]
        field = field if field in SCRAPE.fields else ""
        path = f"{where}: " if where != field and where else ""
        grouped[field] = f"{grouped[field]}; {path}{problem}" if field in grouped else path + problem
    return grouped


def _form_token(form: Form) -> str:
    given = form.get("token", [""])[-1]
    return given if given.isalnum() and given.isascii() and len(given) == 32 else secrets.token_hex(16)


def _trial_result(document: dict[str, Any], spec: TaskSpec) -> dict[str, Any]:
    def value(extracted: object) -> str:
        return text.one_line(extracted if isinstance(extracted, str) else msgspec.json.encode(extracted).decode(), 500)

    fields = {name: value(field) for name, field in (document.get("fields") or {}).items()}
    problems = {name: text.one_line(str(error), 200) for name, error in (document.get("field_errors") or {}).items()}
    kept = next((document[name] for name in ("markdown", "text", "html", "rawHtml") if document.get(name)), "")
    return {
        "title": text.one_line(str(document.get("title", ""))), "status": document.get("status"),
        "size": text.size(int(document.get("length") or 0)), "fields": fields, "field_errors": problems,
        "excerpt": text.paragraph(str(kept), EXCERPT), "has_rules": bool(spec.extract),
        "unparsed": text.one_line(str(document.get("unparsed", "")), 300),
    }  # fmt: skip
