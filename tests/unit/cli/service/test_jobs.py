"""`weft jobs` and `weft keys`, against the real HTTP server over a service in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from scripted_service import ScriptedService
from served import Server, served

from weft.cli.main import run
from weft.config import load_service
from weft.jobs.api.access.keys import Keyring
from weft.jobs.webhooks.webhook_model import Delivery
from weft.scraping import FinishReason, HookEvent, TaskState

SITE = "https://example.com/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(ScriptedService(), tmp_path_factory.mktemp("service")) as server:
        yield server


class Weft:
    """Runs command lines against the service."""

    def __init__(self, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self._capfd = capfd

    def __call__(self, *words: object, code: int = 0) -> str:
        assert run(["jobs", *map(str, words), "--server", self.server.url]) == code, self._capfd.readouterr()
        captured = self._capfd.readouterr()
        self.said = captured.err
        return captured.out

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))

    def submit(self, *words: object) -> str:
        return self("submit", SITE, *words).strip()


@pytest.fixture
def weft(server: Server, capfd: pytest.CaptureFixture[str]) -> Weft:
    return Weft(server, capfd)


def finish(server: Server, task_id: str, state: TaskState = TaskState.PARTIAL) -> None:
    def all_of_it() -> None:
        server.service.move(task_id, TaskState.RUNNING)
        server.service.page(task_id, SITE, markdown="# A \x1b[31m")
        server.service.error(task_id, f"{SITE}bad")
        server.service.move(task_id, state, FinishReason.DONE)

    server.do(all_of_it)


def test_a_task_is_submitted_watched_and_taken(weft: Weft, tmp_path: Path) -> None:
    task_id = weft.submit(
        "--max-depth", 1, "--include", "/docs/*", "--formats", "text", "--links", "drop", "--no-partial"
    )
    assert weft.said == f"weft jobs watch {task_id}   # shows its progress\n"
    spec = weft.server.service.tasks[task_id].spec
    assert (spec.max_depth, spec.include, spec.formats) == (1, ("/docs/*",), ("text",))
    assert spec.format_options["links"] == "drop"
    assert spec.partial_results_ok is False
    finish(weft.server, task_id)
    assert weft("watch", task_id, code=3) == ""
    first, second = weft.said.splitlines()
    assert first.startswith("PARTIAL 100 % · 1 pages, 1 failed")
    assert second == f"weft jobs errors {task_id}   # lists the pages, with reasons"
    assert weft.json("watch", task_id, code=3)["progress"]["completed"] == 1
    assert json.loads(weft("results", task_id))["url"] == SITE
    assert weft("results", task_id, "--out", tmp_path / "out.csv", "--format", "csv") == ""
    assert (tmp_path / "out.csv").read_text().startswith("number,url,status,title,")
    found = weft.json("results", task_id, "--errors")
    assert (len(found["results"]), found["errors"][0]["url"], found["schema"]) == (1, f"{SITE}bad", 1)
    assert weft("errors", task_id) == f"http_5xx    {SITE}bad  HTTP 500\n"
    assert weft.json("errors", task_id)["errors"][0]["error_class"] == "http_5xx"
    assert task_id in weft("list", "--status", "partial")
    assert weft.json("list", "--limit", 1)["tasks"][0]["task_id"] == task_id


def test_a_submit_that_watches_prints_the_id_too(weft: Weft) -> None:
    task_id = weft.submit("--idempotency-key", "once")
    finish(weft.server, task_id)
    assert weft("submit", SITE, "--idempotency-key", "once", "--watch", code=3) == f"{task_id}\n"


def test_a_watch_follows_to_the_end(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id, looked, status = weft.submit(), threading.Event(), weft.server.service.status

    async def seen(*given: Any, **more: Any) -> Any:
        found = await status(*given, **more)
        looked.set()
        return found

    monkeypatch.setattr(weft.server.service, "status", seen)

    def soon() -> None:
        looked.wait(patience(10))
        finish(weft.server, task_id, TaskState.COMPLETED)

    thread = threading.Thread(target=soon)
    thread.start()
    weft("watch", task_id)
    thread.join()
    assert weft.said.startswith("PENDING") and "COMPLETED" in weft.said.splitlines()[-1]


def test_a_task_is_paused_resumed_and_cancelled(weft: Weft) -> None:
    task_id = weft.submit()
    weft("pause", task_id, code=2)
    assert "it cannot be paused" in weft.said
    weft.server.do(lambda: weft.server.service.move(task_id, TaskState.RUNNING))
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("cancel", "CANCELLED")):
        weft(verb, task_id)
        assert weft.said == f"{task_id}: {state}\n"
    assert weft.json("cancel", task_id)["finish_reason"] == "cancelled"
    weft("watch", task_id, code=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("submit", SITE, "--proxies"),
            "proxies: this service has none; leave the field out, or start it with `--proxies FILE`",
        ),
        (("submit", "ftp://example.com/"), "url: 'ftp://example.com/' is not accepted; use a URL of http or https"),
        (("submit", SITE, "--timeout-minutes", "4"), "timeout_minutes: 4 is not accepted; use a whole number from 5"),
        (("submit", SITE, "--max-depth", "x"), "--max-depth: 'x' is not accepted; use a whole number"),
        (("submit", SITE, "--extract", "/nonsense"), "extract: /nonsense cannot be read"),
        (("watch", "nonsense"), "there is no task 'nonsense'"),
        (("results", "0" * 32), "there is no task"),
        (("results", "0" * 32, "--format", "json"), "use jsonl, or --json for one document"),
        (("list", "--status", "done"), "status: "),
        (("list", "--key-file", "/nonsense"), "`key_file`: /nonsense cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_a_message(weft: Weft, words: tuple[str, ...], said: str) -> None:
    assert weft(*words, code=2) == ""
    assert weft.said.startswith("weft: ") and said in weft.said, weft.said


def test_a_result_file_that_cannot_be_written_is_named(weft: Weft, tmp_path: Path) -> None:
    weft("results", weft.submit(), "--out", tmp_path / "no" / "file", code=2)
    assert "No such file or directory" in weft.said


def test_a_task_that_is_not_there_leaves_the_file_of_another(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_text("earlier\n")
    weft("results", "0" * 32, "--out", tmp_path / "pages.jsonl", code=2)
    assert (tmp_path / "pages.jsonl").read_text() == "earlier\n"


def test_a_service_that_is_away_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "list", "--server", "http://127.0.0.1:1"]) == 1
    assert "does not answer: Connection refused; is it running? `weft serve` starts one" in capfd.readouterr().err
    assert run(["jobs", "list", "--server", "nonsense:x"]) == 2


def test_keys_are_made_listed_and_revoked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ["--data-dir", str(tmp_path)]
    assert run(["keys", "create", "ci", "--scope", "read", *folder]) == 0
    made = capfd.readouterr()
    key = Keyring(tmp_path / "api-keys.json").check(made.out.strip())
    assert key is not None and key.scopes == ("read",) and "shown once" in made.err
    assert run(["keys", "list", *folder]) == 0
    assert capfd.readouterr().out == f"{key.id}  valid    {'ci':24}  read\n"
    with served(ScriptedService(), tmp_path) as server:
        monkeypatch.setenv("WEFT_API_KEY", made.out.strip())
        monkeypatch.setenv("WEFT_SERVER", server.url)
        assert run(["jobs", "list"]) == 0
        assert run(["jobs", "submit", SITE]) == 2
        assert "lacks the scope 'submit'" in capfd.readouterr().err
        (tmp_path / "key").write_text("weft_nonsense\n")
        (tmp_path / "key").chmod(0o600)
        assert run(["jobs", "list", "--key-file", str(tmp_path / "key")]) == 2
        assert "weft: this API key is not valid: put one into WEFT_API_KEY" in capfd.readouterr().err
        monkeypatch.delenv("WEFT_API_KEY")
        assert run(["jobs", "list"]) == 2
        said = capfd.readouterr().err
        assert said.startswith("weft: an API key is needed: put one into WEFT_API_KEY, or into a file that --key-file")
        assert "Bearer" not in said
    assert run(["keys", "revoke", "ci", "--json", *folder]) == 0
    assert json.loads(capfd.readouterr().out)["revoked_at"].endswith("Z")
    for words in (["revoke", "ci"], ["create", "a\nb"], ["create", "x", "--scope", "nonsense"]):
        assert run(["keys", *words, *folder]) == 2


@pytest.mark.parametrize("way", ["flag", "variable", "file", "default"])
def test_keys_are_made_where_the_service_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(tmp_path)
    flags: list[str] = []
    if way == "flag":
        flags = ["--data-dir", "chosen"]
    elif way == "variable":
        monkeypatch.setenv("WEFT_DATA_DIR", "chosen")
    elif way == "file":
        Path("weft.yaml").write_text("data_dir: chosen\n")
        flags = ["--config", "weft.yaml"]
    assert run(["keys", "create", "one", *flags]) == 0
    file, values = (flags[1], {}) if way == "file" else (None, {"data_dir": "chosen"} if flags else {})
    config = load_service(file, flags=values)
    assert [key.name for key in Keyring(Path(config.server.data_dir) / "api-keys.json").all()] == ["one"]
    assert Path(config.server.data_dir) == Path("weft-service" if way == "default" else "chosen")


def test_webhooks_are_listed_and_sent_again(weft: Weft) -> None:
    task = weft.submit("--webhook", "https://hooks.example/x")
    line: Any = {"event": HookEvent.PAGE, "first_at": 0.0, "last_at": 0.0}
    weft.server.service.webhooks.log[task] = [
        Delivery(number=1, attempts=1, delivered_at=0.0, status=200, error="", **line),
        Delivery(number=2, attempts=7, delivered_at=None, status=500, error="HTTP 500", **line),
    ]
    out = weft("webhooks", "list", task)
    assert out.splitlines()[1].split() == ["2", "page", "1970-01-01", "00:00:00", "HTTP", "500", "7", "attempts"]
    assert "https://hooks.example/x: open" in weft.said
    assert [one["number"] for one in weft.json("webhooks", "list", task, "--failed")["deliveries"]] == [2]
    assert weft.json("webhooks", "replay", task, "--number", 2)["to_send_again"] == [2]
    assert weft("webhooks", "secret").startswith("whsec_")
    assert "without a webhook" in _said(weft, "webhooks", "list", weft.submit())


def _said(weft: Weft, *words: object) -> str:
    weft(*words, code=2)
    return weft.said
