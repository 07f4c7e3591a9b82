"""The JSON of every command: versioned, every field in docs/json.md, times and parents in one form, no internals."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from scripted import Plan, Web, linking

from weft.cli.main import COMMANDS, run

DOCUMENT = (Path(__file__).parents[2] / "docs/json.md").read_text() + (
    Path(__file__).parents[2] / "docs/export.md"
).read_text()
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
INTERNAL = {"item", "crawl", "hops", "warc_length", "run", "pid", "orchestrator", "told_at", "sent", "received", "wall"}
BY_CHOICE = {"settings", "statuses", "content_types", "depths", "hosts", "errors", "refused", "value", "imbalance"}
NAMES = (
    "crawl", "stats", "watch", "explain", "audit", "get", "get headers", "get links", "get text", "get body", "export",
    "rebuild", "url", "config show", "config check", "pool run",
)  # fmt: skip


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, dict[str, Any]]:
    """A crawl of two pages: its folder, the URL of the second, and what it told."""
    plan, out = Plan("json"), io.StringIO()
    site = plan.site("json.test").on("/", linking("/page")).pages("/page")
    folder = str(tmp_path_factory.mktemp("crawl") / "data")
    with Web({site.host: site}) as plan.web, redirect_stdout(out):
        flags = ["--delay", "0", "--allow-private", "--resolve", "*=127.0.0.1", "--prometheus-port", "0"]
        assert run(["crawl", site.url("/"), "--data-dir", folder, "--json", *flags]) == 0
    return folder, site.url("/page"), json.loads(out.getvalue())


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a document, but for those whose names are data."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            if name not in BY_CHOICE:
                yield from fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    code = run([*words, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code in (0, 2), document
    return document


def calls(crawl: str, url: str, folder: Path) -> dict[str, tuple[str, ...]]:
    (folder / "bad.yaml").write_text("delya: 1\n")
    (folder / "items.jsonl").write_text('{"id": "a"}\n')
    pool = ("pool", "run", "builtins:print", "--items", str(folder / "items.jsonl"), "--logs", str(folder / "logs"))
    return {
        "stats": ("stats", crawl),
        "watch": ("watch", crawl),
        "explain": ("explain", crawl, url, "gopher://x/"),
        "audit": ("audit", crawl),
        "get": ("get", crawl, url),
        "get headers": ("get", crawl, url, "--headers"),
        "get links": ("get", crawl, url, "--links"),
        "get text": ("get", crawl, url, "--text"),
        "get body": ("get", crawl, url, "--body"),
        "export": ("export", crawl, "--format", "jsonl", "--out", str(folder / "out.jsonl")),
        "rebuild": ("rebuild", crawl),
        "url": ("url", "example.com"),
        "config show": ("config", "show", "max_pages"),
        "config check": ("config", "check", str(folder / "bad.yaml")),
        "pool run": pool,
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_versioned_and_every_field_of_it_documented(
    name: str, crawled: tuple[str, str, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, url, crawl = crawled
    document = crawl if name == "crawl" else told(capsys, *calls(folder, url, tmp_path)[name])
    assert next(iter(document)) == "schema" and document["schema"] == 1
    for field, value in fields(document):
        assert re.search(rf"`{field}`|\b{field}\b", DOCUMENT), f"{field} is not in docs/json.md"
        assert field not in INTERNAL, field
        if field.endswith("_at") and value is not None:
            assert ISO.fullmatch(value), (field, value)
        if field == "parent":
            assert value == url.removesuffix("page")


def test_every_command_is_in_the_document() -> None:
    without = {"completion", "shell", "worker"}
    assert {name for name in COMMANDS if f"weft {name}" not in DOCUMENT} == without
