"""`weft shell`: one page at a prompt, from the network and from a folder, against a site of quotes on loopback."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from crawling import WEFT, environment, weft_here
from crawling import weft as weft_command
from pace import patience
from quotes_site import QuotesSite, quotes_site
from spider_files import QUOTES, spider_file

ROBOTS = b"User-agent: *\nDisallow: /secret\n"
DELAY_S = 0.4
OWN = """
    def fails(self, page):
        yield {"never": "kept"}
        raise KeyError("no such quote")
"""


@pytest.fixture(scope="module")
def site() -> Iterator[QuotesSite]:
    with quotes_site(3) as site:
        site.answers["/robots.txt"] = (200, {"Content-Type": "text/plain"}, ROBOTS)
        yield site


def shell(*arguments: object, statements: str) -> subprocess.CompletedProcess[str]:
    """One `weft shell` that reads its statements from standard input."""
    return subprocess.run(
        [*WEFT, "shell", *map(str, arguments)],
        input=statements, capture_output=True, text=True, timeout=patience(60), env=environment(),
    )  # fmt: skip


def test_statements_run_on_pages_that_are_requested_as_in_a_crawl(site: QuotesSite, tmp_path: Path) -> None:
    file = spider_file(tmp_path, QUOTES.format(url=site.url) + OWN)
    arrivals: list[float] = []

    def noted(_: object) -> tuple[int, dict[str, str], bytes]:
        arrivals.append(time.monotonic())
        return 200, {"Content-Type": "text/html"}, b"<h1>Noted</h1>"

    site.answers["/noted"] = noted
    done = shell(
        site.url, "--spider", file, "--delay", DELAY_S,
        statements="page.title\npage.css('small.author').first\npage.css('h9')\n"
        "made = try_callback('parse')\nlen(made.items), made.requests[0].url\n"
        "fetch(made.requests[1])\ntry_callback()\n"  # the callback that it was requested for
        "for again in range(3):\n    noted = fetch('/noted')\n"
        "fetch('/missing').status\n"
        "try:\n    fetch('/secret')\nexcept Exception as error:\n    print(error)\n"
        "try_callback('fails')\n",
    )  # fmt: skip
    text = done.stdout
    assert done.returncode == 1, done.stderr
    assert text.startswith("'Quotes'\n  0  <small class=\"author\">Ada Lovelace</small>\nnothing selected\n")
    assert f"(4, '{site.url}page/2')" in text
    assert '1 items\n{"name": "Ada Lovelace", "born": "1812"}\n0 requests\n' in text
    assert "\n404\n" in text and "/secret: robots.txt forbids it (Disallow: /secret (line 2))" in text
    assert done.stderr.startswith("weft: line 15: Traceback")
    assert f'File "{file}"' in done.stderr and done.stderr.endswith("KeyError: 'no such quote'\n")
    assert "site-packages" not in done.stderr and "session.py" not in done.stderr
    assert len(arrivals) == 3 and min(later - one for one, later in pairwise(arrivals)) >= DELAY_S
    assert "/secret" not in site.paths()


def test_a_stored_page_is_read_without_a_request(site: QuotesSite, tmp_path: Path) -> None:
    file, data = spider_file(tmp_path, QUOTES.format(url=site.url)), tmp_path / "data"
    crawled = weft_command("run", file, "--data-dir", data, "-o", tmp_path / "quotes.jsonl")
    assert crawled.returncode == 0, crawled.stderr
    asked = len(site.asked)
    author = f"{site.url}author/Ada-Lovelace"
    done = weft_here("shell", data, author, "--spider", file, "-c", "page.css('h3::text')\ntry_callback()")
    assert done.returncode == 0, done.stderr
    assert done.stdout == '  0  Ada Lovelace\n1 items\n{"name": "Ada Lovelace", "born": "1812"}\n0 requests\n'
    done = weft_here("shell", data, author, "-c", f"fetch({site.url!r}).title\nfetch('/nowhere')")
    assert (done.returncode, done.stdout) == (1, "'Quotes'\n")
    explained = f"`weft explain {data} {site.url}nowhere` says why"
    assert done.stderr == f"weft: line 2: {site.url}nowhere: is not in {data}; {explained}\n"
    done = weft_here("shell", data, f"{site.url}nowhere", "-c", "1")
    assert done.returncode == 2 and explained in done.stderr
    assert len(site.asked) == asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing argument '[DIR] URL'"),
        (("a", "b", "c"), "one page at a time"),
        (("ftp://x/", "-c", "1"), "'ftp://x/': scheme 'ftp' is not crawled"),
        (("{tmp}",), "is a folder; name the page, too"),
        (("{tmp}", "http://127.0.0.1/", "-c", "1"), "holds no crawl"),
        (("http://127.0.0.1/", "--crawl", "x", "-c", "1"), "--crawl: is for stored pages"),
        (("http://127.0.0.1/", "--spider", "none.py", "-c", "1"), "none.py: there is no such file"),
        (("http://127.0.0.1/", "--spider", "{tmp}/broken.py", "-c", "1"), "division by zero (line 1)"),
        (("http://127.0.0.1/", "--spider", "{tmp}/raises.py", "-c", "1"), "ValueError: no value (line 4)"),
        (("http://127.0.0.1/", "--spider", "{tmp}/empty.py", "-c", "1"), "has no spider"),
        (("http://127.0.0.1/", "--dellay", "1"), "--dellay"),
        (("http://127.0.0.1/", "-c", "1\npage.css("), "line 2: '(' was never closed: page.css("),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_requested(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    spider_file(tmp_path, "1 / 0", "broken.py")
    spider_file(tmp_path, "", "empty.py")
    spider_file(
        tmp_path,
        "import weft\nclass A(weft.Spider):\n    def __init__(self):\n        raise ValueError('no value')\n",
        "raises.py",
    )
    done = weft_here("shell", *(one.replace("{tmp}", str(tmp_path)) for one in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.startswith("weft: ") and "Traceback" not in done.stderr


def test_a_page_that_does_not_come_is_one_line(site: QuotesSite) -> None:
    for arguments, code, message in (
        ((site.url,), 1, "its address is private, loopback or reserved"),
        ((f"{site.url}secret", "--allow-private"), 1, "robots.txt forbids it"),
        (("http://127.0.0.1:1/", "--allow-private"), 1, "nothing accepts a connection there"),
        (("http://example.com/",), 2, "--email you@example.com"),
    ):
        done = weft_command("shell", *arguments, "-c", "print('never')")
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert message in done.stderr and done.stderr.count("\n") == 1
