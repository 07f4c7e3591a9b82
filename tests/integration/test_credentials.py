"""A cookie, a bearer token and a password go to the seeds' origins, and by no route to another: by the servers' log.

Every door that takes headers and logins crawls the same web; each crawl meets all routes. What the log has of an origin
that is not the user's must hold no credential, and what it has of the user's own must hold all of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, weft_here
from credential_web import HEADERS, LOGINS, SECRETS, CredentialWeb, credential_web
from engines import ended, kill

import weft
from weft.errors import BadInput

WIDE: dict[str, Any] = {"scope": "any"}
MANY = [f"http://h{number}.test/" for number in range(1001)]
NARROW: dict[str, Any] = {"scope": "host", "offsite_hops": 1}  # a page beyond the scope is one off-site hop away
ALL = {
    "seed redirect", "link", "robots.txt", "sitemap", "sitemap entry", "subdomain", "port", "scheme", "retry",
    "canonical",
}  # fmt: skip
OFFSITE = ALL - {"sitemap", "sitemap entry", "canonical"}  # of sitemaps and canonical URLs none is beyond the scope


@pytest.fixture
def web() -> Iterator[CredentialWeb]:
    yield from credential_web()


def settings(**more: Any) -> dict[str, Any]:
    return {
        "headers": HEADERS, "auth": LOGINS, "resolve": {"*": "127.0.0.1"}, "tls_verify": False, "allow_private": True,
        "delay": 0, "retry_backoff_seconds": 0.05, "robots_patience_seconds": 0, **more,
    }  # fmt: skip


def command_line(seeds: list[str], folder: Path, *flags: object, **given: Any) -> Crawler:
    """A crawler with these settings in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps({name: value for name, value in settings(**given).items() if name != "delay"}))
    return Crawler(seeds, folder, "--config", file, *flags, delay_s=0)


def by_python(web: CredentialWeb, folder: Path) -> None:
    for _ in weft.crawl(web.seeds, data_dir=folder, **settings(**NARROW)):
        pass


def by_engine(web: CredentialWeb, folder: Path) -> None:
    """Killed and resumed; a seed that comes after the opening has no credentials."""
    shared = {name: value for name, value in settings().items() if name not in ("headers", "auth")}
    with weft.Engine(folder, **shared) as engine:
        own = {"headers": HEADERS, "auth": LOGINS, **WIDE}
        with pytest.raises(BadInput, match="more than 1,000 hosts"):
            engine.open("many", MANY, **own)
        engine.open("c", **own)
        engine.pause("c")
        engine.seed("c", web.seeds)
        engine.seed("c", [web.url("late.test")])
        kill(engine)
        engine.resume("c")
        ended(engine, "c")
    assert web.url("late.test", "") in web.reached()


def by_command(web: CredentialWeb, folder: Path, *flags: object, is_cut_off: bool = False) -> None:
    """In two runs; the second has one more seed, at another host. `is_cut_off`: their origins are lost."""
    crawler = command_line(web.seeds, folder, *flags, **WIDE)
    assert crawler.run("--max-pages", 1) == 3, crawler.said
    (origins,) = folder.rglob("origins.txt")
    if is_cut_off:
        origins.unlink()
    before = len(web.log)
    assert crawler.run(web.url("late.test"), "--max-pages", 1000, resume=True) == 0, crawler.said
    assert "gets no credentials" in crawler.said and "late.test" in crawler.said
    again = [one for one in web.log[before:] if one.origin in web.own]
    assert any(one.secrets for one in again), "a resumed crawl has no credentials"
    assert web.url("late.test", "") in web.reached()


def by_pods(web: CredentialWeb, folder: Path) -> None:
    by_command(web, folder, "--num-pods", 2, is_cut_off=True)


def by_redis(web: CredentialWeb, folder: Path) -> None:
    flags = ("--pods", "managed", "--fetchers-per-pod", 1, "--parsers-per-pod", 1)
    crawler = command_line(web.seeds, folder, *flags, **WIDE)
    assert crawler.run() == 0, crawler.said


def by_proxy(web: CredentialWeb, folder: Path) -> None:
    """Through a proxy, which is asked for whole URLs of http, and for tunnels."""
    folder.mkdir()
    (folder / "proxies.txt").write_text(f"http://127.0.0.1:{web.port}\n")
    for _ in weft.crawl(web.seeds, data_dir=folder / "data", **settings(**WIDE, proxies=folder / "proxies.txt")):
        pass
    assert [one for one in web.log if one.origin.startswith("CONNECT ")]


DOORS: list[tuple[Callable[[CredentialWeb, Path], None], set[str]]] = [
    (by_python, OFFSITE), (by_engine, ALL), (by_command, ALL), (by_pods, ALL), (by_redis, ALL), (by_proxy, ALL)
]  # fmt: skip


@pytest.mark.parametrize(("door", "routes"), DOORS, ids=lambda value: getattr(value, "__name__", ""))
def test_credentials_go_to_the_seeds_origins_and_by_no_route_elsewhere(
    door: Callable[[CredentialWeb, Path], None], routes: set[str], web: CredentialWeb, tmp_path: Path
) -> None:
    door(web, tmp_path / "crawl")
    assert web.leaks() == []
    foreign, asked = web.foreign(), {one.origin for one in web.log}
    assert {route for route in routes if foreign[route] not in asked} == set(), "a route that was not taken"
    assert {origin: set(SECRETS) - web.sent_to(origin) for origin in web.own} == {
        web.url("seed.test", ""): {"user-password"},  # it is sent encoded
        web.url("seed.test", "", "https"): {"user-password", SECRETS[-1]},  # it asks for no login
        web.url("tls.test", "", "https"): {"user-password", SECRETS[-1]},
    }
    assert [one for one in web.log if "Cookie: sid=user-cookie; theirs=1" in one.headers], "the site's own"
    stored = b"".join(gzip.decompress(path.read_bytes()) for path in (tmp_path / "crawl").rglob("*.warc.gz"))
    assert stored.count(b"X-Key: [masked]") and not [secret for secret in SECRETS if secret.encode() in stored]
    assert all("accept-language: de" in one.headers.lower() for one in web.log if not one.origin.startswith("CONNECT"))


@pytest.mark.parametrize("length", [0, 1100], ids=["small", "large"])  # above a megabyte a seed file is read in pieces
def test_a_crawl_of_more_than_a_thousand_origins_must_name_the_host(length: int, tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text("".join(f"{seed}{'x' * length}\n" for seed in MANY))
    crawl = [
        "crawl",
        "--seed-file",
        tmp_path / "seeds.txt",
        "--data-dir",
        tmp_path / "data",
        "--resolve",
        "*=127.0.0.1",
    ]
    refused = weft_here(*crawl, "--header", "Cookie=a=b")
    assert refused.returncode == 2 and "Cookie would go to more than 1,000 hosts" in refused.stderr, refused.stderr
    assert "--header HOST:NAME=VALUE" in refused.stderr and "a=b" not in refused.stderr
    assert not (tmp_path / "data" / "engine.json").exists()
