"""The routes of webhooks, over a service in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from asgi_client import Asgi
from scripted_service import ScriptedService

from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.webhooks.webhook_model import Delivery
from weft.scraping import HookEvent

SITE = "https://example.com/"


def test_a_log_is_read_in_stretches_and_sent_again(tmp_path: Path) -> None:
    async def test() -> None:
        service = ScriptedService()
        call = Asgi(create_app(service, ApiSettings(data_dir=tmp_path)))
        order = {
            "url": SITE,
            "webhook": {"url": "https://hooks.example/x", "headers": {"Authorization": "Bearer s3cret"}},
        }
        task = (await call("POST", "/scraping/async-scrape", order)).json["task_id"]
        hook = f"/scraping/tasks/{task}/webhook"
        service.webhooks.log[task] = [
            Delivery(
                number=number, event=HookEvent.PAGE, attempts=1, first_at=1.0, last_at=2.0, delivered_at=2.0,
                status=200, error="",
            )
            for number in range(5)
        ]  # fmt: skip
        status = await call("GET", hook)
        assert (status.json["url"], status.json["state"]) == ("https://hooks.example/x", "open")
        assert b"s3cret" not in status.body, "what a caller sends along is never shown"
        numbers, cursor = list[int](), ""
        while True:
            found = (await call("GET", f"{hook}/deliveries?limit=2{cursor}")).json
            numbers += [one["number"] for one in found["deliveries"]]
            if found["next_cursor"] is None:
                break
            cursor = f"&cursor={found['next_cursor']}"
        assert numbers == [0, 1, 2, 3, 4] and found["deliveries"][0]["id"] == f"{task}-4"
        assert (await call("POST", f"{hook}/replay")).status == 202
        assert (await call("POST", f"{hook}/replay", {"after": 3})).json["delivered_up_to"] == 3
        assert (await call("POST", f"{hook}/replay", {"numbers": [2, 3]})).json["to_send_again"] == [2, 3]
        for body in ({"after": -2}, {"after": "3"}, {"numbers": list(range(101))}, {"all": True}):
            assert (await call("POST", f"{hook}/replay", body)).status == 422, body
        assert (await call("GET", f"{hook}/deliveries?cursor=nonsense")).status == 422
        assert (await call("GET", "/scraping/webhook-secret")).json == {"secret": "whsec_"}
        plain = (await call("POST", "/scraping/async-scrape", {"url": SITE})).json["task_id"]
        for method, path in (("GET", ""), ("GET", "/deliveries"), ("POST", "/replay")):
            answer = await call(method, f"/scraping/tasks/{plain}/webhook{path}")
            assert (answer.status, "without a webhook" in answer.json["detail"]) == (404, True)

    asyncio.run(test())
