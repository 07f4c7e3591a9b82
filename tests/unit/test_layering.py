"""Which room may import which: walks the imports of src/weft and fails on a forbidden one (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "weft"
GROUND = {
    "alive", "bodies", "compiled", "config", "credentials", "errors", "files", "frames", "logins", "names", "patterns",
    "plain_links", "records", "references", "removal", "scraping", "sealed", "secret_files", "telemetry", "urls",
    "__init__",
}  # fmt: skip
PARTS = {"frontier", "fetch", "extract", "store", "supervise"}
PRODUCTS = {"crawl", "jobs", "pipelines", "spiders"}

# room -> the rooms it may import besides itself
MAY = (
    dict.fromkeys(GROUND, GROUND)
    | dict.fromkeys(PARTS, GROUND)
    | {"engine": GROUND | PARTS}
    | {room: GROUND | PARTS | {"engine"} for room in PRODUCTS}
    | {"cluster": GROUND | PARTS | PRODUCTS | {"engine"}}
    | {"system": GROUND | PARTS | PRODUCTS | {"engine", "cluster"}}
    | {"testing": GROUND, "client": GROUND}
    | {"__main__": {"cli"}, "__init__": GROUND | PRODUCTS | {"engine", "system"}}  # which it only names: see below
    | {"cli": GROUND | PARTS | PRODUCTS | {"engine", "client", "cluster", "system", "testing", "cli"}}
)
# library -> the only modules or rooms that import it; none: no room for it exists yet
ONLY: dict[str, tuple[str, ...]] = {
    "redis": ("frontier/redis/", "cluster/broker.py"),
    "celery": ("cluster/",),
    "kombu": ("cluster/",),
    "starlette": ("jobs/api/", "jobs/compat/", "jobs/dashboard/"),
    "jinja2": ("jobs/dashboard/pages.py", "pipelines/builtin/modules/report_page.py"),
    "uvicorn": ("jobs/api/server.py",),
    "turbohtml": ("extract/turbo.py",),
    "re2": ("patterns.py",),
    "playwright": (),
    "scrapy": ("spiders/scrapy/",),
    "twisted": ("spiders/scrapy/",),
    "itemadapter": ("spiders/scrapy/",),
    "parsel": (),
}


def room_of(module: str) -> str:
    """`weft.frontier.embedded.embedded_frontier` -> `frontier`; `weft` itself -> `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(tree: ast.AST, module: str) -> list[tuple[int, str]]:
    """Every imported module as (line, absolute name), lazy ones inside functions included."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], base]).rstrip(".")
            # `from weft import urls` names a room in the alias, `from weft.fetch import robots` in the base
            names = [f"weft.{alias.name}" for alias in node.names] if base == "weft" else [base]
            found += [(node.lineno, name) for name in names]
    return found


def violations(source: str, module: str) -> list[str]:
    """The forbidden imports in one module's source."""
    room = room_of(module)
    wrong = []
    for line, name in imports(ast.parse(source), module):
        if name.startswith("weft.__"):
            continue
        if name == "weft" or name.startswith("weft."):
            if room_of(name) not in MAY.get(room, set()) | {room}:
                wrong.append(f"{module}:{line} imports {name}")
        elif (library := name.split(".")[0]) in ONLY:
            path = module.removeprefix("weft.").replace(".", "/") + ".py"
            if not path.startswith(ONLY[library]):
                wrong.append(f"{module}:{line} touches {name}")
    return wrong


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def test_every_room_has_its_rules() -> None:
    assert {room_of(module) for module, _ in modules()} <= set(MAY)


def test_every_listed_importer_of_a_library_imports_it() -> None:
    for library, places in ONLY.items():
        for place in places:
            sources = [path.read_text() for path in SRC.rglob("*.py") if str(path.relative_to(SRC)).startswith(place)]
            assert any(f"import {library}" in text or f"from {library}" in text for text in sources), place


def test_imports_follow_the_rules() -> None:
    assert [fault for module, path in modules() for fault in violations(path.read_text(), module)] == []


def test_the_package_itself_names_its_products_and_loads_none() -> None:
    script = "import sys, weft; print(*(name for name in sys.modules if name.startswith('weft')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["weft"]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.urls", "from weft.fetch import client"),
        ("weft.frontier.embedded.embedded_frontier", "import weft.store.warc.warc_records"),
        ("weft.fetch.curl.client", "def f():\n    from weft import engine"),
        ("weft.engine.loop.fetcher.fetch_loop", "from weft.crawl import orchestrator"),
        ("weft.jobs.runner", "from weft.pipelines.pool.api import WorkerPool"),
        ("weft.fetch.curl.client", "from ...cli import main"),
        ("weft.extract.page", "import redis"),
        ("weft.extract.links", "from turbohtml import Document"),
        ("weft.client.sync", "from weft.jobs.model import Task"),
        ("weft.jobs.runner", "from starlette.requests import Request"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.frontier.embedded.embedded_frontier", "from weft import urls\nfrom weft.records import Lease"),
        (
            "weft.engine.loop.fetcher.fetch_loop",
            "from weft.frontier import contract\nfrom weft.fetch.curl.client import Client",
        ),
        ("weft.cli.crawls.crawl", "from weft.crawl import progress"),
        ("weft.frontier.redis.connection", "import redis"),
    ],
)
def test_a_permitted_import_passes(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_every_file_that_the_map_of_the_code_names_exists() -> None:
    """Docs are read first and renamed last: a newcomer must find what docs/architecture.md and the recipes name."""
    root = SRC.parents[1]
    files = {path.relative_to(SRC).as_posix() for path in SRC.rglob("*") if "__pycache__" not in path.parts}
    own = {"quotes.py", "_name.c"}  # of the user in an example; any module written twice
    for document in ("docs/architecture.md", "CONTRIBUTING.md"):
        named = set(
            re.findall(
                r"`(?:src/weft/)?([\w*]+(?:/[\w*]+)*(?:\.(?:py|yaml|json|toml|c)|/))`", (root / document).read_text()
            )
        )
        assert len(named) > 20, document
        lost = {
            name
            for name in named - own
            if not any(f"/{file}".endswith("/" + name.rstrip("/")) for file in files) and not list(root.glob(name))
        }
        assert not lost, f"{document} names what is not there"
