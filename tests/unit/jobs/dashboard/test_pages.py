"""The pages, over a service in memory: what they show, what is escaped and cut, filters, forms, downloads, streams."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from asgi_client import Answer, Asgi
from pace import patience
from scripted_service import ScriptedService

from weft.config import load_service
from weft.fetch.proxies import live
from weft.fetch.proxies.live import Live, LiveFile
from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.dashboard import board, task_lists
from weft.jobs.dashboard.panels import Panel, column_kinds, load_panels
from weft.jobs.dashboard.task_form import rules_of
from weft.jobs.errors import EngineAway
from weft.jobs.model import Lane, TaskSpec
from weft.jobs.proxies_panel import ProxiesPanel
from weft.jobs.service import Submission
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.site_service import Sites
from weft.jobs.store.sqlite import SqliteJobStore
from weft.jobs.webhooks.webhook_model import Delivery, hook_spec_of
from weft.records import PanelTable
from weft.scraping import FinishReason, HookEvent, TaskState
from weft.system.services import PANELS

Test = Callable[[Asgi, ScriptedService], Awaitable[None]]
OWN = {"origin": "http://127.0.0.1:8000"}
HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 100_000


def run(folder: Path, test: Test, panels: Sequence[Panel] = (), **settings: Any) -> None:
    async def main() -> None:
        service = ScriptedService()
        app = create_app(service, ApiSettings(data_dir=folder, **settings), panels)
        await test(Asgi(app, OWN), service)

    asyncio.run(main())


async def post(caller: Asgi, path: str, form: Any, **headers: str) -> Answer:
    kind = "application/x-www-form-urlencoded"
    return await caller("POST", path, urlencode(form, doseq=True).encode(), content_type=kind, **headers)


async def order(service: ScriptedService, url: str = "http://a.test/", **spec: Any) -> str:
    return (await service.submit(Submission(urls=(url,), spec=TaskSpec(**spec)))).task.id


def test_the_first_page_shows_what_runs_and_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_lists, "KEPT_S", 0.0)  # no page is kept for the next who looks
    monkeypatch.setattr(board, "FRESH_S", 0.0)

    async def test(caller: Asgi, service: ScriptedService) -> None:
        assert b"There are no tasks yet" in (await caller("GET", "/")).body
        running, ended = await order(service, "http://run.test/a"), await order(service, "http://end.test/b")
        service.move(running, TaskState.RUNNING)
        service.page(running, "http://run.test/a")
        service.move(ended, TaskState.RUNNING)
        service.move(ended, TaskState.COMPLETED, FinishReason.DONE)
        page = (await caller("GET", "/")).body.decode()
        before, _, after = page.partition("Waiting and ended")
        assert running in before and running not in after and ended in after
        assert "Running" in before and "run.test" in before and "Completed" in after

    run(tmp_path, test)


def test_filters_and_stretches_of_a_long_list(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        for number in range(120):
            await order(service, f"http://host{number % 2}.test/page{number}")
        first = (await caller("GET", "/")).body.decode()
        assert first.count("<tr data-task=") == 50
        assert 'href="/?cursor=50" rel="next"' in first
        found = (await caller("GET", "/?host=host1.test&q=page11")).body.decode()
        assert found.count("<tr data-task=") == 6 and 'value="page11"' in found
        assert (await caller("GET", "/?state=running")).body.count(b"<tr data-task=") == 0
        assert (await caller("GET", "/?state=PENDING")).body.count(b"<tr data-task=") == 50
        for query in ("state=odd", "cursor=x"):
            assert (await caller("GET", f"/?{query}")).status == 422

    run(tmp_path, test)


def test_texts_of_strangers_are_escaped_and_cut_everywhere(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        task = await order(
            service, "http://a.test/" + "%3Cscript%3E" + "y" * 1500, include=("<script>alert(2)</script>",)
        )
        service.move(task, TaskState.RUNNING)
        service.happens(task, "page", url=f"http://a.test/{HOSTILE}", status=200, title=HOSTILE, depth=0, length=5)
        service.happens(task, "page", url="javascript:alert(3)", status=200, title="t", depth=0, length=5)
        for path in ("/", f"/tasks/{task}", f"/tasks/{task}/pages", f"/?q={HOSTILE[:60]}", "/tasks/<script>"):
            page = (await caller("GET", path)).body.decode()
            assert "<script>alert" not in page and "\u202e" not in page, path
            assert 'href="javascript:' not in page
            assert len(page) < 60_000, path
        assert "&lt;script&gt;alert(1)" in (await caller("GET", f"/tasks/{task}")).body.decode()

    run(tmp_path, test)


def test_a_tasks_page_and_what_changes_it(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        task = await order(service)
        assert b"Waiting" in (await caller("GET", f"/tasks/{task}")).body
        service.move(task, TaskState.RUNNING)
        service.page(task, "http://a.test/one", markdown="# One")
        service.error(task, "http://a.test/two")
        for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("pause", "PAUSED"), ("cancel", "CANCELLED")):
            answer = await post(caller, f"/tasks/{task}/{verb}", {})
            assert (answer.status, answer.headers["location"]) == (303, f"/tasks/{task}")
            assert service.tasks[task].state == state
        # A button that somebody has left open changes nothing, and is no error.
        assert (await post(caller, f"/tasks/{task}/resume", {})).status == 303
        page = (await caller("GET", f"/tasks/{task}")).body.decode()
        assert "it was cancelled" in page and "/two" in page and "HTTP 5xx" in page and "/cancel" not in page
        errors = (await caller("GET", f"/tasks/{task}/pages?kind=error&class=http_5xx")).body.decode()
        assert "/two" in errors and "/one" not in errors
        assert (await caller("GET", f"/tasks/{task}/pages?kind=error&class=dns")).body.count(b"data-number") == 0
        for path in ("pages?kind=x", "pages?class=x", "pages?before=x", "results?format=pdf"):
            assert (await caller("GET", f"/tasks/{task}/{path}")).status == 422
        assert (await caller("GET", "/tasks/" + "0" * 32)).status == 404

    run(tmp_path, test)


def test_a_page_is_read_as_text_that_is_never_code(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        task = await order(service)
        service.error(task, "http://a.test/two")
        service.page(
            task, "http://a.test/one", markdown="# One\n<script>alert(1)</script>\u202e", fields={"price": [1]}
        )
        service.page(task, "http://a.test/long", html="<b>" + "x" * 300_000)
        service.page(task, "http://a.test/none")
        listed = (await caller("GET", f"/tasks/{task}/pages")).body.decode()
        assert f'href="/tasks/{task}/pages/2"' in listed and f"/tasks/{task}/pages/1" not in listed
        page = (await caller("GET", f"/tasks/{task}/pages/2")).body.decode()
        assert "# One\n&lt;script&gt;alert(1)&lt;/script&gt;" in page and "<script>alert" not in page
        assert "\u202e" not in page and "&#34;price&#34;" in page and "A title" in page
        assert f"/tasks/{task}/results?format=markdown" in page and 'href="http://a.test/one"' in page
        page = (await caller("GET", f"/tasks/{task}/pages/3")).body.decode()
        assert "the beginning of 300,003 characters" in page and len(page) < 210_000 and "&lt;b&gt;xxx" in page
        assert "its task has no `formats`" in (await caller("GET", f"/tasks/{task}/pages/4")).body.decode()
        for number in ("1", "5", "0", "x", "9" * 30):  # an error, none, and what is no number
            assert (await caller("GET", f"/tasks/{task}/pages/{number}")).status == 404

    run(tmp_path, test)


def test_sites_are_run_and_stopped_by_buttons(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        with closing(SqliteJobStore(tmp_path / "jobs.db")) as store:
            service.sites = Sites(SiteRegistry(tmp_path, store=store), lambda _: None, lambda: None)
            assert b"weft sites add" in (await caller("GET", "/sites")).body
            await service.sites.add({"name": "shop", "start_urls": ["http://a.test/"]}, "")
            page = (await caller("GET", "/sites")).body.decode()
            assert 'action="/sites/shop/run"' in page and "/stop" not in page
            answer = await post(caller, "/sites/shop/run", {})
            assert (answer.status, answer.headers["location"]) == (303, "/sites")
            page = (await caller("GET", "/sites")).body.decode()
            assert 'action="/sites/shop/stop"' in page and "/run" not in page
            assert (await post(caller, "/sites/shop/stop", {})).status == 303
            assert b"Stopping" in (await caller("GET", "/sites")).body  # until a runner has ended it
            assert (await post(caller, "/sites/nowhere/run", {})).status == 404
            assert (await caller("GET", "/sites/shop/run")).status == 405
            assert (await post(caller, "/sites/shop/run", {}, origin="http://evil.example")).status == 403

    run(tmp_path, test)


def test_results_are_downloaded_whole(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        task = await order(service)
        for number in range(450):
            service.page(task, f"http://a.test/{number}", markdown="=1+1")
        lines = (await caller("GET", f"/tasks/{task}/results?format=jsonl")).body.splitlines()
        assert [json.loads(line)["url"] for line in lines] == [f"http://a.test/{number}" for number in range(450)]
        table = await caller("GET", f"/tasks/{task}/results?format=csv")
        assert table.body.count(b"\r\n") == 451 and "attachment" in table.headers["content-disposition"]

    run(tmp_path, test)


def test_lines_of_the_log_that_name_the_task(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        task = await order(service)
        log = tmp_path / "logs" / "api0.log"
        log.parent.mkdir()
        log.write_text(f"2026 task started task={task} <b>\n2026 task started task=another\n")
        page = (await caller("GET", f"/tasks/{task}")).body.decode()
        assert f"task started task={task} &lt;b&gt;" in page and "another" not in page

    run(tmp_path, test, log_dir=tmp_path / "logs")


def test_a_task_is_submitted_by_a_form_and_once(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        page = (await caller("GET", "/new")).body.decode()
        assert 'name="url"' in page and "checked" in page
        form = {
            "url": "https://example.com/", "max_depth": "3", "timeout_minutes": "5", "max_concurrent_articles": "2",
            "retry_attempts": "0", "max_pages": "9", "include": "/a/*\n\n/b/*", "exclude": "*/c", "scope": "host",
            "extract": "title: h1\nprice: .price", "formats": ["text", "links"], "include_tags": "article",
            "exclude_tags": ".ads", "only_main_content": "on", "export_format": "csv", "token": "a" * 32,
            "links": "text",
        }  # fmt: skip
        first, again = await post(caller, "/new", form), await post(caller, "/new", form)
        assert first.status == 303 and first.headers["location"] == again.headers["location"]
        (task,) = service.tasks.values()
        assert task.spec == TaskSpec(
            max_depth=3, timeout_s=300.0, max_concurrent_articles=2, retry_attempts=0, max_pages=9,
            trap_rules=False, partial_results_ok=False,
            include=("/a/*", "/b/*"), exclude=("*/c",), scope="host", export_format="csv",
            extract={"title": "h1", "price": ".price"}, formats=("text", "links"),
            format_options={
                "include_tags": ["article"], "exclude_tags": [".ads"], "only_main_content": True, "links": "text",
            },
        )  # fmt: skip

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("form", "field", "said"),
    [
        ({"url": "nonsense"}, "url", "http"),
        ({"url": "http://169.254.169.254/"}, "url", ""),
        ({"max_depth": "many"}, "max_depth", "not accepted"),
        ({"timeout_minutes": "1"}, "timeout_minutes", "5"),
        ({"include": "re:.*"}, "include", "globs"),
        ({"extract": "no colon"}, "extract", "line 1"),
        ({"extract": '{"a": }'}, "extract", "JSON"),
        ({"extract": '{"a": {"css": "h1", "typ": "x"}}'}, "extract", "typ"),
        ({"extract": "a: ]["}, "extract", ""),
        ({"formats": ["pdf"]}, "formats", ""),
        ({"scope": "galaxy"}, "scope", "domain"),
        ({"proxies": "on"}, "proxies", "this service has none"),
        ({"webhook": "http://169.254.169.254/", "hook_events": ["page"]}, "webhook", ""),
        ({"webhook": "https://a.test/", "hook_events": ["page"], "hook_headers": "none"}, "webhook", "headers"),
        ({"webhook": "https://a.test/", "hook_events": ["page"], "hook_metadata": "{"}, "webhook", "metadata"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_what_was_written_stays(
    tmp_path: Path, form: dict[str, Any], field: str, said: str
) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        answer = await post(caller, "/new", {"url": "https://example.com/", "exclude": "/kept/*", **form})
        page = answer.body.decode()
        assert answer.status == 422 and not service.tasks
        assert f'<a href="#{field}">' in page and f">{field}</a>" not in page and said in page  # by what is on the form
        assert "/kept/*" in page and 'role="alert"' in page

    run(tmp_path, test)


def test_proxies_are_asked_for_where_the_service_has_them(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        box = 'name="proxies" id="proxies" value="on"'
        page = (await caller("GET", "/new")).body.decode()
        assert f"{box} aria-describedby" in page, "neither ticked nor disabled"
        answer = await post(caller, "/new", {"url": "https://example.com/", "proxies": "on"})
        (task,) = service.tasks.values()
        assert (
            task.spec.proxies and "the service&#39;s" in (await caller("GET", answer.headers["location"])).body.decode()
        )

    run(tmp_path, test, has_proxies=True)


def test_rules_as_lines_and_as_json() -> None:
    assert rules_of("title: h1\n\n link : a:first-child") == {"title": "h1", "link": "a:first-child"}
    assert rules_of('{"a": {"xpath": "//a"}}') == {"a": {"xpath": "//a"}}


def test_rules_are_tried_on_one_page(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        async def scrape() -> None:
            async with asyncio.timeout(patience(5)):
                while not service.tasks:
                    await asyncio.sleep(0.001)
            (task,) = service.tasks.values()
            service.move(task.id, TaskState.RUNNING)
            fields = {"fields": {"price": "<b>9</b>", "none": None}, "field_errors": {"none": "required"}}
            service.page(task.id, "https://example.com/", markdown=HOSTILE, **fields)
            service.move(task.id, TaskState.COMPLETED, FinishReason.DONE)

        form = {"url": "https://example.com/", "extract": "price: .price\nnone: .x", "max_depth": "9", "try": "1"}
        answer, _ = await asyncio.gather(post(caller, "/new", form), scrape())
        (task,) = service.tasks.values()
        assert (task.spec.lane, task.spec.max_depth, task.spec.max_pages) == (Lane.SCRAPE, 0, 1)
        page = answer.body.decode()
        assert answer.status == 200 and "&lt;b&gt;9&lt;/b&gt;" in page and "required" in page
        assert "<script>alert" not in page and len(page) < 30_000
        assert "price: .price" in page  # what was written stays

    run(tmp_path, test)


def test_a_webhook_is_ordered_watched_and_sent_again(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        form = {
            "url": "https://example.com/", "webhook": "https://hooks.test/a", "hook_events": ["started", "failed"],
            "hook_headers": "Authorization: Bearer secret", "hook_metadata": '{"n": 7}', "formats": ["text"],
        }  # fmt: skip
        task = (await post(caller, "/new", form)).headers["location"].rpartition("/")[2]
        hook = hook_spec_of(service.tasks[task])
        assert hook is not None and hook.events == ("started", "failed")
        assert (hook.url, hook.headers, hook.metadata) == (
            "https://hooks.test/a", {"Authorization": "Bearer secret"}, {"n": 7},
        )  # fmt: skip
        one = Delivery(
            number=3, event=HookEvent.STARTED, attempts=2, first_at=1.0, last_at=2.0, delivered_at=None, status=500,
            error="HTTP 500: <b>no</b>",
        )  # fmt: skip
        service.webhooks.log[task] = [one]
        assert b"hooks.test" in (await caller("GET", f"/tasks/{task}")).body
        page = (await caller("GET", f"/tasks/{task}/webhook")).body
        assert b"<bdi>&lt;b&gt;no&lt;/b&gt;</bdi>" in page and b"secret" not in page
        assert (await post(caller, f"/tasks/{task}/webhook/replay", {"number": "3"})).status == 303
        assert service.webhooks.hooks[task].resend == (3,)
        await post(caller, f"/tasks/{task}/webhook/replay", {"all": "1"})
        assert service.webhooks.hooks[task].cursor == -1
        assert (await post(caller, f"/tasks/{task}/webhook/replay", {"number": "x"})).status == 422
        other = await order(service)
        assert (await caller("GET", f"/tasks/{other}/webhook")).status == 404

    run(tmp_path, test)


class Odd:
    title = "Odd <ones>"

    def table(self) -> PanelTable:
        return PanelTable(("Name", "Value"), (("<b>", "1"),) * 300, "Use `weft <b>`.")


class Broken:
    title = "Broken"

    def table(self) -> PanelTable:
        raise OSError("no such thing")


def test_columns_of_numbers_stand_right_and_long_texts_are_wrapped() -> None:
    rows = (("a", "1,204", "98%", "", "x" * 30), ("b", "7", "", "", "short"))
    assert column_kinds(PanelTable(("Name", "Pages", "Success", "Empty", "Said"), rows)) == ("", "n", "n", "", "long")


def test_proxies_are_shown_without_their_passwords(tmp_path: Path) -> None:
    listed, found = tmp_path / "list.txt", tmp_path / "live_proxies.json"
    listed.write_text("user:secret@10.0.0.1:80\n10.0.0.2:80 tier=1 country=DE\n")
    table = ProxiesPanel(load_service(environment={}, flags={"proxies": str(listed)})).table()
    assert table.rows[0][0] == "http://user@10.0.0.1:80" and table.rows[1][-2:] == ("1", "DE")
    live.write(found, LiveFile(tested=5, proxies=(Live(url="http://user:secret@10.0.0.1:80", latency_s=0.02),)))
    table = ProxiesPanel(load_service(environment={}, flags={"proxies": str(found)})).table()
    assert table.rows == (("http://user@10.0.0.1:80", "20 ms", "unknown", "", "0", ""),)
    assert table.note == "1 of 5 usable, 10 needed."
    live.write(found, LiveFile(tested=50, proxies=(Live(url="http://10.0.0.1:80", latency_s=0.02),) * 30))
    table = ProxiesPanel(load_service(environment={}, flags={"proxies": str(found)})).table()
    assert len(table.rows) == 20 and table.note.startswith("30 of 50 usable") and "weft proxies list" in table.note


def test_the_service_with_panels_of_other_rooms(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        page = (await caller("GET", "/service")).body.decode()
        assert "Everything is well" in page and "Odd &lt;ones&gt;" in page and "&lt;b&gt;" in page
        assert "Use <code>weft &lt;b&gt;</code>." in page
        assert "And 100 more." in page and "It cannot be shown: no such thing" in page
        service.problems = ("the engine has not answered in 2 s",)
        assert "the engine has not answered" in (await caller("GET", "/service")).body.decode()

    run(tmp_path, test, panels=(Odd(), Broken()))
    assert [panel.title for panel in load_panels(PANELS, load_service(None))] == ["Crawls on this machine"]


def test_an_engine_that_is_away_is_a_page_and_not_a_traceback(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        service.fails = EngineAway("it is being started")
        answer = await caller("GET", "/tasks/" + "0" * 32)
        assert (answer.status, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert b"does not answer" in answer.body and b"Traceback" not in answer.body

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("PUT", "/", 405), ("POST", "/", 405), ("GET", "/tasks/", 404), ("GET", "/static/../app.py", 404),
     ("GET", "/static/nothing.js", 404), ("GET", "/sign-out", 405), ("GET", "/new/x", 404)],
)  # fmt: skip
def test_paths_that_are_none(tmp_path: Path, method: str, path: str, status: int) -> None:
    async def test(caller: Asgi, _: ScriptedService) -> None:
        answer = await (post(caller, path, {}) if method == "POST" else caller(method, path))
        assert answer.status == status and b"<html" in answer.body

    run(tmp_path, test)


def test_what_pages_load_is_kept_by_browsers_and_small(tmp_path: Path) -> None:
    async def test(caller: Asgi, _: ScriptedService) -> None:
        page = (await caller("GET", "/", accept_encoding="gzip, br")).body
        html = gzip.decompress(page).decode()
        loaded = html.partition('<script type="module" src="')[2].partition('"')[0]
        script = await caller("GET", loaded, accept_encoding="gzip")
        assert "immutable" in script.headers["cache-control"] and b"EventSource" in gzip.decompress(script.body)
        style = await caller("GET", html.partition('stylesheet" href="')[2].partition('"')[0], accept_encoding="gzip")
        assert len(page) + len(script.body) + len(style.body) < 15_000
        again = await caller("GET", loaded, if_none_match=script.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        assert b"EventSource" in (await caller("GET", loaded)).body

    run(tmp_path, test)


def test_the_stream_of_the_list_and_of_a_task(tmp_path: Path) -> None:
    async def test(caller: Asgi, service: ScriptedService) -> None:
        task = await order(service)
        service.move(task, TaskState.RUNNING)
        service.page(task, "http://a.test/one")
        lists, one = caller.begin("GET", "/live"), caller.begin("GET", f"/tasks/{task}/live")
        await until(lambda: b"event: tasks" in lists.answer.body and b"event: task\n" in one.answer.body)
        row = data_of(lists.answer)["rows"][0]
        assert (row["id"], row["done"], row["label"]) == (task, "1", "Running")
        service.page(task, "http://a.test/two")
        service.move(task, TaskState.COMPLETED, FinishReason.DONE)
        await until(lambda: one.answer.is_whole)  # a task that has ended says nothing more
        last = data_of(one.answer)
        assert last["is_over"] and last["figures"]["completed"] == "2" and len(last["charts"]) == 3
        assert [event["path"] for event in last["latest"]] == ["/two", "/one"]
        lists.hang_up()
        await lists.task

    run(tmp_path, test)


async def until(test: Callable[[], bool]) -> None:
    async with asyncio.timeout(patience(10)):
        while not test():
            await asyncio.sleep(0.01)


def data_of(answer: Answer) -> Any:
    """The last event of a stream."""
    return json.loads(answer.body.rpartition(b"data: ")[2].partition(b"\n")[0])
