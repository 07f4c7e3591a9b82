"""Who may call the service: loopback names without keys, keys with their scopes everywhere else."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asgi_client import Asgi
from scripted_service import ScriptedService

from weft.errors import BadInput, Damaged
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.access.rates import Rate
from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings, check_address
from weft.scraping import TaskState

ORDER = {"url": "https://example.com/"}
SUBMIT = "/scraping/async-scrape"
Test = Callable[[Any, ScriptedService], Awaitable[None]]


def run(folder: Path, test: Test, **settings: Any) -> None:
    """Runs a test with a function that makes callers with some headers."""

    async def main() -> None:
        service = ScriptedService()
        app = create_app(service, ApiSettings(data_dir=folder, **settings))
        await test(lambda **headers: Asgi(app, headers), service)

    asyncio.run(main())


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "[::1]"])
def test_loopback_names_reach_a_service_without_keys(tmp_path: Path, host: str) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        assert (await caller(host=host)("POST", SUBMIT, ORDER)).status == 202
        own = caller(host=host, origin=f"http://{host.lower()}", sec_fetch_site="same-origin")
        assert (await own("POST", SUBMIT, ORDER)).status == 202

    run(tmp_path, test)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "127.evil", "[::2]",
     "192.168.1.5:8000", "localhost:8000@evil.example", "0.0.0.0:8000", "127.0.0.1:8000, evil.example"],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here_is_refused(tmp_path: Path, host: str) -> None:
    async def test(caller: Any, service: ScriptedService) -> None:
        for method, path, body in (("POST", SUBMIT, ORDER), ("GET", "/scraping/tasks", None), ("GET", "/docs", None)):
            answer = await caller(host=host)(method, path, body)
            assert (answer.status, list(answer.fields)) == (403, ["Host"]), (method, path)
        assert not service.tasks

    run(tmp_path, test)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "https://127.0.0.1:8000"},
        {"origin": "http://localhost:8000"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"},
    ],
)
def test_a_foreign_page_cannot_submit(tmp_path: Path, headers: dict[str, str]) -> None:
    async def test(caller: Any, service: ScriptedService) -> None:
        call = caller(host="127.0.0.1:8000", **{name.replace("_", "-"): value for name, value in headers.items()})
        for body in (ORDER, None):
            answer = await call("POST", SUBMIT, body)
            assert (answer.status, len(answer.fields)) == (403, 1)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert (await call("OPTIONS", SUBMIT)).status in (403, 405)
        assert not service.tasks

    run(tmp_path, test)


def test_a_link_from_elsewhere_may_be_followed(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert (await caller(**headers)("GET", "/docs")).status == 200
        assert (await caller(**headers | {"sec-fetch-dest": "iframe"})("GET", "/docs")).status == 403

    run(tmp_path, test)


def test_with_keys_each_request_needs_one(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        ring = Keyring(tmp_path / "api-keys.json")
        assert (await caller()("GET", "/scraping/tasks")).status == 200
        text, key = ring.create("one")
        assert (await caller(**{"x-api-key": text})("GET", "/scraping/tasks")).status == 200
        for headers in ({}, {"authorization": "Bearer nonsense"}, {"x-api-key": text[:-1]}, {"authorization": text}):
            answer = await caller(**headers)("POST", SUBMIT, ORDER)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="weft"'), headers
        for headers in ({"authorization": f"Bearer {text}"}, {"authorization": f"bearer  {text}"}, {"x-api-key": text}):
            assert (await caller(host="weft.example", **headers)("POST", SUBMIT, ORDER)).status == 202
        for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
            assert (await caller(host="weft.example")("GET", path)).status == 200, path
        assert (await caller()("GET", "/metrics")).status == 401
        ring.revoke(key.id)
        assert (await caller(**{"x-api-key": text})("POST", SUBMIT, ORDER)).status == 401, (
            "and not: no keys, so none needed"
        )

    run(tmp_path, test)


def test_a_scope_that_is_lacking_is_named(tmp_path: Path) -> None:
    text, _ = Keyring(tmp_path / "api-keys.json").create("watcher", (KeyScope.MONITOR,))

    async def test(caller: Any, _: ScriptedService) -> None:
        call = caller(**{"x-api-key": text})
        assert (await call("GET", "/scraping/status")).status == 200
        for method, path, scope in (
            ("POST", SUBMIT, "submit"), ("GET", "/scraping/tasks", "read"),
            ("DELETE", f"/scraping/tasks/{'0' * 32}", "control"),
        ):  # fmt: skip
            answer = await call(method, path, ORDER if method == "POST" else None)
            assert (answer.status, repr(scope) in answer.json["detail"]) == (403, True)

    run(tmp_path, test)


def test_another_keys_task_is_not_there(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "api-keys.json")
    (mine, _), (other, _) = ring.create("mine"), ring.create("other")

    async def test(caller: Any, service: ScriptedService) -> None:
        me, they = caller(**{"x-api-key": mine}), caller(**{"x-api-key": other})
        task_id = (await me("POST", SUBMIT, ORDER, idempotency_key="k")).json["task_id"]
        service.move(task_id, TaskState.RUNNING)
        for method, end in (("GET", "/status"), ("GET", "/results"), ("GET", "/events"), ("DELETE", ""),
                            ("POST", "/pause"), ("POST", "/resume")):  # fmt: skip
            theirs = await they(method, f"/scraping/tasks/{task_id}{end}")
            nobodys = await they(method, f"/scraping/tasks/{'0' * 32}{end}")
            assert (theirs.status, nobodys.status) == (404, 404), end
            assert theirs.json["detail"].replace(task_id, "0" * 32) == nobodys.json["detail"]
        assert (await they("GET", "/scraping/tasks")).json["tasks"] == []
        assert (await they("POST", SUBMIT, ORDER, idempotency_key="k")).json["task_id"] != task_id
        assert service.tasks[task_id].state is TaskState.RUNNING

    run(tmp_path, test)


def test_headers_that_decide_come_once(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        call = caller()
        call._headers["Host"] = "evil.example"  # beside `host`
        assert (await call("GET", "/scraping/tasks")).status == 400

    run(tmp_path, test)


def test_a_body_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        call = caller().begin("POST", SUBMIT, b"{")
        call._body = None
        await call.task
        assert (call.answer.status, call.answer.headers["connection"]) == (408, "close")

    run(tmp_path, test, body_timeout_s=0.05)


def test_every_answer_says_what_browsers_may_not_do_with_it(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        for path in ("/docs", "/nonsense", "/scraping/tasks"):
            headers = (await caller()("GET", path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"

    run(tmp_path, test)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "", "192.168.1.2", "example.com", "127.evil.example"])
def test_an_open_address_needs_keys(host: str) -> None:
    check_address(host, True, "my folder")
    with pytest.raises(BadInput, match=r"there are no API keys.*`weft keys create NAME --data-dir 'my folder'`"):
        check_address(host, False, "my folder")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"])
def test_loopback_needs_none(host: str) -> None:
    check_address(host, False, "folder")


def test_secrets_are_not_in_the_file_and_the_file_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "api-keys.json"
    text, key = Keyring(path).create("one", (KeyScope.READ,))
    assert text.partition(key.id)[2].strip("_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = Keyring(path).check(text)
    assert found is not None and (found.name, found.scopes) == ("one", (KeyScope.READ,))
    assert [
        Keyring(path).check(bad) for bad in ("", text[:-1], text + "x", "é" * 200, f"weft_{'0' * 12}_{'A' * 43}")
    ] == [None] * 5


def test_names_of_keys_are_plain_and_their_own(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "api-keys.json")
    ring.create("one")
    for bad in ("", "one", "a\nb", "x" * 65, " x"):
        with pytest.raises(BadInput):
            ring.create(bad)
    ring.revoke("one")
    ring.create("one")
    with pytest.raises(BadInput, match="no key 'two'"):
        ring.revoke("two")
    assert [key.revoked_at is None for key in ring.all()] == [False, True]


def test_a_damaged_key_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "api-keys.json"
    path.write_bytes(os.urandom(50))
    ring = Keyring(path)
    assert not ring.is_empty and isinstance(ring.problem, Damaged)
    with pytest.raises(Damaged, match="is not a file of API keys"):
        ring.all()


@pytest.mark.parametrize("what", ["gone", "empty", "cut", "no keys", "a folder"])
def test_a_service_that_has_had_keys_stays_closed(tmp_path: Path, what: str) -> None:
    path = tmp_path / "api-keys.json"
    ring = Keyring(path)
    text, _ = ring.create("one")

    def spoil() -> None:
        whole = path.read_bytes()
        path.unlink()
        if what == "a folder":
            path.mkdir()
        elif what != "gone":
            path.write_bytes({"empty": b"", "cut": whole[:40], "no keys": b'{"keys": []}'}[what])

    async def test(caller: Any, _: ScriptedService) -> None:
        assert (await caller(**{"x-api-key": text})("GET", "/scraping/tasks")).status == 200
        spoil()
        for headers in ({}, {"x-api-key": text}):
            answer = await caller(**headers)("GET", "/scraping/tasks")
            assert (answer.status, answer.headers["retry-after"]) == (503, "30"), headers
            assert str(tmp_path) not in answer.body.decode()
        ready = await caller()("GET", "/readyz")
        assert (ready.status, ready.json["problems"]) == (503, ["API keys cannot be read: all requests are refused"])
        assert (await caller()("GET", "/healthz")).status == 200, "another worker would read no other file"
        if what != "a folder":
            again = Keyring(path).create("two")[0] if what in ("gone", "no keys") else _restored(path)
            assert (await caller(**{"x-api-key": again})("GET", "/scraping/tasks")).status == 200

    run(tmp_path, test)
    if what != "a folder":
        path.unlink()
    problem = Keyring(path).problem
    assert problem is not None and (
        what == "a folder" or f"weft keys create NAME --data-dir {tmp_path}" in str(problem)
    )


def _restored(path: Path) -> str:
    path.unlink()
    return Keyring(path).create("three")[0]


def test_a_service_that_others_can_reach_needs_keys_whatever_became_of_its_folder(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        assert (await caller()("GET", "/scraping/tasks")).status == 503

    run(tmp_path, test, host="0.0.0.0")


def test_a_rate_refills_with_time_and_is_each_owners_own() -> None:
    now = [0.0]
    rate = Rate(2.0, 3, lambda: now[0])
    assert [rate.consume("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.consume("b") == 0
    now[0] = 0.5
    assert [rate.consume("a"), rate.consume("a")] == [0, 0.5]
    now[0] = 100.0
    assert [rate.consume("a") for _ in range(4)] == [0, 0, 0, 0.5], "no more than a burst is saved up"
