"""The routes of tasks, over a service in memory: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from asgi_client import Answer, Asgi
from msgspec.structs import replace
from pyarrow import parquet
from scripted_service import ScriptedService

from weft import scraping
from weft.client import AsyncWeft, Weft
from weft.client.progress_display import progress_text
from weft.errors import BadInput
from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.errors import EngineAway
from weft.jobs.model import TaskSpec
from weft.jobs.sites.files import site_of
from weft.names import nearest
from weft.scraping import FinishReason, TaskState

SITE = "https://example.com/"
Test = Callable[[Asgi, ScriptedService], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test in a loop of its own, with a service and a caller."""

    def run(test: Test, **settings: Any) -> None:
        async def main() -> None:
            service = ScriptedService()
            await test(Asgi(create_app(service, ApiSettings(data_dir=tmp_path, **settings))), service)

        asyncio.run(main())

    return run


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


async def submit(call: Asgi, **body: Any) -> str:
    answer = await call("POST", "/scraping/async-scrape", {"url": SITE, **body})
    assert answer.status == 202, answer.body
    task_id: str = answer.json["task_id"]
    return task_id


def test_a_submit_gives_an_id_and_where_everything_is(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        answer = await call("POST", "/scraping/async-scrape", {"url": "HTTPS://Example.com", "max_depth": 1})
        assert (answer.status, answer.json["status"]) == (202, "PENDING")
        task = f"/scraping/tasks/{answer.json['task_id']}"
        assert answer.json["links"] == {
            "status": f"{task}/status", "results": f"{task}/results", "events": f"{task}/events", "cancel": task,
        }  # fmt: skip
        assert answer.headers["location"] == f"{task}/status"
        (kept,) = service.tasks.values()
        assert (kept.url, kept.spec.max_depth, kept.spec.timeout_s) == (SITE, 1, 1800.0)
        for link in answer.json["links"].values():
            if not link.endswith("events"):
                assert (await call("DELETE" if link == task else "GET", link)).status == 200

    run(test)


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"urll": SITE}, "urll", "there is no such field; did you mean 'url'?"),
        ({"allow_private": True}, "allow_private", "there is no such field"),
        ({"resolve": {"a": "127.0.0.1"}}, "resolve", "there is no such field"),
        ({"tls_verify": False}, "tls_verify", "there is no such field"),
        ({"timeout_minutes": 4}, "timeout_minutes", "4 is not accepted; use a whole number from 5 to 120"),
        ({"timeout_minutes": 121}, "timeout_minutes", "121 is not accepted; use a whole number from 5 to 120"),
        ({"timeout_minutes": "30"}, "timeout_minutes", "'30' is not accepted; use a whole number from 5 to 120"),
        ({"max_depth": -1}, "max_depth", "-1 is not accepted; use a whole number from 0 to 1,000"),
        ({"max_depth": 1.5}, "max_depth", "1.5 is not accepted; use a whole number from 0 to 1,000"),
        ({"max_depth": True}, "max_depth", "true is not accepted; use a whole number from 0 to 1,000"),
        ({"max_pages": 0}, "max_pages", "0 is not accepted; use a whole number from 1 to 1,000,000 or nothing"),
        ({"partial_results_ok": "yes"}, "partial_results_ok", "'yes' is not accepted; use true or false"),
        ({"formats": ["pdf"]}, "formats.0", "input should be 'markdown', 'text', 'html'"),
        ({"export_format": "xls"}, "export_format", "'xls' is not accepted; use one of json, jsonl, csv"),
        ({"render": "maybe"}, "render", "'maybe' is not accepted; use"),
        ({"render_options": {"scrolls": 100}}, "render_options.scrolls", "20"),
        ({"respect_robots": False}, "respect_robots", "false is not accepted; use true: robots.txt is always obeyed"),
        ({"webhook": "ftp://example.org/"}, "webhook", "write http://... or https://..."),
        ({"webhook": "http://10.0.0.1/"}, "webhook", "leads to a private address, where webhooks may not go"),
        ({"webhook": {"url": SITE, "events": ["pages"]}}, "webhook.events.0", "input should be 'started', 'page'"),
        ({"webhook": {"url": SITE, "secret": "x"}}, "webhook.secret", "there is no such field"),
        ({"webhook": {"url": SITE, "headers": {"Host": "x"}}}, "webhook.headers", "'Host' cannot be sent"),
        ({"webhook": {"url": SITE, "headers": {"A": "x\r\nB: y"}}}, "webhook.headers", "cannot be sent"),
        ({"webhook": {"url": SITE, "metadata": {"a": "x" * 20_000}}}, "webhook.metadata", "at most 16,384 bytes"),
        ({"webhook": 7}, "webhook", "should be an object"),
        ({"include": ["re:(a+)+$"]}, "include", "regular expressions are not accepted: use globs"),
        ({"exclude": ["re2-path:a"]}, "exclude", "regular expressions are not accepted: use globs"),
        ({"include": ["*a" * 500] * 11}, "include", "at most 10,000 characters together, these have 11,000"),
        ({"webhook": {"url": SITE, "metadata": {"a": 2**64}}}, "webhook.metadata", "must fit into 64 bits"),
        ({"webhook": {"url": SITE, "metadata": nested(40)}}, "webhook.metadata", "nested more than 32 deep"),
        ({"include": ["/a\0b"]}, "include", "globs have no control characters"),
        ({"include": ["x"] * 101}, "include", "list should have at most 100 items"),
        ({"extract": {"price": "div["}}, "extract.price.css", "is not understood"),
        ({"extract": {"price": {"css": "b", "nonsense": 1}}}, "extract.price", "nonsense"),
        ({"include_tags": ["a[["]}, "include_tags", "'a[[' is not understood"),
        ({"url": None}, "url", "null is not accepted; use a URL of http or https"),
        ({"url": "ftp://example.com/"}, "url", "'ftp://example.com/' is not accepted; use a URL of http or https"),
        ({"url": "https://exa mple.com/"}, "url", "has a space at position 12"),
        (
            {"url": "http://10.0.0.1/"},
            "url",
            "where tasks may not go, unless the service is started with --allow-private",
        ),
        ({"url": "http://2130706433/"}, "url", "leads to a loopback address"),
        ({"url": "http://0x7f.1:8000/"}, "url", "leads to a loopback address"),
        ({"url": "http://[::ffff:127.0.0.1]/"}, "url", "leads to a loopback address"),
        ({"url": "http://LOCALHOST:9/"}, "url", "leads to a loopback address"),
        ({"url": "http://0.0.0.0/"}, "url", "leads to an unspecified address"),
        ({"url": "http://169.254.169.254/latest"}, "url", "leads to a cloud metadata address"),
        ({"proxies": True}, "proxies", "this service has none"),
        ({"url": "http://metadata.google.internal./"}, "url", "leads to a cloud metadata address"),
    ],
)
def test_a_field_that_is_wrong_is_named(run: Callable[..., None], body: dict[str, Any], field: str, said: str) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        answer = await call("POST", "/scraping/async-scrape", {"url": SITE, **body})
        assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json"), answer.body
        assert said in answer.fields[field]
        assert field in answer.json["detail"]
        assert not service.tasks

    run(test)


