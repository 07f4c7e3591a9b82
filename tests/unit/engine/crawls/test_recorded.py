"""What is recorded of the settings of an engine's crawls, and what a later start of the engine makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.config import Config
from weft.engine.crawls.recorded import RecordedSettings
from weft.engine.crawls.settings import config_of
from weft.engine.crawls.tenant import TenantRecord


def opened(folder: Path, shared: dict[str, Any], **own: Any) -> TenantRecord:
    record = TenantRecord(settings=own)
    RecordedSettings(folder, shared).add(record, config_of(shared, own))
    return record


def later(folder: Path, record: TenantRecord, **shared: Any) -> Config:
    return RecordedSettings(folder, shared).config_of(record)


@pytest.mark.parametrize(
    ("shared", "own", "delay_s", "places"),
    [
        ({}, {}, 1.0, 1),
        ({"scope": "any"}, {}, 70.0, 1),
        ({}, {"scope": "any"}, 70.0, 1),
        ({"politeness_delay_seconds": 0}, {}, 0.0, 8),
        ({"politeness_delay_seconds": 0}, {"politeness_delay_seconds": 2}, 2.0, 1),
    ],
)
def test_defaults_that_follow_from_other_values_are_kept(
    tmp_path: Path, shared: dict[str, Any], own: dict[str, Any], delay_s: float, places: int
) -> None:
    record = opened(tmp_path, shared, **own)
    for others in ({}, {"scope": "host", "politeness_delay_seconds": 0.5}, {"scope": "any"}):
        config = later(tmp_path, record, **others)
        assert (config.politeness.delay_s, config.politeness.places) == (delay_s, places)
        assert config.scope == config_of(shared, own).scope


def test_what_is_the_engines_stays_the_engines(tmp_path: Path) -> None:
    shared = {
        "fetcher_workers": 3, "allow_private": True, "auth": {"a.example": "me:old"}, "total_timeout": 200,
        "lease_seconds": 300, "proxies": "list.txt", "proxy_sticky": True,
    }  # fmt: skip
    record = opened(tmp_path, shared)
    config = later(tmp_path, record, fetcher_workers=9, auth={"a.example": "me:new"}, politeness_scope="host")
    assert (config.fetch.workers, config.politeness.key_scope) == (9, "host")
    assert config.fetch.auth == {"a.example": "me:new"}, "a password that was changed works at once"
    assert (config.fetch.total_timeout_s, config.politeness.lease_s) == (200, 300), "leases outlive their transfers"
    assert config.fetch.proxy_sticky and not config.fetch.allow_private
    assert "old" not in "".join(path.read_text() for path in (tmp_path / "settings").iterdir())


def test_settings_that_are_missing_or_damaged_are_those_of_the_engine(tmp_path: Path) -> None:
    record = opened(tmp_path, {"max_depth": 3}, scope="any")
    (file,) = (tmp_path / "settings").iterdir()
    file.write_bytes(file.read_bytes().replace(b'"max_depth":3', b'"max_depth":7'))
    kept = RecordedSettings(tmp_path, {"max_depth": 2})
    assert kept.config_of(record).scope.max_depth == 2
    assert kept.config_of(record).politeness.delay_s == 70.0, "this is in the crawl's own record"
    assert kept.adopt(record) and not kept.adopt(record)
    assert RecordedSettings(tmp_path, {"max_depth": 3}).config_of(TenantRecord(settings={})).scope.max_depth == 3


def test_files_are_kept_while_a_record_names_them(tmp_path: Path) -> None:
    record = opened(tmp_path, {"max_depth": 3})
    kept = RecordedSettings(tmp_path, {"max_depth": 2})
    kept.prune([record])
    assert len(list((tmp_path / "settings").iterdir())) == 2
    assert kept.config_of(record).scope.max_depth == 3
    kept.prune([])
    assert len(list((tmp_path / "settings").iterdir())) == 1
    (file,) = (tmp_path / "settings").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_that_this_weft_does_not_have_is_left_out(tmp_path: Path) -> None:
    record = opened(tmp_path, {}, max_pages=3)
    record.settings["of_another_weft"] = 1
    assert later(tmp_path, record).limits.max_pages == 3
