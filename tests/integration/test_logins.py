"""Logins by a form: before the first page, again when the session has ended, and a pause with the reason if they fail.

What was asked is judged by the site's own log. Secrets are looked for in every byte that a crawl leaves.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from carving import found_in
from crawling import Crawler, environment, fetcher_of, until, weft, weft_here
from login_site import FORM, PASSWORD, USER, LoginSite
from pace import patience
from spider_files import spider_file

import weft as api
from weft.errors import BadInput, LoginFailed
from weft.store.pages import PageStore

DELAY_S = 0.05


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_USER", USER)
    monkeypatch.setenv("SITE_PASSWORD", PASSWORD)


def login_file(folder: Path, login: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "login.json").write_text(json.dumps(login))
    return folder / "login.json"


def crawler(site: LoginSite, folder: Path, *flags: object, **login: Any) -> Crawler:
    file = login_file(folder, site.login(**login))
    flags = ("--login", file, "--retry-backoff-seconds", 0.05, *flags)
    return Crawler([site.url("/")], folder, *flags, delay_s=DELAY_S)


def titles(crawl: Path) -> Counter[str]:
    """The titles of the stored pages."""
    store = PageStore.open([crawl], read_only=True)
    found = Counter(row.title for row in store.rows() if not row.error)
    store.close()
    return found


def of_members(pages: int) -> Counter[str]:
    return Counter(["/", *(f"/p/{number}" for number in range(1, pages))])


@pytest.mark.parametrize("redirects", [False, True], ids=["shows its form", "redirects to it"])
def test_a_session_comes_first_is_renewed_and_leaves_no_secret(redirects: bool, tmp_path: Path) -> None:
    with LoginSite(pages=6, session_pages=3, redirects=redirects) as site:
        crawl = crawler(site, tmp_path, "--log-level", "DEBUG", "--store", "warc,text")
        assert crawl.run() == 0, crawl.said
        steps = [(one.method, one.path) for one in site.log if one.path != "/robots.txt"]
        assert steps[:4] == [("GET", "/login"), ("POST", "/login"), ("GET", "/home"), ("GET", "/")]
        assert titles(crawl.data_dir) == of_members(6), "a page of nobody's was stored, or one is missing"
        assert len(site.sessions) >= 2, "no session has ended: the test shows nothing"
        refused = [one for one in site.log if one.path.startswith("/p/") and site.sessions[-1] not in one.cookie]
        again = Counter(one.path for one in site.log if one.path.startswith("/p/"))
        assert max(again.values()) == 2 and len(site.asked("POST", "/login")) == len(site.sessions)
        assert refused and not [one for one in site.asked("GET", "/robots.txt") if one.cookie]
        moments = sorted(one.at for one in site.log)
        assert min(later - before for before, later in pairwise(moments)) >= DELAY_S
        assert found_in(tmp_path, [PASSWORD, USER, *site.sessions, *site.tokens]) == []
        warc = b"".join(gzip.decompress(path.read_bytes()) for path in crawl.data_dir.rglob("*.warc.gz"))
        assert warc.count(b"Set-Cookie: sid=[masked]; Path=/; HttpOnly") >= 6 and b"/login HTTP" not in warc
    assert weft_here("audit", crawl.data_dir).returncode == 0


def test_a_wrong_password_pauses_all_pods_with_the_reason_until_it_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not-it\n")
    fields = {"user": "${env:SITE_USER}", "password": f"${{file:{tmp_path / 'secret'}}}"}
    with LoginSite(pages=3) as site:
        crawl = crawler(site, tmp_path, "--num-pods", 2, "--login-failure", "pause", fields=fields)
        with crawl.running() as running:
            until(lambda: crawl.status().get("state") == "paused", what="the pause")
            assert len(site.asked("POST", "/login")) == 3
            assert not site.asked("GET", "/"), "a page was asked for without a session"
            reason = "has failed 3 times: the site shows its form again, as it does for a wrong user name or password"
            until(lambda: reason in crawl.status()["note"], what="the reason in the status")
            shown = weft_here("stats", crawl.data_dir).stdout
            assert "paused (the login at" in shown and reason in shown
            record = json.loads((crawl.data_dir / "crawls" / "crawl" / "config.json").read_bytes())
            assert reason in json.dumps(record)
            os.kill(fetcher_of(running), signal.SIGKILL)  # one that is started again must not try again by itself
            until(lambda: crawl.status().get("state") == "paused", what="the pause, again")
            assert len(site.asked("POST", "/login")) == 3
            (tmp_path / "secret").write_text(PASSWORD)
            assert weft("resume", crawl.data_dir).returncode == 0
            assert running.wait(patience(60)) == 0, crawl.said
        assert titles(crawl.data_dir) == of_members(3)
        assert "not-it" not in crawl.logs() and reason in crawl.logs()


@pytest.mark.parametrize("pods", [1, 2])
def test_a_wrong_password_ends_a_crawl_that_nobody_watches_and_a_resume_continues_it(tmp_path: Path, pods: int) -> None:
    (tmp_path / "secret").write_text("not-it\n")
    fields = {"user": "${env:SITE_USER}", "password": f"${{file:{tmp_path / 'secret'}}}"}
    with LoginSite(pages=3) as site:
        crawl = crawler(site, tmp_path, "--num-pods", pods, fields=fields)
        assert crawl.run() == 2
        assert "has failed 3 times: the site shows its form again" in crawl.said and "Traceback" not in crawl.said
        continued = crawl.said.partition("continue: weft ")[2].strip()
        assert continued == f"crawl --resume --data-dir {crawl.data_dir}"
        assert len(site.asked("POST", "/login")) == 3 and not site.asked("GET", "/")
        assert crawl.status()["state"] == "failed" and "has failed 3 times" in crawl.status()["note"]
        (tmp_path / "secret").write_text(PASSWORD)
        done = weft(*continued.split())
        assert done.returncode == 0, done.stderr
        assert titles(crawl.data_dir) == of_members(3)


def test_a_wrong_password_ends_a_program_s_crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_PASSWORD", "not-it")
    with LoginSite(pages=3) as site, pytest.raises(LoginFailed, match="has failed 3 times"):
        list(
            api.crawl(site.url("/"), login=site.login(), delay=DELAY_S, allow_private=True, retry_backoff_seconds=0.05)
        )


FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no form": ({"form": "<p>Log in below</p>{token:.0}"}, {}, "has no form with a field for a password"),
    "another form": ({}, {"form": "#signin"}, "no form matches '#signin'"),
    "two steps": (
        {"form": "<form method=post><input name=mail value={token}></form>"},
        {},
        "a login in two steps is not supported",
    ),
    "a field less": ({"form": FORM.replace("name=user", "name=mail")}, {}, "no field 'user'; it has csrf, mail"),
    "in the URL": ({"form": FORM.replace("method=post", "method=get")}, {}, "sends its fields in the URL"),
    "elsewhere": (
        {"form": FORM.replace("action=/login", "action=http://thief.test/")}, {}, "the form is sent to http://thief.test"
    ),
    "a code": ({"second_step": True}, {}, "asks for a second step (otp)"),
    "no sign of it": ({}, {"success": "a.nothing"}, "does not show the element 'a.nothing'"),
    "no cookie": ({}, {"success": "cookie:other"}, "does not show the cookie 'other'"),
    "robots.txt": ({"robots": "User-agent: *\nDisallow: /login"}, {}, "robots.txt forbids"),
    "a loop": ({"rejects": True}, {"success": "cookie:sid"}, "3 pages in a row are as if nobody were logged in"),
}  # fmt: skip


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Any, LoginSite]]]:
    """What became of each fault: crawls of one engine, each at a site of its own."""
    os.environ.update(SITE_USER=USER, SITE_PASSWORD=PASSWORD)
    sites = {name: LoginSite(**given) for name, (given, _, _) in FAULTS.items()}
    try:
        with api.Engine(tmp_path_factory.mktemp("faults"), allow_private=True, resolve={"*": "127.0.0.1"}) as engine:
            for number, (name, site) in enumerate(sites.items()):
                site.__enter__()
                own = {
                    key: value.replace("127.0.0.1", f"h{number}.test") for key, value in (("url", site.url("/login")),)
                }
                login = {**site.login(**FAULTS[name][1]), **own}
                seed = site.url("/").replace("127.0.0.1", f"h{number}.test")
                pages = [f"{seed}p/{page}" for page in range(5)]
                engine.open(name, [seed, *pages], login=login, delay=0.02, retry_backoff_seconds=0.02)
            found = {}
            for name, site in sites.items():
                until(lambda name=name: engine.standing(name).state == "paused", what=f"the pause of {name}")  # type: ignore[misc]
                found[name] = (engine.standing(name), site)
            yield found
    finally:
        for site in sites.values():
            site.__exit__()


@pytest.mark.parametrize("name", FAULTS)
def test_a_login_that_cannot_work_pauses_its_crawl_and_says_why(
    name: str, paused: dict[str, tuple[Any, LoginSite]]
) -> None:
    standing, site = paused[name]
    assert FAULTS[name][2] in standing.pause_reason and standing.waiting_for == standing.pause_reason
    assert standing.queued, "what was queued is lost"
    assert PASSWORD not in standing.pause_reason and len(site.asked("POST", "/login")) <= 4
    assert not [one for one in site.log if one.path.startswith("/p/") and name != "a loop"]


SPIDER = """
import weft


