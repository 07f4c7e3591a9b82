"""What a person can get wrong: one clear message, exit code 2, no traceback, and nothing half-written."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import Crawler, fetcher_of, weft, weft_here

from weft.cli.main import run
from weft.sealed import sealed_json

# The long crawls of the other files begin here: they wait more than they work.
pytestmark = pytest.mark.usefixtures("crawls")
SEED = "http://127.0.0.1:9/"
QUICK = ("--allow-private", "--delay", "0.05", "--prometheus-port", "0")


class Small(http.server.BaseHTTPRequestHandler):
    """A site of one page that links to two more."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status = 200 if self.path in ("/", "/a", "/b") else 404
        body = b'<title>Small</title><a href="/a">a</a> <a href="/b">b</a>' if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Small)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def refused(*arguments: object, says: str) -> str:
    """The command is refused, in one message that says so."""
    ended = weft_here("crawl", *arguments)
    assert ended.returncode == 2, (ended.returncode, ended.stderr)
    assert ended.stdout == ""
    assert says in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr and "internal error" not in ended.stderr
    return ended.stderr


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file with its content, but for what a reader's SQLite touches."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def crawled(site: str, data: Path, *more: object) -> None:
    ended = weft("crawl", site, *QUICK, "--data-dir", data, *more)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def finished(site: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("finished") / "data"
    crawled(site, data)
    return data


@pytest.fixture
def held(finished: Path, data: Path) -> Path:
    """A data dir that holds a crawl."""
    return Path(shutil.copytree(finished, data))


# ── seeds ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_seeds(data: Path) -> None:
    said = refused("--data-dir", data, says="no seeds: give URLs, or --seed-file FILE")
    assert not data.exists()
    ended = weft("crawl", "--data-dir", data)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said), "a process says no more and no less"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00 http://127.0.0.1/", "is not text"),
        (b"", "has no URL"),
        (b"# nothing\n\n   \n", "has no URL"),
        (b"http://\nftp://x/\n", "has no URL"),
    ],
    ids=["missing", "binary", "empty", "comments", "nothing good"],
)
def test_a_seed_file_that_cannot_be_used(tmp_path: Path, data: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "seeds.txt"
    if content is not None:
        path.write_bytes(content)
    said = refused("--seed-file", path, "--data-dir", data, says=says)
    assert str(path) in said
    assert not data.exists()


def test_a_seed_file_that_is_a_folder(tmp_path: Path, data: Path) -> None:
    refused("--seed-file", tmp_path, "--data-dir", data, says="cannot be read: Is a directory")


def test_bad_lines_are_reported_with_their_numbers_and_the_crawl_goes_on(site: str, tmp_path: Path, data: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text(f"# seeds\nhttp://\n\n{site}\nmailto:me@example.com\n{site}a\n")
    ended = weft("crawl", "--seed-file", path, *QUICK, "--scope", "host", "--data-dir", data)
    assert ended.returncode == 0, ended.stderr
    assert f"{path}:2: " in ended.stderr and f"{path}:5: " in ended.stderr
    assert f"{path}:4: " not in ended.stderr and f"{path}:6: " not in ended.stderr
    assert json.loads(weft_here("stats", data, "--json").stdout)["pages"] == 3


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1/", "http://exa mple.com/", "http://127.0.0.1:99999/"])
def test_a_bad_url_on_the_command_line(data: Path, url: str) -> None:
    refused(url, *QUICK, "--data-dir", data, says=url)
    assert not data.exists()


def test_a_seed_beyond_this_machine_needs_an_email(data: Path) -> None:
    said = refused("https://example.com/", "--data-dir", data, says="--email you@example.com")
    assert "https://example.com/" in said
    assert not data.exists()


# ── data dirs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_data_dir_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    refused(SEED, *QUICK, "--data-dir", path, says=f"data dir {path}: ")
    refused(SEED, *QUICK, "--data-dir", path / "below", says=f"data dir {path / 'below'}: ")
    refused("--resume", "--data-dir", path, says=str(path))
    assert path.read_text() == "mine"


def test_a_data_dir_that_cannot_be_written(tmp_path: Path) -> None:
    refused(SEED, *QUICK, "--data-dir", "/proc/weft", says="data dir /proc/weft: ")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        refused(SEED, *QUICK, "--data-dir", tmp_path / "x", says="Permission denied")


def test_a_data_dir_that_holds_a_crawl(site: str, held: Path) -> None:
    before = snapshot(held)
    said = refused(site, *QUICK, "--data-dir", held, says="holds a crawl already")
    assert f"weft crawl --resume --data-dir {held}" in said and "--fresh --data-dir" in said
    assert snapshot(held) == before


def test_fresh_starts_over(site: str, held: Path) -> None:
    first = json.loads((held / "engine.json").read_bytes())
    (held / "notes.txt").write_text("mine")
    crawled(site + "a", held, "--fresh", "--seeded-urls-only")
    second = json.loads((held / "engine.json").read_bytes())
    assert second["id"] != first["id"]
    assert json.loads(weft_here("stats", held, "--json").stdout)["rows"] == 1
    assert (held / "notes.txt").read_text() == "mine"


def test_fresh_and_resume_contradict_each_other(data: Path) -> None:
    refused("--resume", "--fresh", "--data-dir", data, says="either continue or start over")


@pytest.mark.parametrize(
    ("content", "says"), [(None, "has layout 99"), (b"{", "cannot be read"), (b"", "cannot be read")]
)
def test_a_crawl_of_another_layout(held: Path, content: bytes | None, says: str) -> None:
    path = held / "engine.json"
    facts = json.loads(path.read_bytes())
    facts.pop("sha256")  # the digest of what is in it
    path.write_bytes(sealed_json(facts | {"layout": 99}) if content is None else content)
    before = snapshot(held)
    refused("--resume", "--data-dir", held, says=says)
    assert snapshot(held) == before
    for command in ("stats", "watch"):
        ended = weft_here(command, held)
        assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended.stderr


def test_pages_without_a_crawl_beside_them(site: str, held: Path) -> None:
    (held / "engine.json").unlink()
    before = snapshot(held)
    refused(site, *QUICK, "--data-dir", held, says="holds pages, but no engine.json")
    assert snapshot(held) == before


def test_a_data_dir_in_use(site: str, tmp_path: Path) -> None:
    crawler = Crawler([site], tmp_path, delay_s=30)
    with crawler.running() as running:
        fetcher_of(running)
        said = refused("--resume", "--data-dir", crawler.data_dir, says="a crawl is running in it")
        assert f"weft watch {crawler.data_dir}" in said
        refused(site, *QUICK, "--data-dir", crawler.data_dir, says="a crawl is running in it")
        refused(site, *QUICK, "--fresh", "--data-dir", crawler.data_dir, says="a crawl is running in it")
        assert running.poll() is None


def test_nothing_to_resume(data: Path) -> None:
    refused("--resume", "--data-dir", data, says="holds no crawl: start one there first")
    assert not data.exists()


def test_resuming_with_other_data_dirs(site: str, data: Path) -> None:
    other = data.with_name("other")
    crawled(site, data, "--data-dir", other)
    third = data.with_name("third")
    refused(
        "--resume", "--data-dir", data, "--data-dir", other, "--data-dir", third, says="is not a data dir of the crawl"
    )
    ended = weft("crawl", "--resume", "--data-dir", other, "--data-dir", data)
    assert ended.returncode == 0, ended.stderr


# ── settings ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-pages", "many"], "--max-pages"),
        (["--max-pages", "0"], "--max-pages"),
        (["--scope", "world"], "use one of any, domain, host, prefix"),
        (["--delay", "-1"], "--delay"),
        (["--include", "re:("], "is not a regular expression"),
        (["--exclude-file", "/nowhere/at/all"], "cannot be read: No such file or directory"),
        (["--config", "/nowhere/at/all"], "cannot be read: No such file or directory"),
        (["--retry-failed"], "works on resume alone"),
        (["--no-such-flag"], "no such option"),
    ],
)
def test_settings_that_are_not_accepted(
    data: Path, flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["crawl", SEED, "--allow-private", *flags, "--data-dir", str(data)]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.out == ""
    assert not data.exists()


def test_an_exclude_file_with_a_bad_line(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "excluded.txt"
    path.write_text("example.com\nnot a domain\n")
    refused(SEED, *QUICK, "--exclude-file", path, "--data-dir", data, says=f"{path}:2: ")
    assert not data.exists()


def test_a_crawl_of_this_machine_with_the_usual_delay_is_told_of_a_shorter_one(site: str, data: Path) -> None:
    crawl = ("crawl", site, "--allow-private", "--max-pages", "2", "--prometheus-port", "0", "--data-dir", data)
    assert "`--delay 0` crawls it without waiting" in weft(*crawl).stderr
    assert "--delay 0" not in weft(*crawl, "--fresh", "--delay", "0.05").stderr
