"""The source of `modules`, its settings, its rows, and the report page: with texts that strangers wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from weft.errors import BadInput, Missing
from weft.pipelines.builtin.modules import collect_modules, module_list, report_page
from weft.pipelines.files import RunFiles
from weft.pipelines.stage import CollectContext, ItemResult, StageOutcome

EVIL = "<script>alert('x')</script>\"'&"
CLONE = {
    "commit": "c" * 40,
    "branch": "main",
    "committed_at": "2024-01-01T10:00:00+00:00",
    "files": 3,
    "bytes": 2048,
    "submodules": ["theirs"],
    "history": {
        "commits": 2,
        "authors": 1,
        "is_cut": False,
        "since": None,
        "dates": ["2024-01-01T10:00:00+00:00", None],
    },
}
ABOUT = {
    "name": EVIL,
    "description": EVIL,
    "author": None,
    "tags": [EVIL],
    "licence": {"spdx": "MIT", "stated": "MIT", "file": None, "verdict": "permissive", "differs": True},
    "thumbnail": "thumbnails/a.webp",
}
ANALYSIS = {
    "readme": {"problems": ["it is empty"]},
    "javascript": {"missing": [f"m{number}" for number in range(8)], "unused": []},
    "python": None,
    "eslint": {"errors": 3, "rules": {"no-eval": 2}},
}
OUTDATED = {"javascript": {"outdated": [{"package": "left", "declared": "^1", "latest": "2.0.0"}]}}


def result(values: Mapping[str, Any], status: str = "ok", **facts: Any) -> ItemResult:
    item = {"id": facts.pop("id", "a"), "url": facts.pop("url", "https://host/a"), "name": None}
    stages = {name: StageOutcome("ok") for name in values}
    return ItemResult(
        item, 0, status, facts.get("failure_phase"), facts.get("error"), stages, lambda name: values[name]
    )


def collected(folder: Path, *results: ItemResult) -> tuple[list[Mapping[str, Any]], str]:
    context = CollectContext({"today": "2024-01-31"}, {}, RunFiles(folder), len(results))
    rows = list(collect_modules.collect(iter(results), context))
    assert json.loads((folder / "catalogue.json").read_text()) == rows
    return rows, (folder / "report.html").read_text()


def test_a_list_gives_items_with_the_ids_it_has_or_names_and_maintainers(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(
        json.dumps(
            [
                {"id": "own", "url": "u1", "lastCommit": "2024-01-01", "extra": {"deep": 1}},
                {"name": "clock", "maintainer": "ada", "url": "u2", "branch": "dev", "last_commit": "x"},
                {"name": "clock", "url": "u3"},
                {"id": "", "url": "u4"},
                "no entry",
            ]
        )
    )
    assert module_list.items({"list": str(file)}) == [
        {"url": "u1", "last_commit": "2024-01-01", "id": "own"},
        {"url": "u2", "branch": "dev", "name": "clock", "maintainer": "ada", "last_commit": "x", "id": "clock-----ada"},
        {"url": "u3", "name": "clock"},
        {"url": "u4"},
        {"entry": "no entry"},
    ]
    file.write_text('{"modules": [{"id": 7}]}')
    assert module_list.items({"list": str(file)}) == [{"id": 7}]


@pytest.mark.parametrize(
    ("text", "why"), [(None, "No such file"), ("{", "is not JSON"), ("7", "holds no list"), ("{}", "holds no list")]
)
def test_a_list_that_is_none_is_said_to_be(tmp_path: Path, text: str | None, why: str) -> None:
    file = tmp_path / "list.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=why):
        module_list.items({"list": str(file)})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"clone": {"transports": ["git"]}}, "clone.transports must be a list of some of https, ssh, file, http"),
        ({"clone": {"transports": []}}, "clone.transports must be"),
        ({"clone": {"max_bytes": 0}}, "clone.max_bytes must be a number above 0, not 0"),
        ({"clone": {"depth": "all"}}, "clone.depth must be a number"),
        ({"clone": {"allow_private": "yes"}}, "clone.allow_private must be true or false"),
        ({"clone": {"remote_check": "never"}}, "always or catalogue"),
        ({"clone": {"max_byte": 1}}, "clone.max_byte is no setting of `modules`; there are: allow_private,"),
        ({"outdated": {"npm_registry": "registry.example"}}, "outdated.npm_registry must be the address"),
        ({"analyse": {"eslint": ""}}, "analyse.eslint must be auto, off, or"),
        ({"enrich": {"thumbnail_width": True}}, "enrich.thumbnail_width must be a number"),
        ({"collect": {"today": "soon"}}, "collect.today must be a day like 2026-01-31"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_before_anything_is_begun(settings: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        module_list.check(settings)


def test_what_is_not_installed_is_said_before_anything_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_list, "find_spec", lambda name: None if name == "PIL" else object())
    with pytest.raises(Missing, match=r"Pillow is not installed: it comes with the extra 'modules'"):
        module_list.check({})


def test_good_settings_pass() -> None:
    module_list.check(
        {
            "clone": {"depth": 1, "timeout_s": 2.5},
            "outdated": {"npm_registry": "https://host"},
            "collect": {"today": "2024-01-31"},
        }
    )


def test_a_row_says_what_is_known_and_how_old_it_is(tmp_path: Path) -> None:
    values = {"clone": CLONE, "enrich": ABOUT, "analyse": ANALYSIS, "outdated": OUTDATED}
    rows, _ = collected(tmp_path, result(values, status="skipped"))
    assert rows[0]["status"] == "ok"
    assert rows[0]["repository"]["age_days"] == 30 and rows[0]["repository"]["maintained"] == "active"
    assert rows[0]["repository"]["commits_last_year"] == 1
    assert "dates" not in rows[0]["repository"]["history"]


def test_a_failed_item_has_a_row_with_what_was_reached(tmp_path: Path) -> None:
    rows, page = collected(
        tmp_path,
        result({}, status="failed", failure_phase="clone", error="it is empty"),
        result({"clone": CLONE}, status="timeout", failure_phase="enrich", error="late", id="b"),
    )
    assert [(row["status"], row["failure_phase"], row["repository"] is None) for row in rows] == [
        ("failed", "clone", True),
        ("timeout", "enrich", False),
    ]
    assert "failed in clone" in page and "it is empty" in page


def test_nothing_that_a_stranger_wrote_is_markup_in_the_report(tmp_path: Path) -> None:
    values = {"clone": CLONE, "enrich": ABOUT, "analyse": ANALYSIS, "outdated": OUTDATED}
    _, page = collected(
        tmp_path, result(values), result({}, status="failed", error=EVIL, id=EVIL, url="javascript:alert(1)")
    )
    assert "<script>alert" not in page and "&lt;script&gt;" in page
    assert 'href="javascript' not in page
    assert page.count("<script>") == 1


def test_the_report_holds_its_pictures_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thumbnails").mkdir()
    (tmp_path / "thumbnails" / "a.webp").write_bytes(b"picture")
    values = {"clone": CLONE, "enrich": ABOUT}
    monkeypatch.setattr(report_page, "PICTURES_BYTES", 10)
    _, page = collected(tmp_path, result(values), result(values, id="b"))
    assert page.count("data:image/webp;base64,cGljdHVyZQ==") == 1 and 'src="thumbnails/a.webp"' in page


def test_answers_of_registries_are_kept_for_the_newest_period(tmp_path: Path) -> None:
    for period in ("9", "11", "10", "notes"):
        (tmp_path / "registry" / period / "npm").mkdir(parents=True)
    collected(tmp_path, result({}))
    assert sorted(path.name for path in (tmp_path / "registry").iterdir()) == ["11", "notes"]


def test_remarks_are_short_sentences(tmp_path: Path) -> None:
    values = {"clone": CLONE, "enrich": ABOUT, "analyse": ANALYSIS, "outdated": OUTDATED}
    _, page = collected(tmp_path, result(values))
    for remark in (
        "README: it is empty",
        "missing dependencies: m0, m1, m2, m3, m4, m5 and 2 more",
        "outdated: left ^1 → 2.0.0",
        "ESLint: 3 errors, mostly no-eval",
        "Submodules are not fetched: theirs",
        "different licences",
    ):
        assert remark in page
    assert date(2024, 1, 31).isoformat() in page
