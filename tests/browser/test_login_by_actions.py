"""Logins that a browser carries out, where scripts draw the form or keep the session."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browsing import missing
from carving import found_in
from crawling import Crawler, until, weft
from login_site import PASSWORD, USER, LoginSite

DRAWN_FORM = """<title>Log in</title><div id=root></div><script>setTimeout(() => {{
  document.getElementById("root").innerHTML = `<form id=login method=post action=/login>
  <input type=hidden name=csrf value="{token}"><input name=user><input type=password name=password>
  <button name=go value=1>Log in</button></form>` }}, 50)</script>"""
TYPED = [
    {"type": "write", "selector": "[name=user]", "text": "${env:SITE_USER}"},
    {"type": "write", "selector": "[name=password]", "text": "${env:SITE_PASSWORD}"},
    {"type": "click", "selector": "[name=go]"},
]
# The session is a token that a script keeps: each page asks for its text with it.
TOKEN = "token-that-is-nowhere-else"
SPA = """<title>app</title><div id=root></div><script>
const root = document.getElementById("root"), token = localStorage.getItem("token");
if (location.pathname === "/enter") {
  root.innerHTML = "<input id=pin type=password><button id=go>go</button>";
  document.getElementById("go").onclick = async () => {
    const answer = await fetch("/token?" + document.getElementById("pin").value);
    localStorage.setItem("token", await answer.text()); history.replaceState({}, "", "/inside");
    root.innerHTML = "<p id=inside>inside</p>" } }
else fetch("/text?" + location.pathname, {headers: {"X-Token": token || ""}}).then(answer => answer.text())
  .then(text => { root.innerHTML = text });
</script>"""


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("chromium") is None:
        missing("chromium")
    monkeypatch.setenv("SITE_USER", USER)
    monkeypatch.setenv("SITE_PASSWORD", PASSWORD)


def crawl(url: str, folder: Path, login: Mapping[str, object], *flags: str) -> dict[str, str]:
    """The titles and texts of a crawl's pages, by URL."""
    file = folder / "login.json"
    file.write_text(json.dumps(login))
    ended = weft("crawl", url, "--data-dir", folder / "data", "--login", file, "--allow-private", "--quiet",
                 "--prometheus-port", "0", "--delay", "0.05", *flags, timeout_s=90)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    rows = weft("export", folder / "data", "--format", "jsonl", "--content", "text", "--out", "-").stdout
    return {row["url"]: f"{row['title']} {row['text']}" for row in map(json.loads, rows.splitlines())}


def test_a_browser_logs_in_and_its_cookies_are_the_sessions(tmp_path: Path) -> None:
    with LoginSite(pages=4, session_pages=3, redirects=True, form=DRAWN_FORM) as site:
        login = {"url": site.url("/login"), "actions": TYPED, "success": "a.logout"}
        pages = crawl(site.url("/"), tmp_path, login)
        assert {url.rpartition("/")[2] for url in pages} == {"", "1", "2", "3"}
        assert all("out" in text and "Log in" not in text for text in pages.values())
        assert len(site.sessions) >= 2, "a session that has ended is begun again"
        assert len(site.asked("POST", "/login")) == len(site.sessions)
        assert found_in(tmp_path / "data", [PASSWORD, USER, *site.sessions]) == []
    assert weft("audit", tmp_path / "data").returncode == 0


def test_what_a_script_keeps_of_a_login_is_there_for_the_pages_of_its_host_alone(tmp_path: Path) -> None:
    with spa() as (url, other, tokens):
        login = {"url": f"{url}/enter", "success": "css:#inside", "actions": [
            {"type": "write", "selector": "#pin", "text": "${env:SITE_PASSWORD}"}, {"type": "click", "selector": "#go"},
            {"type": "wait", "selector": "#inside"},
        ]}  # fmt: skip
        pages = crawl(f"{url}/one", tmp_path, login, "--render", "always", "--scope", "any", "--max-depth", "1")
        assert "secret of /one" in pages[f"{url}/one"] and "secret of /two" in pages[f"{url}/two"]
        assert "who are you" in pages[f"{other}/three"] and tokens[other] == {""}
        assert found_in(tmp_path / "data", [PASSWORD, TOKEN]) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"actions": [*TYPED[:2], {"type": "click", "selector": "#none"}]},
            "action 3 (click): no element matches '#none'",
        ),
        (
            {"actions": [{"type": "write", "selector": "input[type]:not([type=hidden])", "text": "plain"}]},
            "a password, and is given as plain text",
        ),
        ({"success": "css:.nowhere"}, "does not show the element '.nowhere'"),
    ],
)
def test_a_login_that_fails_says_which_action_and_no_page_is_asked_for(
    changes: dict[str, object], says: str, tmp_path: Path
) -> None:
    with LoginSite(pages=2, form=DRAWN_FORM) as site:
        login = {"url": site.url("/login"), "actions": TYPED, "success": "a.logout", **changes}
        (tmp_path / "login.json").write_text(json.dumps(login))
        flags = ("--login", tmp_path / "login.json", "--retry-backoff-seconds", 0.05)
        crawl = Crawler([site.url("/")], tmp_path, *flags, delay_s=0.05)
        with crawl.running():
            until(lambda: says in crawl.status().get("note", ""), what="the pause with its reason")
            assert site.asked("GET", "/") == []


@contextmanager
def spa() -> Iterator[tuple[str, str, dict[str, set[str]]]]:
    """An application on one host, the same on another, and the tokens that each has been sent."""
    tokens: dict[str, set[str]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            status, kind, text = 200, "text/html", SPA
            if path == "/robots.txt":
                status, text = 404, ""
            elif path == "/token":
                kind, text = "text/plain", TOKEN if query == PASSWORD else ""
            elif path == "/text":
                given = self.headers.get("X-Token", "")
                tokens.setdefault(f"http://{self.headers['Host']}", set()).add(given)
                links = f"<a href=/two>two</a><a href={other}/three>three</a>"
                text = f"<p>secret of {query}</p>{links}" if given == TOKEN else "<p>who are you</p>"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    first = ThreadingHTTPServer(("127.1.0.1", 0), Handler)
    second = ThreadingHTTPServer(("127.1.0.7", first.server_port), Handler)
    url, other = (f"http://{host}:{first.server_port}" for host in ("127.1.0.1", "127.1.0.7"))
    for server in (first, second):
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield url, other, tokens
    finally:
        for server in (first, second):
            server.shutdown()
            server.server_close()
