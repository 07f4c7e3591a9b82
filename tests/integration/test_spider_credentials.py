"""What a spider's requests carry stays with their hosts: headers that may be credentials, cookies and bodies, over
redirects, links, other ports and other hosts; by the servers' own logs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from crawling import weft as weft_command
from quotes_site import Asked, quotes_site
from spider_files import spider_file

SPIDER = """
import weft


class Secret(weft.Spider):
    start_urls = ["{home}"]
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0, "header": {{"X-Api-Key": "settings-secret"}},
                "resolve": {{"other.test": "127.0.0.1"}}}}
    own = {{"Authorization": "Bearer request-secret", "X-Own": "own-secret", "Accept-Language": "de"}}

    def parse(self, page):
        yield page.follow("/api/1", self.done, headers=self.own)
        yield page.follow("/away", self.done, headers=self.own)
        yield page.follow("/near", self.done, headers=self.own)
        yield weft.Request("{home}moved", self.done, method="POST", form={{"p": "body-secret"}}, headers=self.own)
        yield weft.Request("{home}kept", self.done, method="POST", form={{"p": "body-secret"}}, headers=self.own)
        yield weft.Request("{home}sent", self.done, method="POST", form={{"p": "body-secret"}}, headers=self.own)
        yield weft.Request("{away}page/1?linked", self.done)
        yield weft.Request("http://other.test:{port}/page/2", self.done)

    def done(self, page):
        yield {{"url": page.url, "asked": page.requested_url}}
"""
SECRETS = ("settings-secret", "request-secret", "own-secret", "body-secret", "cookie-secret")


def unzipped(path: Path) -> bytes:
    with gzip.open(path, "rb") as file:
        return bytes(file.read())


def test_nothing_secret_reaches_another_origin(tmp_path: Path) -> None:
    with quotes_site() as home, quotes_site() as away:

        def to(status: int, url: str) -> tuple[int, dict[str, str], str]:
            return status, {"Location": url, "Set-Cookie": "sid=cookie-secret; Path=/"}, ""

        home.answers |= {
            "/away": to(302, f"{away.url}page/1?away"),
            "/near": to(302, "/api/2"),
            "/moved": to(302, f"{away.url}page/1?moved"),
            "/kept": to(307, f"{away.url}page/1?kept"),
            "/sent": to(307, "/here"),
            "/here": lambda asked: (200, {"Content-Type": "text/html"}, f"<p>{asked.method}"),
        }
        port = away.url.rsplit(":", 1)[1].strip("/")
        file = spider_file(tmp_path, SPIDER.format(home=home.url, away=away.url, port=port))
        done = weft_command("run", file, "--data-dir", tmp_path / "data", "-o", tmp_path / "out.jsonl")
        assert done.returncode == 0, done.stderr

        def leaks(asked: Asked) -> list[str]:
            return [
                one for one in SECRETS if one in asked.body or any(one in value for value in asked.headers.values())
            ]

        cookies_go_by_host = {"cookie-secret"}  # RFC 6265: the port is no part of a cookie's host
        foreign = {asked.path: set(leaks(asked)) - cookies_go_by_host for asked in away.asked}
        assert not any(foreign.values()), foreign
        assert {"/page/1?away", "/page/1?moved", "/page/1?linked", "/page/2"} <= set(foreign)
        assert "/page/1?kept" not in foreign  # a body goes to no other origin
        assert all(
            "cookie-secret" not in leaks(asked) for asked in away.asked if asked.headers["Host"] == f"other.test:{port}"
        )
        assert next(one for one in away.asked if "moved" in one.path).method == "GET"
        assert next(one for one in away.asked if "away" in one.path).headers["Accept-Language"] == "de"

        own = {asked.path: leaks(asked) for asked in home.asked}
        assert {"request-secret", "own-secret", "settings-secret"} <= set(own["/api/1"])
        assert "request-secret" in own["/api/2"]
        sent = next(asked for asked in home.asked if asked.path == "/here")
        assert (sent.method, sent.body) == ("POST", "p=body-secret")
        items = {one["asked"]: one["url"] for one in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
        assert items[f"{home.url}away"] == f"{away.url}page/1?away"
        assert items[f"{home.url}sent"] == f"{home.url}here"

    logs = [path.read_bytes() for path in (tmp_path / "data").rglob("*.log")]
    records = [unzipped(path) for path in (tmp_path / "data" / "warc").rglob("*.gz")]
    stored = b"".join([*logs, *records])
    ours = [secret for secret in SECRETS if secret != "cookie-secret"]  # which the site itself has ours
    assert not any(secret.encode() in stored for secret in ours)
