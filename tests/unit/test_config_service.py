"""The scrape service has keys of its own: they are none of a crawl's, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.config import SERVICE, json_schema, keys, load, load_service
from weft.errors import BadConfig


def test_the_defaults() -> None:
    config = load_service(environment={})
    jobs = config.jobs
    assert (jobs.max_tasks, jobs.max_scrapes, jobs.max_sites, jobs.max_articles) == (5, 20, 16, 10)
    assert (jobs.breaker_failures, jobs.breaker_reset_s, jobs.delay_s) == (5, 300.0, 0.2)
    assert (jobs.retention_hours, jobs.cleanup_s, jobs.max_pending_hours) == (24.0, 3600.0, 24.0)
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8000)
    assert config.fetch.parser_children == 1
    assert Path(config.log.log_dir) == Path(config.server.data_dir) / "logs"


def test_flag_before_environment_before_file(tmp_path: Path) -> None:
    (tmp_path / "weft.yaml").write_text("max_concurrent_tasks: 2\njob_delay_seconds: 3\nport: 1\n")
    environment = {"WEFT_JOB_DELAY_SECONDS": "4", "WEFT_PORT": "2"}
    config = load_service(tmp_path / "weft.yaml", environment, {"port": 3})
    assert (config.jobs.max_tasks, config.jobs.delay_s, config.server.port) == (2, 4.0, 3)


def test_the_keys_of_one_product_are_unknown_to_the_other(tmp_path: Path) -> None:
    assert not {"max_concurrent_tasks", "job_delay_seconds", "port"} & set(keys())
    assert not {"num_pods", "resume", "seed_file", "politeness_delay_seconds"} & set(keys(SERVICE))
    (tmp_path / "weft.yaml").write_text("max_concurrent_tasks: 2\n")
    with pytest.raises(BadConfig, match="max_concurrent_tasks"):
        load(tmp_path / "weft.yaml", {})
    with pytest.raises(BadConfig, match="num_pods"):
        load_service(flags={"num_pods": 2}, environment={})


def test_one_environment_serves_both_and_a_misspelt_variable_is_told() -> None:
    environment = {"WEFT_MAX_CONCURRENT_TASKS": "7", "WEFT_NUM_PODS": "2"}
    assert load_service(environment=environment).jobs.max_tasks == 7
    assert load(environment=environment).config.pods.num_pods == 2
    for read in (load, load_service):
        with pytest.raises(BadConfig, match="WEFT_MAX_CONCURENT_TASKS"):
            read(environment={"WEFT_MAX_CONCURENT_TASKS": "7"})


def test_every_mistake_is_told_at_once() -> None:
    flags = {"port": 70000, "workers": 0, "host": " ", "max_concurrent_articles": "many"}
    with pytest.raises(BadConfig) as bad:
        load_service(flags=flags, environment={})
    assert len(bad.value.problems) == 3
    with pytest.raises(BadConfig, match="host"):
        load_service(flags={"host": " "}, environment={})


def test_the_schema_has_every_key() -> None:
    assert set(json_schema(SERVICE)["properties"]) == set(keys(SERVICE))
