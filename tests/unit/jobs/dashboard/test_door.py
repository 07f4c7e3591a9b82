"""Who may see the dashboard: signing in, cookies of others, forms of others, and the policy that every page has."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from asgi_client import Answer, Asgi
from scripted_service import ScriptedService

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.dashboard.sessions import LASTS_S, SECRET_FILE, Sessions
from weft.jobs.dashboard.sign_in import local_path
from weft.jobs.model import TaskSpec
from weft.jobs.service import Submission

Test = Callable[[Any, ScriptedService], Awaitable[None]]
OWN = {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"}
FORM = "application/x-www-form-urlencoded"


def run(folder: Path, test: Test) -> None:
    async def main() -> None:
        service = ScriptedService()
        app = create_app(service, ApiSettings(data_dir=folder))
        await test(lambda **headers: Asgi(app, headers), service)

    asyncio.run(main())


async def post(caller: Asgi, path: str, form: dict[str, str], **headers: str) -> Answer:
    return await caller("POST", path, urlencode(form).encode(), content_type=FORM, **headers)


async def order(service: ScriptedService, owner: str = "") -> str:
    made = Submission(urls=("http://a.test/",), spec=TaskSpec(), owner=owner)
    return (await service.submit(made)).task.id


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def test_every_page_has_a_policy_without_inline_code(tmp_path: Path) -> None:
    async def test(caller: Any, service: ScriptedService) -> None:
        task = await order(service)
        for path in ("/", "/new", "/service", f"/tasks/{task}", f"/tasks/{task}/pages", "/sign-in", "/tasks/nothing"):
            answer = await caller()("GET", path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy, path
            assert answer.headers["x-frame-options"] == "DENY"
            # With `no-referrer` a browser would send `Origin: null` with our own forms.
            assert answer.headers["referrer-policy"] == "same-origin"
            body = answer.body.lower()
            assert b" style=" not in body and b"<style" not in body and b" onclick" not in body
            assert body.count(b"<script") == body.count(b'<script type="module" src="/static/dash.js')

    run(tmp_path, test)


def test_without_keys_only_loopback_names_are_hosts(tmp_path: Path) -> None:
    async def test(caller: Any, service: ScriptedService) -> None:
        assert (await caller(host="localhost:8000")("GET", "/")).status == 200
        assert (await caller(host="evil.example")("GET", "/")).status == 403
        assert (await caller()("GET", "/live", sec_fetch_site="cross-site")).status == 403

    run(tmp_path, test)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
    ],
)
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_form_of_another_site_changes_nothing(tmp_path: Path, headers: dict[str, str], has_keys: bool) -> None:
    text, owner = "", ""
    if has_keys:
        text, key = Keyring(tmp_path / "api-keys.json").create("ci")
        owner = key.id

    async def test(caller: Any, service: ScriptedService) -> None:
        sent = headers
        if has_keys:
            signed_in = await post(caller(), "/sign-in", {"key": text}, **OWN)
            sent = headers | {"cookie": cookie_of(signed_in)}
        task = await order(service, owner)
        for path in (f"/tasks/{task}/cancel", "/new", "/sign-out"):
            answer = await post(caller(), path, {"url": "http://b.test/"}, **sent)
            assert answer.status == 403 and "set-cookie" not in answer.headers
        assert len(service.tasks) == 1 and not service.tasks[task].is_terminal

    run(tmp_path, test)


def test_a_form_must_be_one(tmp_path: Path) -> None:
    async def test(caller: Any, _: ScriptedService) -> None:
        assert (await caller(**OWN)("POST", "/new", {"url": "http://b.test/"})).status == 415
        assert (await post(caller(), "/new", {"url": "x" * 2_000_000}, **OWN)).status == 413

    run(tmp_path, test)


def test_signing_in_and_out(tmp_path: Path) -> None:
    text, key = Keyring(tmp_path / "api-keys.json").create("ci")

    async def test(caller: Any, service: ScriptedService) -> None:
        task = await order(service, key.id)
        asked = await caller()("GET", f"/tasks/{task}?x=1")
        assert (asked.status, asked.headers["location"]) == (303, f"/sign-in?next=/tasks/{task}%3Fx%3D1")
        assert (await caller()("GET", "/live", accept="text/event-stream")).status == 401
        assert (await post(caller(), f"/tasks/{task}/cancel", {}, **OWN)).status == 401
        assert (await caller()("GET", "/sign-in")).status == 200
        assert (await caller()("GET", "/static/dash.css")).status == 200

        wrong = await post(caller(), "/sign-in", {"key": "weft_" + "0" * 12 + "_" + "x" * 43}, **OWN)
        assert wrong.status == 401 and b"not valid" in wrong.body and "set-cookie" not in wrong.headers
        right = await post(caller(), "/sign-in", {"key": f" {text} ", "next": f"/tasks/{task}"}, **OWN)
        assert (right.status, right.headers["location"]) == (303, f"/tasks/{task}")
        given = right.headers["set-cookie"]
        assert "HttpOnly" in given and "SameSite=Strict" in given and "Path=/" in given and "Secure" not in given
        assert text not in given

        signed_in = caller(cookie=cookie_of(right))
        page = await signed_in("GET", "/")
        assert page.status == 200 and b"ci" in page.body and task.encode() in page.body
        assert (await signed_in("GET", f"/tasks/{task}")).status == 200
        # The cookie opens the dashboard alone: the API wants a key.
        assert (await signed_in("GET", "/scraping/tasks")).status == 401
        out = await post(signed_in, "/sign-out", {}, **OWN)
        assert out.status == 303 and "Max-Age=0" in out.headers["set-cookie"]

        Keyring(tmp_path / "api-keys.json").revoke("ci")
        assert (await signed_in("GET", "/")).status == 303

    run(tmp_path, test)


def test_behind_tls_the_cookie_is_bound_to_its_host(tmp_path: Path) -> None:
    text, _ = Keyring(tmp_path / "api-keys.json").create("ci")

    async def test(caller: Any, _: ScriptedService) -> None:
        there = caller(host="weft.example")
        answer = await post(there, "/sign-in", {"key": text}, origin="https://weft.example")
        given = answer.headers["set-cookie"]
        assert given.startswith("__Host-weft-") and "; Secure" in given and "Domain" not in given
        assert (await there("GET", "/", cookie=cookie_of(answer))).status == 200

    run(tmp_path, test)


def test_cookies_of_other_servers_do_not_matter(tmp_path: Path) -> None:
    text, _ = Keyring(tmp_path / "api-keys.json").create("ci")

    async def test(caller: Any, _: ScriptedService) -> None:
        mine = cookie_of(await post(caller(), "/sign-in", {"key": text}, **OWN))
        name = mine.partition("=")[0]
        others = [
            "a=b",
            "weft-00000000=x.y.z",
            "=;;=",
            'odd="a; b"',
            f"{name}=rubbish",
            f"{name}=",
            "é=\xff",
            "x" * 3000,
        ]
        assert (await caller()("GET", "/", cookie="; ".join([*others, mine, *others]))).status == 200
        assert (await caller()("GET", "/", cookie="; ".join(others))).status == 303

    run(tmp_path, test)


def test_a_session_cannot_be_made_up_or_kept_for_longer(tmp_path: Path) -> None:
    keyring, now = Keyring(tmp_path / "api-keys.json"), 1_000_000.0
    _, one = keyring.create("one")
    _, two = keyring.create("two")
    sessions = Sessions(tmp_path, keyring, lambda: now)
    cookie = sessions.begin(one, is_tls=False).partition(";")[0]
    name, _, value = cookie.partition("=")
    assert sessions.key_of(cookie) == one
    key_id, end, mac = value.split(".")
    assert sessions.key_of(f"{name}={two.id}.{end}.{mac}") is None
    assert sessions.key_of(f"{name}={key_id}.{int(end) + 9}.{mac}") is None
    assert sessions.key_of(f"{name}={key_id}.{end}.{'0' * 64}") is None
    now += LASTS_S - 1
    assert sessions.key_of(cookie) == one
    now += 1
    assert sessions.key_of(cookie) is None


def test_every_worker_has_the_same_secret_which_is_nobody_elses(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "api-keys.json")
    _, key = keyring.create("one")
    cookie = Sessions(tmp_path, keyring).begin(key, is_tls=False).partition(";")[0]
    assert Sessions(tmp_path, keyring).key_of(cookie) == key
    path = tmp_path / SECRET_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"cut")
    assert Sessions(tmp_path, keyring).key_of(cookie) is None
    assert len(path.read_bytes()) == 32


def test_scopes_hold_for_pages(tmp_path: Path) -> None:
    text, key = Keyring(tmp_path / "api-keys.json").create("reader", (KeyScope.READ,))

    async def test(caller: Any, service: ScriptedService) -> None:
        task, other = await order(service, key.id), await order(service, "another")
        reader = caller(cookie=cookie_of(await post(caller(), "/sign-in", {"key": text}, **OWN)))
        page = await reader("GET", f"/tasks/{task}")
        assert page.status == 200 and b"/cancel" not in page.body
        start = await reader("GET", "/")
        assert b'href="/new"' not in start.body and b'href="/service"' not in start.body
        for path in ("/new", "/service"):
            assert (await reader("GET", path)).status == 403
        assert (await post(reader, f"/tasks/{task}/cancel", {}, **OWN)).status == 403
        for path in ("/sites/shop/run", "/sites/shop/stop"):
            assert (await post(reader, path, {}, **OWN)).status == 403
        for path in ("", "/pages", "/pages/1", "/results", "/live"):
            assert (await reader("GET", f"/tasks/{other}{path}")).status == 404
        assert other.encode() not in start.body

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/tasks/1?x=2", "/tasks/1?x=2"), ("", "/"), ("//evil.example", "/"), ("/\\evil.example", "/"),
        ("https://e.test", "/"), ("/\r\nSet-Cookie: a=b", "/"), ("/sign-in?next=/sign-in", "/"),
        ("javascript:alert(1)", "/"), ("/a\\..\\b", "/"),
    ],
)  # fmt: skip
def test_signing_in_leads_nowhere_else(given: str, expected: str) -> None:
    assert local_path(given) == expected


def test_workers_that_make_the_secret_again_at_the_same_time_have_one(tmp_path: Path) -> None:
    """A secret that was cut off is made again; none of them deletes what another has just made."""
    ring = Keyring(tmp_path / "api-keys.json")
    _, key = ring.create("one")
    for _ in range(10):
        (tmp_path / SECRET_FILE).write_bytes(b"cut off")
        workers, barrier = [Sessions(tmp_path, ring) for _ in range(8)], threading.Barrier(8)

        def sign_in(worker: Sessions, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return worker.begin(key, is_tls=False).partition(";")[0]

        with ThreadPoolExecutor(8) as threads:
            cookies = set(threads.map(sign_in, workers))
        for worker in (*workers, Sessions(tmp_path, ring)):
            assert [worker.key_of(cookie) for cookie in cookies] == [key] * len(cookies)
