"""The routes of sites, over a real registry: what is accepted, what is refused, and whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asgi_client import Asgi
from scripted_service import ScriptedService

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.sites.changes import ChangeReport, Learnt
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.site_service import Sites
from weft.jobs.store.sqlite import SqliteJobStore

SHOP = {"name": "shop", "start_urls": ["https://shop.example/"]}
SITES = "/scraping/sites"
Test = Callable[[Callable[..., Asgi], SqliteJobStore], Awaitable[None]]


def run(folder: Path, test: Test) -> None:
    """Runs a test with a function that makes callers with some headers."""

    async def main() -> None:
        store, service = SqliteJobStore(folder / "jobs.db"), ScriptedService()
        service.sites = Sites(SiteRegistry(folder, store=store), lambda _: None, lambda: None)
        app = create_app(service, ApiSettings(data_dir=folder))
        try:
            await test(lambda **headers: Asgi(app, headers), store)
        finally:
            store.close()

    asyncio.run(main())


def test_a_site_is_added_run_stopped_looked_at_and_removed(tmp_path: Path) -> None:
    async def test(caller: Callable[..., Asgi], store: SqliteJobStore) -> None:
        call = caller()
        hook = {"url": "https://hooks.example/", "headers": {"X-Token": "secret"}}
        added = await call("POST", SITES, SHOP | {"schedule": "@daily", "webhook": hook, "extract": {"t": "h1"}})
        assert (added.status, added.json["state"], added.json["task_id"]) == (201, "idle", None)
        assert added.json["file"]["schedule"] == "@daily" and b"secret" not in added.body
        assert added.json["next_at"].endswith("Z")
        run = await call("POST", f"{SITES}/shop/run")
        task = store.get(run.json["task_id"])
        assert run.status == 202 and task is not None and run.json["links"]["results"].endswith(f"{task.id}/results")
        assert (await call("POST", f"{SITES}/shop/run")).json["task_id"] == task.id, "it runs already"
        refused = await call("DELETE", f"{SITES}/shop")
        assert (refused.status, refused.json["detail"]) == (409, "shop is running: stop it first")
        assert (await call("POST", f"{SITES}/shop/stop")).json["state"] == "stopping"
        (listed,) = (await call("GET", SITES)).json["sites"]
        assert listed == (await call("GET", f"{SITES}/shop")).json
        report = ChangeReport(site="shop", task="t", at=1e9, moved=(("a", "b"),), counts={"moved": 1})
        store.sites.change(lambda ledger: ledger.learn(report, Learnt()))
        (found,) = (await call("GET", f"{SITES}/shop/reports?limit=5")).json["reports"]
        assert (found["at"], found["moved"], found["why_full"]) == ("2001-09-09T01:46:40.000Z", [["a", "b"]], "")
        other = await call("POST", SITES, {**SHOP, "name": "other"})
        assert (other.status, (await call("DELETE", f"{SITES}/other")).status) == (201, 204)
        assert (await call("GET", f"{SITES}/other")).status == 404
        assert (await call("PUT", SITES)).headers["allow"] == "GET, POST"

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"name": "Shop!"}, "name", "is not accepted; use small letters, digits"),
        ({"start_urls": []}, "start_urls", "[] is not accepted; use a list of 1 to 1,000 URLs"),
        ({"start_urls": ["http://10.0.0.1/"]}, "start_urls", "leads to a private address"),
        ({"start_urls": ["http://169.254.169.254/"]}, "start_urls", "leads to a cloud metadata address"),
        ({"extract": "/etc/passwd"}, "extract", "is not accepted; use rules by field"),
        ({"extract": {"price": "div["}}, "extract", "is not understood"),
        ({"webhook": "http://10.0.0.1/"}, "webhook", "where webhooks may not go"),
        ({"webhook": {"url": "https://h.example/", "secret": 1}}, "webhook.secret", "there is no such field"),
        ({"proxies": True}, "proxies", "this service has none"),
        ({"schedule": "0 0 31 2 *"}, "schedule", ""),
        ({"timezone": "Mars/Olympus", "schedule": "@daily"}, "timezone", ""),
        ({"depends_on": ["nobody"]}, "depends_on", "there is no site 'nobody'"),
        ({"depends_on": ["shop"]}, "depends_on", "shop cannot wait for itself"),
        ({"max_pagess": 3}, "max_pagess", "max_pagess: there is no such field; did you mean 'max_pages'?"),
    ],
)
def test_what_is_wrong_with_a_site_is_named(tmp_path: Path, change: dict[str, Any], field: str, said: str) -> None:
    async def test(caller: Callable[..., Asgi], store: SqliteJobStore) -> None:
        answer = await caller()("POST", SITES, SHOP | change)
        assert answer.status == 422 and not store.sites.all(), answer.json
        assert said in answer.json["detail"]
        assert not field or field in "".join(answer.fields), answer.json

    run(tmp_path, test)


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[" * 100_000, 400), (b"7", 422), (b"[]", 422)])
def test_a_body_that_is_no_site_is_refused(tmp_path: Path, body: bytes, status: int) -> None:
    async def test(caller: Callable[..., Asgi], _: SqliteJobStore) -> None:
        answer = await caller()("POST", SITES, body, content_type="application/json")
        assert (answer.status, list(answer.fields)) == (status, ["body"])

    run(tmp_path, test)


def test_a_site_belongs_to_its_key_and_each_scope_allows_its_own(tmp_path: Path) -> None:
    """Another key's site is not there: not to be seen, run, replaced, removed or waited for."""
    keys = Keyring(ApiSettings(data_dir=tmp_path).keys_file)
    both = (KeyScope.SUBMIT, KeyScope.READ, KeyScope.CONTROL)
    mine, other = (keys.create(name, both)[0] for name in ("mine", "other"))
    reading, starting = (
        keys.create(name, (scope,))[0] for name, scope in (("r", KeyScope.READ), ("s", KeyScope.SUBMIT))
    )

    async def test(caller: Callable[..., Asgi], store: SqliteJobStore) -> None:
        me, they = caller(authorization=f"Bearer {mine}"), caller(authorization=f"Bearer {other}")
        assert (await me("POST", SITES, SHOP)).status == 201
        task = store.get((await me("POST", f"{SITES}/shop/run")).json["task_id"])
        assert task is not None and task.owner == store.sites.all()["shop"].owner != ""
        assert (await they("GET", SITES)).json == {"sites": []}
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/stop"), ("GET", "/reports")):
            answer = await they(method, f"{SITES}/shop{path}")
            assert (answer.status, answer.json["detail"]) == (404, "there is no site 'shop'")
        taken = await they("POST", SITES, SHOP)
        assert (taken.status, taken.json["detail"]) == (409, "name: shop is taken; choose another")
        waits = await they("POST", SITES, {**SHOP, "name": "b", "depends_on": ["shop"]})
        assert (waits.status, "there is no site 'shop'" in waits.json["detail"]) == (422, True)
        assert (await caller()("GET", SITES)).status == 401
        reads, starts = caller(authorization=f"Bearer {reading}"), caller(authorization=f"Bearer {starting}")
        assert [(await reads(*call)).status for call in (("POST", SITES, SHOP), ("GET", SITES))] == [403, 200]
        calls = (("GET", SITES), ("POST", f"{SITES}/shop/stop"), ("DELETE", f"{SITES}/shop"))
        assert [(await starts(*call)).status for call in calls] == [403] * 3

    run(tmp_path, test)