class Members(weft.Spider):
    start_urls = ["{url}"]
    login = weft.FormLogin(**{login!r})
    settings = {{"delay": 0.02, "allow_private": True, "prometheus_port": 0, "spider_workers": 1}}

    def parse(self, page):
        yield {{"page": page.css("h1").text, "set": page.headers.get("set-cookie", "")}}
        yield from page.follow_all("a:not(.logout)")
"""


def test_killed_in_the_middle_of_logins_each_item_is_there_once(tmp_path: Path) -> None:
    """The form is sent again by whoever continues: a session is in memory alone, and making another harms nobody."""
    running: list[subprocess.Popen[bytes]] = []
    with LoginSite(pages=8, session_pages=4) as site:

        def strike() -> None:
            forms = len(site.asked("POST", "/login"))
            if forms == 1:
                os.kill(fetcher_of(running[-1]), signal.SIGKILL)
            elif forms == 3:
                os.kill(running[-1].pid, signal.SIGKILL)

        site.on_login = strike
        file = spider_file(tmp_path, SPIDER.format(url=site.url("/"), login=site.login()))
        data, out = tmp_path / "data", tmp_path / "out.jsonl"

        def run(*words: object) -> int:
            command = ["weft", "run", *words, "--data-dir", data, "-o", out]
            with (tmp_path / "stderr.txt").open("ab") as said:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", *map(str, command)],
                        stdout=said,
                        stderr=said,
                        env=environment(),
                    )
                )
            return running[-1].wait(patience(100))

        assert run(file) == -signal.SIGKILL, (tmp_path / "stderr.txt").read_text()
        assert run("--resume") == 0, (tmp_path / "stderr.txt").read_text()
        items = [json.loads(line) for line in out.read_text().splitlines()]
        assert Counter(item["page"] for item in items) == of_members(8)
        assert titles(data) == of_members(8)
        assert found_in(tmp_path, [PASSWORD, *site.sessions]) == []


def test_what_is_missing_is_named_before_anything_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_PASSWORD")
    with LoginSite() as site:
        crawl = crawler(site, tmp_path)
        assert "the environment variable SITE_PASSWORD is not set" in crawl.refusal()
        assert "cannot be read" in crawl.refusal("--login", tmp_path / "none.yaml")
        monkeypatch.setenv("SITE_PASSWORD", PASSWORD)
        login_file(tmp_path, site.login(success="a["))
        assert "success: 'a[' is not understood" in crawl.refusal()
        login_file(tmp_path, site.login())
        assert "does not work with pods on Redis" in crawl.refusal("--pods", "managed")
        with api.Engine(tmp_path / "engine", allow_private=True, logins={"shop": site.login()}) as engine:
            with pytest.raises(BadInput, match="no login 'other'"):
                engine.open("c", [site.url("/")], login={"name": "other"})
            with pytest.raises(BadInput, match="setting of one crawl"):
                api.Engine(tmp_path / "second", login=site.login())
        assert not site.log
