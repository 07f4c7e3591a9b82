"""Ways to end with nothing: each is a crawl by the real command line, exit code 4, and its cause in the last lines.

The command runs in this process, and the crawl's fetcher in one of its own, as ever; all of them share one server.
"""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripted import Plan, Reply, Site, Visit, Web, linking, page, redirect, robots

import weft
from weft.cli.main import run
from weft.errors import NothingStored

SHELL = (
    "<!doctype html><title>App</title><noscript>You need to enable JavaScript to run this app.</noscript>"
    '<div id="root"></div><script src="/main.js"></script>'
)
LOGIN = "<title>Sign in</title><form method=post><input name=user><input type=password name=word></form>"
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"
USUAL = (
    "--delay", "0", "--retry-backoff-seconds", "0.01", "--max-retries", "1", "--prometheus-port", "0",
    "--allow-private", "--resolve", "*=127.0.0.1",
)  # fmt: skip


async def never(visit: Visit) -> None:
    await visit.wait_for_the_end()


async def broken_off(visit: Visit) -> None:
    visit.reset()


@dataclass(frozen=True)
class Way:
    """One site, and what a crawl of it ends with."""

    cause: str
    words: str  # of its line
    replies: dict[str, Reply]
    flags: tuple[str, ...] = ()
    tls: str | None = None
    path: str = "/"


WAYS = {
    "robots": Way("robots", "robots.txt forbids it (Disallow: / (line 2))", {
        "/robots.txt": robots("User-agent: *", "Disallow: /")}),
    "robots-5xx": Way("robots-unreachable", "robots.txt could not be read, so no page may be requested (HTTP 500)", {
        "/robots.txt": page("", status="500 Oh")}),
    "robots-timeout": Way("timeout", "did not answer in time", {"/robots.txt": never}, ("--read-timeout", "0.1")),
    "self-signed": Way("tls", "--no-tls-verify", {}, tls="self-signed"),
    "wrong-host": Way("tls", "TLS certificate was not accepted", {}, tls="wrong-host"),
    "401": Way("http_401", "Give one: --auth HOST=USER:PASSWORD", {"/": page("", status="401 Who")}),
    "bad-login": Way("http_401", "--auth has none that it accepts", {
        "/": page("", 'WWW-Authenticate: Basic realm="x"', status="401 Who")}, ("--auth", "bad-login.test=me:wrong")),
    "403": Way("http_403", "refuses access to this crawler", {"/": page("no", status="403 No")}),
    "404": Way("http_404", "there is no such page", {}, path="/missing"),
    "429": Way("http_429", "asks for fewer requests", {"/": page("", status="429 Slow")}, ("--max-retries", "0")),
    "retry-after": Way("retry-after", "asked to wait longer than this crawl does", {
        "/": page("", "Retry-After: 99999", status="429 Slow")}),
    "500": Way("http_500", "HTTP 500, the site has a fault", {"/": page("", status="500 Oh")}),
    "timeout": Way("timeout", "--total-timeout give it longer", {"/": never}, (
        "--read-timeout", "0.1", "--max-retries", "0")),
    "reset": Way("reset", "closed the connection", {"/": broken_off}),
    "include": Way("include", "no pattern of --include matches", {"/": linking("/a", "/b")}, (
        "--include", "/blog/*")),
    "include-redirect": Way("redirect-pattern", "it redirects, and for the target", {"/": redirect("/en/")}, (
        "--include", "/de/*")),
    "exclude": Way("pattern", "--include and --exclude leave it out", {"/": linking("/a")}, ("--exclude", "/*")),
    "exclude-file": Way("excluded", "its domain is in --exclude-file", {"/": linking("/a")}, (
        "--exclude-file", "EXCLUDED")),
    "private": Way("address", "--allow-private allows such addresses", {}, ("--no-allow-private",)),
    "javascript": Way("javascript", "filled in by JavaScript", {"/": page(SHELL)}),
    "login": Way("login", "the page is a login form", {"/": redirect("/enter?next=/"), "/enter": page(LOGIN)}),
    "blank": Way("blank", "the page is empty", {"/": page("")}),
    "no-text": Way("no-text", "it has no text, and --store text", {"/": page(GIF, "Content-Type: image/gif")}, (
        "--store", "text", "--accept", "*/*")),
    "content-type": Way("content-type", "its content type is none of those in --accept (image/gif)", {
        "/": page(GIF, "Content-Type: image/gif")}),
    "too-large": Way("too_large", "larger than --max-body-bytes", {"/": page("x" * 5000)}, (
        "--max-body-bytes", "1000")),
    "circle": Way("too_many_redirects", "its redirects go in a circle", {"/": redirect("/b"), "/b": redirect("/")}),
    "noindex": Way("noindex", "it asks not to be stored (noindex)", {
        "/": page("<meta name=robots content='noindex'><p>words")}),
    "off-scope": Way("redirect-excluded", "its domain is in --exclude-file", {
        "/": redirect("http://excluded.test:PORT/")}, ("--exclude-file", "EXCLUDED")),
}  # fmt: skip
ELSEWHERE = "sitemap-404"
GIVEN_UP = "given-up"
EMBEDDED = ("--num-pods", "2")
REDIS = ("--pods", "managed,managed", "--fetchers-per-pod", "1", "--parsers-per-pod", "1")


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, Site]]:
    plan = Plan("none")
    found: dict[str, Site] = {}
    for name, way in WAYS.items():
        found[name] = plan.site(f"{name}.test", tls=way.tls)
        for target, reply in way.replies.items():
            found[name].on(target, reply)
    found[ELSEWHERE] = (
        plan.site(f"{ELSEWHERE}.test")
        .pages("/listed")
        .on("/sitemap.xml", page(f"<urlset><url><loc>http://{ELSEWHERE}.test:PORT/listed</loc></url></urlset>"))
    )
    # Its name is its own: the machine's clock remembers what it asks for.
    found[GIVEN_UP] = plan.site(f"{GIVEN_UP}.test").on("/", page("", "Retry-After: 99999", status="429 Slow"))
    with Web({site.host: site for site in found.values()}) as plan.web:
        yield found