def test_suggestions_for_unknown_names_are_bounded(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of 1 MB has room for 90,000 wrong names: the answer must not cost a search for each."""
    searches = 0

    def counted(name: str, names: Iterable[str]) -> str:
        nonlocal searches
        searches += 1
        return nearest(name, names)

    for where in ("weft.names", "weft.extract.rules.rule"):
        monkeypatch.setattr(f"{where}.nearest", counted)
    names = {f"urk{number}": 1 for number in range(3000)}

    async def test(call: Asgi, _: ScriptedService) -> None:
        nonlocal searches
        site = {"name": "a", "start_urls": [SITE]}
        with pytest.raises(BadInput, match=r"did you mean"):
            site_of({"max_page": 1, **site, **names}, 0.0)
        assert 0 < searches <= 100
        for body in (names, {"extract": {"a": names, "b": names}}):
            searches = 0
            answer = await call("POST", "/scraping/async-scrape", {"url": SITE, **body})
            assert answer.status == 422 and len(answer.json["errors"]) == 100
            assert 0 < searches <= 100

    run(test)


def test_loopback_may_be_permitted_and_metadata_never(run: Callable[..., None]) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        await submit(call, url="http://127.0.0.1:8080/")
        await submit(call, url="http://localhost:8080/")
        answer = await call("POST", "/scraping/async-scrape", {"url": "http://169.254.169.254/"})
        assert (answer.status, list(answer.fields)) == (422, ["url"])

    run(test, allow_private=True)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "is not JSON"),
        (b"", 400, "is not JSON"),
        (b'{"url": "\\ud800"}', 400, "is not JSON"),
        (b"[" * 100_000, 400, "is not JSON"),
        (b'\xff\xfe{"url": 1}', 400, "is not JSON"),
        (b"[]", 422, "body"),
        (b"x" * 2_000_000, 413, "at most 1,048,576 bytes"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(run: Callable[..., None], body: bytes, status: int, said: str) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        answer = await call("POST", "/scraping/async-scrape", body, content_type="application/json")
        assert (answer.status, said in answer.json["detail"]) == (status, True), answer.body

    run(test)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_bodies_are_json_alone(run: Callable[..., None], kind: str) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        answer = await call("POST", "/scraping/async-scrape", b'{"url": "https://example.com/"}', content_type=kind)
        assert (answer.status, list(answer.fields)) == (415, ["Content-Type"])

    run(test)


def test_an_idempotency_key_gives_the_first_task_again(run: Callable[..., None]) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        path, order = "/scraping/async-scrape", {"url": SITE}
        first = await call("POST", path, order, idempotency_key="once")
        again = await call("POST", path, {"url": SITE, "max_depth": 2}, idempotency_key="once")
        other = await call("POST", path, {"url": SITE, "max_depth": 3}, idempotency_key="once")
        assert "idempotent-replayed" not in first.headers
        assert (again.json, again.headers["idempotent-replayed"]) == (first.json, "true")
        assert other.status == 409
        for bad in ("with space", "x" * 201):
            answer = await call("POST", path, order, idempotency_key=bad)
            assert (answer.status, list(answer.fields)) == (422, ["Idempotency-Key"])

    run(test)


def test_submits_beyond_the_rate_are_refused_with_a_time(run: Callable[..., None]) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        answers = [await call("POST", "/scraping/async-scrape", {"url": SITE}) for _ in range(4)]
        assert [answer.status for answer in answers] == [202, 202, 202, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1

    run(test, submits_per_s=1.0, submit_burst=3)


def test_a_full_queue_says_when_to_come_again(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        service.max_pending = 1
        await submit(call)
        answer = await call("POST", "/scraping/async-scrape", {"url": SITE})
        assert (answer.status, answer.headers["retry-after"]) == (429, "7")

    run(test)


def test_a_status_is_whole_and_has_a_tag(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        task_id = await submit(call)
        service.move(task_id, TaskState.RUNNING)
        service.page(task_id, SITE)
        service.error(task_id, SITE + "b")
        path = f"/scraping/tasks/{task_id}/status"
        first = await call("GET", path)
        assert first.json["status"] == "RUNNING"
        assert first.json["progress"] == {
            "discovered": 2, "completed": 1, "gone": 0, "failed": 1, "refused": 0, "robots_blocked": 0, "queued": 0,
            "in_flight": 0, "need_javascript": 0, "percent": 100.0,
        }  # fmt: skip
        assert (first.json["success_rate"], first.json["errors_by_class"]) == (0.5, {"http_5xx": 1})
        assert 0 < first.json["remaining_seconds"] <= 1800
        tag = first.headers["etag"]
        same = await call("GET", path, if_none_match=f'"other", {tag}')
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
        for equal in (tag.removeprefix("W/"), "*"):
            assert (await call("GET", path, if_none_match=equal)).status == 304
        service.page(task_id, SITE + "c")
        assert (await call("GET", path, if_none_match=tag)).status == 200

    run(test)


def test_a_task_says_what_it_waits_for_and_until_when(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        task_id = await submit(call)
        status, tags = f"/scraping/tasks/{task_id}/status", set[str]()
        for state, waiting_for, until, expected in (
            (TaskState.PENDING, "", None, ("slot", None, "")),
            (TaskState.RUNNING, "", None, (None, None, "")),
            (TaskState.RUNNING, "Retry-After of a.test", 1_800_000_000.4, (
                "Retry-After of a.test", "2027-01-15T08:00:01.000Z",
                "it waits: Retry-After of a.test, until 2027-01-15 08:00:01 UTC; other tasks use its slot until then",
            )),
            (TaskState.RUNNING, "slot", None, (
                "slot", None, "it can continue, and waits for a free slot: it gets the next one")),
            (TaskState.PAUSED, "resume", None, (
                "resume", None, "paused: resume it to continue; its deadline runs on")),
        ):  # fmt: skip
            task = replace(service.tasks[task_id], state=state, waiting_for=waiting_for, waiting_until=until)
            service.tasks[task_id] = task
            answer = await call("GET", status)
            (listed,) = (await call("GET", "/scraping/tasks")).json["tasks"]
            for found in (answer.json, listed):
                assert (found["waiting_for"], found["waiting_until"], found["message"]) == expected
            typed = msgspec.convert(answer.json, scraping.TaskStatus, strict=False)
            assert typed.waiting_for == expected[0] and (typed.waiting_until is None) is (expected[1] is None)
            assert typed.message in progress_text(typed)
            assert msgspec.convert(listed, scraping.TaskSummary).message == expected[2]
            tags.add(answer.headers["etag"])
        assert len(tags) == 4, "what it waits for is part of it: two of these wait for a slot"

    run(test)


def test_what_the_service_says_of_a_url_names_the_field(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        service.fails = BadInput(f"{SITE}: nobody can be reached")
        refused = await call("POST", "/scraping/async-scrape", {"url": SITE})
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, "url")

    run(test)


def test_results_are_paged_by_cursors_that_belong_to_their_task(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        task_id, other = await submit(call), await submit(call)
        for number in range(5):
            service.page(task_id, f"{SITE}{number}", markdown=f"# {number}")
            service.error(task_id, f"{SITE}bad{number}")
        path = f"/scraping/tasks/{task_id}/results"
        seen, cursor = [], ""
        while True:
            answer = await call("GET", f"{path}?limit=2{cursor}")
            assert "errors" not in answer.json
            seen += [page["url"] for page in answer.json["results"]]
            if answer.json["next_cursor"] is None:
                break
            cursor = f"&cursor={answer.json['next_cursor']}"
        assert seen == [f"{SITE}{number}" for number in range(5)]
        service.page(task_id, f"{SITE}late")
        later = await call("GET", f"{path}?cursor={answer.json['cursor']}")
        assert [page["url"] for page in later.json["results"]] == [f"{SITE}late"]
        both = (await call("GET", f"{path}?include_errors=true")).json
        assert (len(both["results"]), len(both["errors"]), both["results"][1]["markdown"]) == (6, 5, "# 1")
        for bad in (
            f"{path}?cursor=nonsense", f"{path}?cursor=", f"{path}?cursor={'A' * 90}", f"{path}?cursor=%ff",
            f"/scraping/tasks/{other}/results?cursor={answer.json['cursor']}",
        ):  # fmt: skip
            refused = await call("GET", bad)
            assert (refused.status, list(refused.fields)) == (422, ["cursor"]), bad

    run(test)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("format=pdf", "format"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(run: Callable[..., None], query: str, field: str) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        answer = await call("GET", f"/scraping/tasks/{await submit(call)}/results?{query}")
        assert (answer.status, list(answer.fields)) == (422, [field])

    run(test)


def test_results_come_in_other_formats(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        task_id = await submit(call, export_format="csv")
        service.page(task_id, SITE, markdown="=HYPERLINK(1)")
        service.page(task_id, SITE + "b--c", markdown="# B")
        path = f"/scraping/tasks/{task_id}/results"
        table = await call("GET", path)
        assert table.headers["content-type"].startswith("text/csv")
        assert b"'=HYPERLINK(1)" in table.body, "no cell is a formula"
        first = await call("GET", f"{path}?limit=1")
        rest = await call("GET", f"{path}?cursor={first.headers['next-cursor']}")
        assert first.body + rest.body == table.body, "stretches can be put together"
        lines = await call("GET", f"{path}?format=jsonl&limit=1")
        assert (lines.body.count(b"\n"), lines.headers["content-type"]) == (1, "application/x-ndjson")
        rest = await call("GET", f"{path}?format=jsonl&cursor={lines.headers['next-cursor']}")
        assert (rest.body.count(b"\n"), "next-cursor" in rest.headers) == (1, False)
        text = await call("GET", f"{path}?format=markdown")
        assert b"# B" in text.body and b"b--c" not in text.body
        assert (await call("GET", f"{path}?format=json")).json["results"]
        table = parquet.read_table(io.BytesIO((await call("GET", f"{path}?format=parquet&include_errors=true")).body))
        assert table.column("url").to_pylist() == [SITE, SITE + "b--c"]
        empty = f"/scraping/tasks/{await submit(call)}/results"
        records = await call("GET", f"{path}?format=warc&limit=1")
        assert records.headers["content-type"] == "application/warc"
        assert records.headers["content-disposition"] == f'attachment; filename="{task_id}.warc.gz"'
        rest = await call("GET", f"{path}?format=warc&cursor={records.headers['next-cursor']}")
        assert records.body + rest.body == f"{SITE}\n{SITE}b--c\n".encode() and "next-cursor" not in rest.headers
        for kind in ("jsonl", "csv", "markdown", "parquet", "warc"):
            assert (await call("GET", f"{empty}?format={kind}")).status == 200

    run(test)


def test_tasks_are_changed_and_listed(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        first, second = await submit(call), await submit(call)
        assert (await call("POST", f"/scraping/tasks/{first}/pause")).status == 409
        service.move(first, TaskState.RUNNING)
        for verb, state in (("pause", "PAUSED"), ("pause", "PAUSED"), ("resume", "RUNNING")):
            for body in (b"", b"{}"):
                answer = await call("POST", f"/scraping/tasks/{first}/{verb}", body, content_type="application/json")
                assert (answer.status, answer.json["status"]) == (200, state)
            refused = await call("POST", f"/scraping/tasks/{first}/{verb}", {"for": 5})
            assert (refused.status, list(refused.fields)) == (422, ["body"])
        for _ in range(2):
            answer = await call("DELETE", f"/scraping/tasks/{first}")
            assert (answer.status, answer.json["status"]) == (200, "CANCELLED")
        assert (await call("POST", f"/scraping/tasks/{first}/resume")).status == 409
        listed = (await call("GET", "/scraping/tasks?limit=1")).json
        assert [task["task_id"] for task in listed["tasks"]] == [second]
        rest = (await call("GET", f"/scraping/tasks?cursor={listed['next_cursor']}")).json
        assert ([task["task_id"] for task in rest["tasks"]], rest["next_cursor"]) == ([first], None)
        only = (await call("GET", "/scraping/tasks?status=CANCELLED")).json["tasks"]
        assert [task["finish_reason"] for task in only] == ["cancelled"]
        for query, field in (("status=DONE", "status"), ("cursor=x", "cursor"), ("limit=501", "limit")):
            assert list((await call("GET", f"/scraping/tasks?{query}")).fields) == [field]

    run(test)


def test_what_is_not_there_is_404_and_what_cannot_be_done_405(run: Callable[..., None]) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        for path in (f"/scraping/tasks/{'0' * 32}/status", "/scraping/tasks/nonsense/results", "/nonsense", "/docs/"):
            answer = await call("GET", path)
            assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json"), path
        wrong = await call("DELETE", "/scraping/async-scrape")
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")

    run(test)


def test_an_engine_that_is_away_is_503_and_a_mistake_500_without_its_details(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        task_id = await submit(call)
        service.fails = EngineAway("it is being started")
        answer = await call("GET", f"/scraping/tasks/{task_id}/status")
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        service.fails = ZeroDivisionError("a secret")
        answer = await call("GET", f"/scraping/tasks/{task_id}/status")
        assert (answer.status, b"secret" in answer.body) == (500, False)

    run(test)


def test_health_is_progress(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        assert (await call("GET", "/healthz")).json == {"status": "ok", "problems": [], "warnings": []}
        assert (await call("GET", "/scraping/status")).json["available_slots"] == 5
        text = (await call("GET", "/metrics")).body
        assert b'weft_api_requests_total{method="GET"' in text and b"weft_jobs_healthy 1.0" in text

    async def stalled(call: Asgi, service: ScriptedService) -> None:
        service.problems = ("the engine has not moved for 40 s",)
        answer = await call("GET", "/healthz")
        assert (answer.status, answer.json["problems"]) == (503, ["the engine has not moved for 40 s"])
        assert (await call("GET", "/readyz")).status == 200, "tasks are accepted, and wait"

    run(test)
    run(stalled)


def test_the_documentation_needs_nothing_from_elsewhere(run: Callable[..., None]) -> None:
    async def test(call: Asgi, _: ScriptedService) -> None:
        page = await call("GET", "/docs")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert b"<script" not in page.body and b"/scraping/async-scrape" in page.body
        document = (await call("GET", "/openapi.json")).json
        assert document["openapi"].startswith("3.1")
        assert {"AsyncScrapeRequest", "TaskStatus", "TaskResults", "Problem"} <= set(document["components"]["schemas"])

    run(test)


def test_the_document_a_tasks_record_and_the_clients_have_the_declared_fields_and_calls(
    run: Callable[..., None],
) -> None:
    declared = set(get_type_hints(scraping.AsyncScrapeRequest))

    async def test(call: Asgi, _: ScriptedService) -> None:
        document = (await call("GET", "/openapi.json")).json
        schema = document["components"]["schemas"]["AsyncScrapeRequest"]
        assert (set(schema["properties"]), schema["additionalProperties"]) == (declared, False)
        assert (schema["properties"]["max_depth"]["default"], schema["required"]) == (2, ["url"])
        calls = {one for one in vars(scraping).values() if isinstance(one, scraping.ApiCall)}
        for one in calls:
            operation = document["paths"][one.path][one.method.lower()]
            assert (operation["operationId"], str(one.status) in operation["responses"]) == (one.name, True)

    run(test)
    elsewhere = {
        "url",
        "timeout_minutes",
        "include_tags",
        "exclude_tags",
        "only_main_content",
        "links",
    }  # of a task's record
    elsewhere |= {"render", "respect_robots"}  # these have one value
    assert declared - elsewhere <= set(TaskSpec.__struct_fields__), "a field that is accepted must not be dropped"
    for name in ("submit", "status", "events", "deliveries"):
        assert getattr(Weft, name).__doc__ == getattr(AsyncWeft, name).__doc__ != ""


async def read(call: Any, until: bytes) -> Answer:
    while until not in call.answer.body:
        assert not call.task.done(), call.answer
        await asyncio.sleep(0.01)
    answer: Answer = call.answer
    return answer


def test_a_task_that_ends_is_told_by_its_stream(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        task_id = await submit(call)
        service.move(task_id, TaskState.RUNNING)
        stream = call.begin("GET", f"/scraping/tasks/{task_id}/events")
        await read(stream, b'"state":"RUNNING"')
        service.page(task_id, SITE)
        service.happens(task_id, "progress", completed=1)
        service.move(task_id, TaskState.COMPLETED, FinishReason.DONE)
        await stream.task
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        frames = [frame for frame in stream.answer.body.split(b"\n\n") if frame]
        assert frames[0].startswith(b"retry: 1000\nid: 1\nevent: state\ndata: ")
        assert all(b"\ndata: " in frame for frame in frames), "clients hand on blocks without data, too"
        assert (await call("GET", f"/scraping/tasks/{task_id}/events", last_event_id="3")).status == 204
        rest = await call("GET", f"/scraping/tasks/{task_id}/events?after=1")
        assert [line for line in rest.body.split(b"\n") if line.startswith(b"id")] == [b"id: 2", b"id: 3"]
        for bad in ("x", "-1", "4"):
            answer = await call("GET", f"/scraping/tasks/{task_id}/events", last_event_id=bad)
            assert (answer.status, list(answer.fields)) == (422, ["Last-Event-ID"])

    run(test)
