"""`weft sites` on a store that no service serves: what it says, what it refuses, what it shows."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from weft.cli.main import run
from weft.cli.service.site_display import sites_picture, table
from weft.cli.service.sites import have_ended
from weft.cli.terminal.live import Box
from weft.jobs.sites.files import site_of
from weft.jobs.sites.registry import SiteRegistry


class Home:
    """Commands on one data dir."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self.data_dir = folder / "service"
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        """A command's document."""
        assert run(["sites", *arguments, "--data-dir", str(self.data_dir), "--json"]) == code
        out, self.err = self._capsys.readouterr()
        return json.loads(out) if out else None

    def said(self, *arguments: str, code: int = 0) -> str:
        """What a person sees of it."""
        assert run(["sites", *arguments, "--data-dir", str(self.data_dir)]) == code
        out, err = self._capsys.readouterr()
        return out + err

    def file(self, name: str, **more: Any) -> str:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps({"name": name, "start_urls": [f"https://{name}.example/"], **more}))
        return str(path)


@pytest.fixture
def home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capsys)


def test_sites_are_added_listed_run_stopped_and_removed(home: Home) -> None:
    assert home("list") == {"schema": 1, "sites": []}
    files = [home.file("shop", depends_on=["base"], schedule="@daily"), home.file("base")]
    assert home("add", *files)["added"] == ["shop", "base"]
    listed = home("list")["sites"]
    assert [site["name"] for site in listed] == ["base", "shop"] and listed[1]["schedule"] == "@daily"
    started = {one["site"]: one["task_id"] for one in home("run", "--all")["runs"]}
    assert started["shop"] is None and len(started["base"]) == 32
    assert "no service runs here" in home.err
    status = {one["name"]: one for one in home("status")["sites"]}
    assert (status["shop"]["state"], status["shop"]["waits_for"]) == ("waiting", ["base"])
    assert (status["base"]["state"], status["base"]["waits_for"]) == ("waiting", ["service"])
    assert "base: waits for a service: `weft up` or `weft serve` starts one" in home.said("status")
    assert status["shop"]["next_at"].endswith("Z")
    assert home("stop", "--all") == {"schema": 1, "stopped": ["base"], "unasked": ["shop"], "have_ended": False}
    assert "b depends" not in home.said("remove", "shop")
    assert "stop it first" in home.said("remove", "base", code=2)
    assert home("changes", "base") == {"schema": 1, "site": "base", "reports": []}
    assert "no run of base has ended yet" in home.said("changes", "base")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run",), "name the sites to run, or give --all"),
        (("stop", "a", "--all"), "name the sites to stop, or give --all"),
        (("run", "none"), "there is no site 'none'; none was added yet"),
        (("add", "/nowhere.yaml"), "/nowhere.yaml: cannot be read"),
    ],
)
def test_what_is_refused(home: Home, arguments: tuple[str, ...], said: str) -> None:
    assert said in home.said(*arguments, code=2)


def test_files_that_cannot_be_together_add_nothing(home: Home) -> None:
    a, b = home.file("a", depends_on=["b"]), home.file("b", depends_on=["a"])
    assert "wait for each other" in home.said("add", a, b, code=2)
    assert "is in two of these files" in home.said("add", home.file("c"), home.file("c"), code=2)
    assert home("list")["sites"] == []


def test_what_is_replaced_is_said_and_a_keys_site_is_not(home: Home) -> None:
    assert "a is added" in home.said("add", home.file("a", schedule="@daily"))
    said = home.said("add", home.file("a", schedule="@daily"))
    assert "a is replaced; what is known of its pages is kept; next run " in said and said.endswith(" UTC\n")
    home("run", "a")
    home("add", home.file("b", depends_on=["a"]))
    home("run", "b")
    assert "stopped a; no longer requested: b" in home.said("stop", "--all")
    with SiteRegistry(home.data_dir) as sites:
        sites.add([site_of({"name": "keyed", "start_urls": ["https://k.example/"]}, 0.0)], "k1")
    assert "keyed belongs to the API key k1; choose another name" in home.said("add", home.file("keyed"), code=2)


def test_a_watched_run_is_over_when_nothing_can_go_on_by_itself(home: Home) -> None:
    home("add", home.file("shop", depends_on=["base"]), home.file("base"))
    home("run", "--all")
    with SiteRegistry(home.data_dir) as sites:
        base, shop = sites.status()
    names = {"base": "", "shop": ""}
    assert not have_ended([base, shop], names), "one runs"
    failed = msgspec.structs.replace(base, state="paused")
    assert have_ended([failed, shop], names), "the other waits for one that is paused"
    proxied = msgspec.structs.replace(shop, waits_for=("proxies",))
    assert not have_ended([failed, proxied], names), "proxies may come"
    assert have_ended([failed, proxied], names, may_get_proxies=False)
    assert have_ended([msgspec.structs.replace(one, state="idle", waits_for=()) for one in (base, shop)], names)


def test_secrets_of_a_webhook_are_not_shown(home: Home) -> None:
    hook = {"url": "https://hooks.example/", "headers": {"X-Token": "hidden"}}
    home("add", home.file("a", webhook=hook))
    assert "hidden" not in json.dumps(home("list"))


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_has_a_row_for_each_site_and_says_who_waits(home: Home, width: int) -> None:
    home("add", home.file("shop", depends_on=["base"]), home.file("base"))
    home("run", "--all")
    with SiteRegistry(home.data_dir) as sites:
        base, shop = sites.status()
    base = msgspec.structs.replace(base, state="running", waits_for=(), memory_bytes=1 << 20, pages=12_345)
    found = [msgspec.structs.replace(base, next_at=90_000.0), shop]
    console = Console(file=StringIO(), width=width, force_terminal=True)
    display = Box(sites_picture, console, remains=True)
    display(found)
    display.close()
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 of 2 running" in drawn and "shop: waits for base" in drawn
    assert "running" in drawn and "waiting" in drawn and "01-02 01:00" in drawn and "…" not in drawn
    assert table(found).splitlines()[0].startswith("site") and len(table(found).splitlines()) == 4
