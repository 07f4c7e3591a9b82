"""Tasks of the service that render, over HTTP and by Firecrawl's own client."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from browsing import missing
from drawn_site import DrawnSite, drawn_site
from firecrawl import Firecrawl
from pace import patience
from rendering import belongs_to, chromiums, profiles
from served_jobs import TERMINAL, Served, served

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def site() -> Iterator[DrawnSite]:
    with drawn_site(links=1) as one:
        yield one


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if shutil.which("chromium") is None:
        missing("chromium")
    with served(tmp_path_factory.mktemp("service")) as one:
        yield one


def ended(service: Served, order: dict[str, object]) -> list[dict[str, object]]:
    """The results of a task, when it is over."""
    task = service.call("/scraping/async-scrape", order)["task_id"]
    until = time.monotonic() + patience(60)
    while service.call(f"/scraping/tasks/{task}/status")["status"] not in TERMINAL:
        assert time.monotonic() < until
        time.sleep(0.2)
    found: list[dict[str, object]] = service.call(f"/scraping/tasks/{task}/results")["results"]
    return found


def test_a_task_renders_what_needs_it(service: Served, site: DrawnSite) -> None:
    order = {
        "url": f"{site.url}/drawn1", "max_depth": 0, "render": "auto", "formats": ["markdown"],
        "render_options": {"screenshot": "viewport", "wait_for": "h1"},
    }  # fmt: skip
    (page,) = ended(service, order)
    assert "hello /drawn1" in str(page["markdown"])
    kind, _, data = str(page["screenshot"]).partition(",")
    assert kind == "data:image/png;base64" and base64.b64decode(data).startswith(PNG)
    (page,) = ended(service, {"url": f"{site.url}/drawn1", "max_depth": 0, "formats": ["markdown"]})
    assert "hello" not in str(page["markdown"])
    task = service.call("/scraping/tasks?limit=1")["tasks"][0]["task_id"]
    assert service.call(f"/scraping/tasks/{task}/status")["progress"]["need_javascript"] == 1


def test_the_dashboard_shows_what_a_browser_has_made(service: Served, site: DrawnSite) -> None:
    options = {"screenshot": "css:#root", "viewport": "500x400", "pdf": True, "actions": [{"type": "screenshot"}]}
    order = {"url": f"{site.url}/drawn1", "max_depth": 0, "render": "always", "render_options": options}
    (page,) = ended(service, order)
    pictures = [base64.b64decode(str(url).partition(",")[2]) for url in (page["screenshot"], *page["screenshots"])]  # type: ignore[misc]
    sizes = [struct.unpack(">II", picture[16:24]) for picture in pictures]
    assert sizes[1] == (500, 400) and sizes[0][1] < 400, "an element, and what is in view"
    task = service.call("/scraping/tasks?limit=1")["tasks"][0]["task_id"]
    rows = text_of(service, f"/tasks/{task}/pages")
    found = re.search(rf"/tasks/{task}/pages/\d+", rows)
    assert found is not None, rows
    shown = text_of(service, found[0])
    for name, begins in (("page.png", PNG), ("1.png", PNG), ("page.pdf", b"%PDF")):
        assert f"{found[0]}/{name}" in shown
        with urllib.request.urlopen(f"{service.url}{found[0]}/{name}", timeout=patience(5)) as answer:
            assert answer.read().startswith(begins)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        text_of(service, f"{found[0]}/2.png")


def text_of(service: Served, path: str) -> str:
    """A page of the dashboard."""
    with urllib.request.urlopen(f"{service.url}{path}", timeout=patience(5)) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"render": "auto", "render_options": {"actions": [{"type": "fly"}]}}, "'fly' is none of"),
        (
            {"render": "always", "render_options": {"actions": [{"type": "executeJavascript", "script": "1"}]}},
            "scripts",
        ),
        ({"render_options": {"scrolls": 2}}, "render"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(
    service: Served, site: DrawnSite, order: dict[str, object], says: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        service.call("/scraping/async-scrape", {"url": site.url} | order)
    assert refused.value.code in (400, 422) and says in refused.value.__notes__[0]


def test_firecrawls_client_gets_pictures_waits_and_acts(service: Served, site: DrawnSite) -> None:
    client = Firecrawl(api_key="fc-any", api_url=service.url)
    page = client.scrape(f"{site.url}/drawn1", formats=["markdown", "screenshot"], wait_for=500, mobile=True)
    assert "hello /drawn1" in (page.markdown or "") and (page.screenshot or "").startswith("data:image/png")
    actions = [
        {"type": "click", "selector": "#q"},
        {"type": "write", "text": "crawler"},
        {"type": "click", "selector": "#go"},
        {"type": "wait", "milliseconds": 100},
    ]
    actions += [{"type": "screenshot", "fullPage": True}, {"type": "pdf"}]
    page = client.scrape(f"{site.url}/form", formats=["markdown"], actions=actions)
    assert "typed crawler" in (page.markdown or "") and page.actions is not None
    assert [len(page.actions[name]) for name in ("screenshots", "pdfs", "scrapes")] == [1, 1, 0]


def test_health_says_when_no_browser_can_be_had_and_when_one_can_again(
    site: DrawnSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with profiles() as near:  # the browser's user must be able to run the program
        folder = near.parent
        program, broken = folder / "chromium", folder / "broken"
        program.write_text(f'#!/bin/sh\n[ -e {broken} ] && echo "FATAL no" >&2 && exit 1\nexec {chromium()} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("CHROMIUM_PATH", str(program))
        settings = folder / "weft.yaml"
        settings.write_text("render: always\nbrowser_sandbox: false\nmax_browsers: 1\n")
        with served(tmp_path / "service", "--config", str(settings)) as service:
            (page,) = ended(service, {"url": f"{site.url}/drawn1", "max_depth": 0, "formats": ["markdown"]})
            assert "hello" in str(page["markdown"])
            ready = service.call("/readyz")
            assert ready["status"] == "ok" and "browser_sandbox" in ready["warnings"][0]
            broken.touch()
            for pid in chromiums("weft-browsers-"):
                if belongs_to(pid, service.process.pid):
                    with suppress(ProcessLookupError):  # its browser's death has taken it along
                        os.kill(pid, signal.SIGKILL)
            task = service.call("/scraping/async-scrape", {"url": f"{site.url}/drawn0", "max_depth": 0})["task_id"]
            why = well(service, "/healthz", 503)
            assert "Chromium does not start" in why or "Chromium takes long to start, or cannot" in why
            assert "pages cannot be rendered" in well(service, "/readyz", 503)
            service.until(task, *TERMINAL)
            broken.unlink()
            assert well(service, "/readyz", 200) == well(service, "/healthz", 200) == ""


def well(service: Served, path: str, code: int) -> str:
    """The problems of the service when a health route answers with this code."""
    until = time.monotonic() + patience(20)
    while True:
        try:
            with urllib.request.urlopen(service.url + path, timeout=patience(5)) as answer:
                status, problems = answer.status, json.load(answer)["problems"]
        except urllib.error.HTTPError as error:
            status, problems = error.code, json.load(error)["problems"]
        if status == code:
            return "; ".join(problems)
        assert time.monotonic() < until, (status, problems)
        time.sleep(0.1)


def chromium() -> str:
    """The browser that the wrapper starts."""
    return shutil.which("chromium") or ""
