"""Firecrawl's routes over a service in memory: answers, pages of documents, errors in its own words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asgi_client import Asgi
from scripted_service import ScriptedService

from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.compat.wire import error_code
from weft.jobs.errors import EngineAway
from weft.jobs.model import error_class
from weft.jobs.service import Failure
from weft.scraping import ErrorClass, FinishReason, TaskState

SITE = "https://example.com/"
Test = Callable[[Asgi, ScriptedService], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def run(test: Test, **settings: Any) -> None:
        async def main() -> None:
            service = ScriptedService()
            await test(Asgi(create_app(service, ApiSettings(data_dir=tmp_path, **settings))), service)

        asyncio.run(main())

    return run


async def start(call: Asgi, path: str = "/v2/crawl", **body: Any) -> str:
    answer = await call("POST", path, {"url": SITE, **body})
    assert (answer.status, answer.json["success"]) == (200, True), answer.body
    assert answer.json["url"] == f"http://127.0.0.1:8000{path}/{answer.json['id']}"
    job_id: str = answer.json["id"]
    return job_id


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("robots-unreachable: dns: the name does not exist", "SCRAPE_DNS_RESOLUTION_ERROR"),
        ("robots-unreachable: tls: the certificate has expired", "SCRAPE_SSL_ERROR"),
        ("robots-unreachable: HTTP 503", "SCRAPE_SITE_ERROR"),
        ("robots: Disallow: / (line 2)", "CRAWL_DENIAL"),
    ],
)
def test_a_site_that_cannot_be_reached_is_no_denial(error: str, code: str) -> None:
    kind = error_class(0, error) or ErrorClass.OTHER
    assert error_code(Failure(number=1, url=SITE, status=0, error=error, error_class=kind, depth=0, at=0.0)) == code


@pytest.mark.parametrize("version", [1, 2])
def test_a_crawl_from_its_start_to_its_documents(run: Callable[..., None], version: int) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        job = await start(call, f"/v{version}/crawl", limit=50)
        path = f"/v{version}/crawl/{job}"
        first = (await call("GET", path)).json
        assert (first["status"], first["data"], "next" in first) == ("scraping", [], False)
        assert [one["id"] for one in (await call("GET", f"/v{version}/crawl/active")).json["crawls"]] == [job]
        service.move(job, TaskState.RUNNING)
        for number in range(5):
            service.page(job, f"{SITE}{number}", markdown=f"# {number}", metadata={"title": "T"})
        service.error(job, f"{SITE}bad")
        some = (await call("GET", f"{path}?limit=2")).json
        assert [one["url"] for one in some["data"]] == [f"{SITE}0", f"{SITE}1"] and some["completed"] == 5
        seen = some["data"]
        while "next" in some:
            some = (await call("GET", some["next"].removeprefix("http://127.0.0.1:8000"))).json
            seen += some["data"]
        assert [one["markdown"] for one in seen] == [f"# {number}" for number in range(5)]
        assert some["status"] == "scraping" and "next" not in some, "a running job has no `next` at its end"
        metadata = seen[0]["metadata"]
        assert (metadata["title"], metadata["sourceURL"], metadata["statusCode"]) == ("T", f"{SITE}0", 200)
        errors = (await call("GET", f"{path}/errors")).json
        assert [one["url"] for one in errors["errors"]] == [f"{SITE}bad"] and errors["robotsBlocked"] == []
        assert ("code" in errors["errors"][0]) == (version == 2)
        by_delete = await call("DELETE", f"{path}/errors")
        assert by_delete.json == errors if version == 1 else by_delete.status == 405
        service.move(job, TaskState.PARTIAL, FinishReason.DONE)
        done = (await call("GET", path)).json
        assert done["status"] == "completed" and "pages failed" in done["warning"]
        late = await call("DELETE", path)
        assert (late.status, late.json["error"]) == (409, "Crawl is already completed")

    run(test)


def test_the_plain_status_of_a_job_that_runs_is_one_page(run: Callable[..., None]) -> None:
    """Clients follow `next` at each poll: they would chase a crawl to its end."""

    async def test(call: Asgi, service: ScriptedService) -> None:
        job = await start(call)
        service.move(job, TaskState.RUNNING)
        for number in range(101):
            service.page(job, f"{SITE}{number}", markdown="x")
        plain, paged = (await call("GET", f"/v2/crawl/{job}")).json, (await call("GET", f"/v2/crawl/{job}?skip=0")).json
        assert (len(plain["data"]), "next" in plain, plain["completed"]) == (100, False, 101)
        assert (len(paged["data"]), "next" in paged) == (100, True)
        service.move(job, TaskState.COMPLETED, FinishReason.DONE)
        assert "next" in (await call("GET", f"/v2/crawl/{job}")).json

    run(test)


def test_skipped_documents_are_not_read(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        job = await start(call)
        for number in range(30):
            service.page(job, f"{SITE}{number}", markdown="x")
            service.error(job, f"{SITE}bad/{number}")
        monkeypatch.setattr(service, "latest", None)  # which reads all events
        path = f"/v2/crawl/{job}"
        for skip in (0, 1, 17, 29, 30, 1000):
            found = (await call("GET", f"{path}?skip={skip}&limit=5")).json
            assert [one["url"] for one in found["data"]] == [f"{SITE}{number}" for number in range(30)][skip : skip + 5]

    run(test)


def test_a_document_that_has_no_text_says_why(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        job = await start(call)
        for kind in ("application/pdf", "text/html", ""):
            service.page(job, f"{SITE}{kind}", markdown="", content_type=kind)
        service.page(job, f"{SITE}text", markdown="its text", content_type="application/pdf")
        found = (await call("GET", f"/v2/crawl/{job}")).json["data"]
        assert [one.get("warning") for one in found] == [
            "application/pdf is not read: there is no text of it", None, None, None,
        ]  # fmt: skip

    run(test)


def test_a_start_that_is_sent_again_is_one_job(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        first = await start(call, limit=5)
        assert await start(call, limit=5) == first != await start(call, limit=6)
        for name in ("x_idempotency_key", "idempotency_key"):
            answer = await call("POST", "/v2/crawl", {"url": SITE, "limit": 7}, **{name: "word"})
            assert answer.json["id"] == list(service.tasks)[2]
        other = await call("POST", "/v2/crawl", {"url": SITE, "limit": 8}, x_idempotency_key="word")
        assert (other.status, other.json["success"]) == (409, False)
        assert len(service.tasks) == 3

    run(test)


def test_a_cancel_says_cancelled_as_often_as_it_is_asked(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        job = await start(call)
        for _ in range(2):
            answer = await call("DELETE", f"/v2/crawl/{job}")
            assert (answer.status, answer.json["status"]) == (200, "cancelled")
        assert (await call("GET", f"/v2/crawl/{job}")).json["status"] == "cancelled"

    run(test)


def test_urls_in_answers_are_those_that_the_caller_uses(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        sent = {"x_forwarded_proto": "https", "x_forwarded_prefix": "/weft"}
        answer = await call("POST", "/v2/crawl", {"url": SITE}, **sent)
        assert answer.json["url"].startswith("https://127.0.0.1:8000/weft/v2/crawl/")
        sent["x_forwarded_prefix"] = "//evil.example/?"
        answer = await call("POST", "/v2/crawl", {"url": f"{SITE}2"}, **sent)
        assert answer.json["url"].startswith("https://127.0.0.1:8000/v2/crawl/")

    run(test)


def test_errors_are_told_in_firecrawls_words(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        for method, path, body, status, said in (
            ("POST", "/v2/crawl", {"url": SITE, "x": 1}, 400, "x: Unrecognized key in body"),
            ("POST", "/v2/crawl", b"{nonsense", 400, "is not JSON"),
            ("POST", "/v2/crawl", {"url": SITE, "webhook": {"url": SITE, "headers": {"Host": "x"}}}, 400, "'Host'"),
            ("GET", f"/v2/crawl/{'0' * 32}", None, 404, "there is no task"),
            ("GET", "/v1/batch/scrape/nonsense", None, 404, "there is no task"),
            ("GET", "/v2/nonsense", None, 404, "no such route"),
            ("PUT", "/v2/crawl", {}, 405, "does not have that method"),
            ("POST", "/v2/search", {"query": "x"}, 501, "no index of the web"),
            ("POST", "/v1/extract", {"urls": [SITE]}, 501, "language model"),
            ("GET", "/v2/agent/123", None, 501, "language model"),
            ("GET", "/v2/team/activity", None, 501, "Firecrawl's own accounts"),
            ("POST", "/v1/x402/search", {"query": "x"}, 501, "Firecrawl's own accounts"),
            ("GET", f"/v2/crawl/{await start(call)}?limit=0", None, 400, "limit: must be a whole number from 1"),
            ("GET", f"/v2/crawl/{await start(call)}?cursor=x", None, 400, "cursor"),
        ):
            answer = await call(method, path, body, **({"content_type": "application/json"} if body else {}))
            assert (answer.status, answer.json["success"]) == (status, False), (path, answer.body)
            assert said in answer.json["error"] and answer.headers["content-type"] == "application/json"
        foreign = await call("POST", "/v2/crawl", {"url": SITE}, origin="https://evil.example")
        assert (foreign.status, foreign.json["success"]) == (403, False)
        service.fails = EngineAway("it starts")
        away = await call("POST", "/v2/crawl", {"url": f"{SITE}9"})
        assert (away.status, away.json["success"], away.headers["retry-after"]) == (503, False, "2")

    run(test)


def test_starts_are_limited_and_looks_are_not(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        job = await start(call)
        refused = await call("POST", "/v2/crawl", {"url": f"{SITE}2"})
        assert (refused.status, refused.json["success"]) == (429, False) and "retry-after" in refused.headers
        for _ in range(50):
            assert (await call("GET", f"/v2/crawl/{job}")).status == 200

    run(test, submits_per_s=0.001, submit_burst=1)


def test_usage_says_that_nothing_is_metered(run: Callable[..., None]) -> None:
    async def test(call: Asgi, service: ScriptedService) -> None:
        assert (await call("GET", "/v2/concurrency-check")).json == {
            "success": True, "concurrency": 0, "maxConcurrency": 5,
        }  # fmt: skip
        assert (await call("GET", "/v2/team/queue-status")).json["jobsInQueue"] == 0
        assert (await call("GET", "/v2/team/credit-usage")).json["data"]["remainingCredits"] > 0
        assert (await call("GET", "/v1/team/credit-usage")).json["warning"] == "nothing is metered"

    run(test)