@pytest.fixture
def crawl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `weft crawl`: its exit code, stdout and stderr."""
    excluded = tmp_path / "excluded.txt"
    excluded.write_text("exclude-file.test\nexcluded.test\n")

    def run_one(*arguments: str) -> tuple[int, str, str]:
        given = [str(excluded) if one == "EXCLUDED" else one for one in arguments]
        code = run(["crawl", *USUAL, "--data-dir", str(tmp_path / "data"), *given])
        return code, *capsys.readouterr()

    return run_one


@pytest.mark.parametrize("name", WAYS)
def test_nothing_is_stored_and_the_last_lines_say_why(
    name: str, sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]]
) -> None:
    way = WAYS[name]
    code, _, said = crawl(sites[name].url(way.path), *way.flags)
    assert code == 4, said
    before, _, after = said.partition("\nThe corpus is in ")
    assert way.words in before.splitlines()[-1] and "--fresh" in after, said


@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("private", "Try again: weft crawl --resume --retry-failed --allow-private --data-dir"),
        ("500", "Try again: weft crawl --resume --retry-failed --data-dir"),
        ("401", "--fresh --auth HOST=USER:PASSWORD --data-dir"),
        ("robots", "See: weft explain"),
        ("self-signed", "--no-tls-verify --data-dir"),
    ],
)
def test_the_last_line_has_the_whole_next_command(
    name: str, then: str, sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    way, url = WAYS[name], sites[name].url(WAYS[name].path)
    _, _, said = crawl(url, *way.flags)
    last = said.partition("\nThe corpus is in ")[2]
    assert then in last and f"--data-dir {tmp_path / 'data'}" in last, said
    assert f"Start over: weft crawl {url} " in last and "--fresh" in last, said
    assert "Errors: none" not in said, "the causes say otherwise"


def test_the_next_command_works_as_it_is_written(
    sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    sites[ELSEWHERE].on("/there", page("<p>words"))
    _, _, said = crawl(sites[ELSEWHERE].url("/there"), "--no-allow-private")
    (command,) = [line.removeprefix("Try again: ") for line in said.splitlines() if line.startswith("Try again: ")]
    assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err


def test_what_was_given_up_for_its_retry_after_is_among_the_errors(
    sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, said = crawl(sites[ELSEWHERE].url("/listed"), sites[GIVEN_UP].url("/"))
    assert code == 0 and "Errors: retry-after 1." in said, said


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:{}/", "nothing accepts a connection there"),
        ("http://nowhere.invalid/", "could not be resolved"),
    ],
    ids=["refused", "dns"],
)
def test_nobody_is_there(url: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    flags = ["--delay", "0", "--retry-backoff-seconds", "0.01", "--prometheus-port", "0", "--email", "me@example.com"]
    code = run(["crawl", url.format(port), *flags, "--allow-private", "--data-dir", str(tmp_path / "data")])
    said = capsys.readouterr().err
    assert code == 4 and words in said.partition("\nThe corpus is in ")[0].splitlines()[-1], said


@pytest.mark.parametrize("pods", [EMBEDDED, REDIS], ids=["embedded", "redis"])
def test_the_cause_comes_from_every_pod(
    pods: tuple[str, ...], sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]]
) -> None:
    names = ("403", "robots", "404", "include-redirect")
    code, out, _ = crawl(*(sites[name].url(WAYS[name].path) for name in names), *pods, "--include", "/de/*", "--json")
    told = json.loads(out)
    assert code == 4 == told["exit_code"]
    assert {cause["cause"]: cause["urls"] for cause in told["causes"]} == {
        "http_403": 1, "robots": 1, "http_404": 1, "redirect-pattern": 1,
    }  # fmt: skip
    assert told["unmatched"] == ["--include '/de/*'"]


def test_every_seed_failed_though_a_sitemap_gave_a_page(
    sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, said = crawl(sites[ELSEWHERE].url("/gone"))
    assert code == 4 and "1 page in" in said and "\nEvery seed failed:\n" in said, said


def test_a_limit_and_a_page_are_not_nothing(sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]]) -> None:
    """A pattern that matched nothing is said all the same; one good seed among bad ones is enough."""
    flags = ("--exclude", "*/print/*", "--exclude", "/missing")
    code, _, said = crawl(sites["include"].url("/"), sites["404"].url("/missing"), sites["403"].url("/"), *flags)
    assert code == 0 and "No URL matched --exclude '*/print/*'." in said and "/missing" not in said, said


def test_answers_that_ask_to_slow_down_are_counted_though_the_next_try_succeeds(
    sites: dict[str, Site], crawl: Callable[..., tuple[int, str, str]]
) -> None:
    sites[ELSEWHERE].on("/busy", page("", status="429 Slow"), page("<p>There it is."))
    code, _, said = crawl(sites[ELSEWHERE].url("/busy"))
    assert code == 0 and "Errors: none" in said and "Asked to slow down: HTTP 429 (1)." in said, said


def test_explain_does_not_call_a_403_crawled(
    sites: dict[str, Site],
    crawl: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = sites["403"].url("/")
    crawl(url)
    assert run(["explain", str(tmp_path / "data"), url]) == 0
    assert "failed: it was requested and failed: HTTP 403 [error]" in capsys.readouterr().out


def test_in_python_it_is_a_warning(sites: dict[str, Site]) -> None:
    with pytest.warns(NothingStored, match="HTTP 403, the site refuses"):
        pages = list(weft.crawl(sites["403"].url("/"), delay=0, allow_private=True, resolve={"*": "127.0.0.1"}))
    assert pages == []


def test_a_url_that_was_visited_twice_is_one_url(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        seed = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        few = ("--delay", "0", "--max-retries", "0", "--retry-backoff-seconds", "0.01", "--prometheus-port", "0")
        data = ("--data-dir", str(tmp_path / "data"))
        assert run(["crawl", seed, *few, *data]) == 4
        assert run(["crawl", "--resume", "--retry-failed", "--allow-private", *few, *data]) == 4
    said = "".join(capfd.readouterr())
    last = said[said.rindex("Nothing was stored:") :].splitlines()[1]
    assert "nothing accepts a connection" in last and "--allow-private" not in last, said
    assert "2 URLs" not in last, said
