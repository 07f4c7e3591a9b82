"""A pipeline's file: what it may hold, and the messages about what it may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.errors import BadConfig, BadInput
from weft.pipelines.spec.definition import Pipeline, changed, json_schema, load

GOOD = """\
description: Counts words.
items: {file: items.jsonl}
config: {registry: https://example.org}
stages:
  fetch: {run: "work:fetch", inputs: [url]}
  words:
    run: work:words
    needs: [fetch]
    settings: {least: 3}
    when: results.fetch.status == 200
  links: {run: "work:links", needs: [fetch], config: [registry]}
collect: {run: "work:collect", settings: {best: 5}}
pool: {item_timeout: 5}
"""


def written(folder: Path, text: str, name: str = "words.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def one(folder: Path, text: str) -> Pipeline:
    (found,) = load(written(folder, text), {}).values()
    return found


def test_a_file_is_read_with_the_stages_in_order(tmp_path: Path) -> None:
    found = one(tmp_path, GOOD)
    assert (found.name, found.order) == ("words", ["fetch", "words", "links"])
    assert found.output_stages == ["words", "links"]
    assert found.spec.stages["words"].settings == {"least": 3}
    assert found.spec.output.formats == ["jsonl"]


def test_json_with_several_pipelines_and_variables_of_the_environment(tmp_path: Path) -> None:
    stage = {"run": "work:fetch"}
    document = {
        "pipelines": {
            "one": {"items": {"file": "${PLACE}/a.jsonl"}, "stages": {"a": stage}},
            "two": {"items": {"source": "work:items"}, "stages": {"b": stage}},
        }
    }
    path = written(tmp_path, json.dumps(document), "stage-graph.json")
    found = load(path, {"PLACE": "/data"})
    assert list(found) == ["one", "two"]
    assert found["one"].spec.items.file == "/data/a.jsonl"
    with pytest.raises(BadConfig, match=r"stage-graph.json:1: \$\{PLACE\} is not set"):
        load(path, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("needs: [fetch]", "nedes: [fetch]"), "words.yaml:8: stages.words.nedes: there is no key 'nedes'"),
        (("    run: work:words\n", ""), "words.yaml:6: stages.words: 'run' is missing"),
        (("run: work:words", "run: work"), "words.yaml:7: stages.words.run: 'work' does not name a function"),
        (("needs: [fetch]", "needs: [fetsh]"), "there is no stage 'fetsh'; did you mean 'fetch'?"),
        (("needs: [fetch]", "needs: [links]"), "results of 'fetch': name that stage under needs"),
        (("inputs: [url]", "after: [links]"), "words.yaml:5: stages.fetch: the stages form a cycle: fetch → links"),
        (("when: results.fetch.status == 200", "when: exec(1)"), "words.yaml:10: stages.words.when: 'exec(1)'"),
        (("items: {file: items.jsonl}", "items: {}"), "words.yaml:2: items: give either source"),
        (("items: {file: items", "items: {fil: items"), "items.fil: there is no key 'fil' here; did you mean 'file'?"),
        (("items: {file: items.jsonl}", ""), "'items' is missing"),
        (("config: [registry]", "config: [registri]"), "the pipeline's config has no 'registri'"),
        (("item_timeout: 5", "item_timeout: -5"), "words.yaml:13: pool.item_timeout must be greater than 0"),
        (("item_timeout: 5", "workers: -1"), "pool.workers must be greater than 0"),
        (("item_timeout: 5", "item_timout: 5"), "pool.item_timout: a pool has no such setting; did you mean"),
        (("description: Counts words.", "descripton: x"), "'descripton' here; did you mean 'description'?"),
        (("description: Counts words.", "output: {format: xml}"), "value 'xml'; there are: jsonl, parquet"),
        (("description: Counts words.", "output: {shard_items: 0}"), "shard_items: Expected a whole number >= 1"),
        (("needs: [fetch]", "needs: fetch"), "words.yaml:8: stages.words.needs: Expected a list, got text"),
        (("needs: [fetch]", "inputs: fetch"), "stages.words.inputs: Expected a list or null, got text"),
        (("description: Counts words.", "output: {stages: [nothing]}"), "output.stages: there is no stage 'nothing'"),
        (("description: Counts words.", "item_name: ../up"), "item_name: '../up' cannot be the name"),
        (("description: Counts words.", "pipelines: {}"), "pipelines must be names"),
        (("  fetch: {", "  items: {"), "'items' cannot be a stage's name"),
        (("description: Counts words.", "description: [x"), "is not YAML"),
        (("description: Counts words.", "items: {file: b.jsonl}"), "key 'items' is repeated"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(BadConfig) as caught:
        load(written(tmp_path, GOOD.replace(*change)), {})
    assert said in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("needs: [fetch]\n", "needz: [fetch]\n").replace('run: "work:links"', "run: 7")
    with pytest.raises(BadConfig) as caught:
        load(written(tmp_path, text), {})
    assert len(caught.value.problems) == 2


def test_a_mistake_in_a_file_with_several_pipelines_is_told_with_the_name_of_its_own(tmp_path: Path) -> None:
    good = {"items": {"file": "a.jsonl"}, "stages": {"a": {"run": "work:fetch"}}}
    bad = good | {"stages": {"a": {"run": "work:fetch", "needs": ["b"]}}}
    path = written(tmp_path, json.dumps({"pipelines": {"one": good, "two": bad}}, indent=1), "several.json")
    with pytest.raises(BadConfig) as caught:
        load(path, {})
    line = path.read_text().splitlines().index('     "needs": [') + 1
    assert caught.value.problems == [f"{path}:{line}: two: stages.a.needs: there is no stage 'b'; there are: a"]


def test_settings_of_the_command_line_go_where_they_say(tmp_path: Path) -> None:
    found = changed(
        one(tmp_path, GOOD),
        ["words.least=4", "collect.best=[1, 2]", "config.registry=http://here", "items.where=x"],
        "other.jsonl",
        "elsewhere",
    )
    assert found.spec.stages["words"].settings == {"least": 4}
    assert found.spec.collect is not None and found.spec.collect.settings == {"best": [1, 2]}
    assert found.spec.config == {"registry": "http://here"}
    assert found.spec.items.settings == {"where": "x"}
    assert (found.spec.items.file, found.spec.output.directory) == ("other.jsonl", "elsewhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("least=4", "write STAGE.KEY=VALUE"),
        ("word.least=4", "no stage 'word'"),
        ("words.least=[", "--set words.least="),
        ("words.leest=4", "words has no 'leest' in the file; did you mean 'least'?"),
    ],
)
def test_a_setting_that_goes_nowhere_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        changed(one(tmp_path, GOOD), [text], None, None)
    assert said in str(caught.value)


def test_the_schema_describes_every_key(tmp_path: Path) -> None:
    schema = json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    assert set(definitions["StageSpec"]["properties"]) >= {"run", "needs", "after", "when", "inputs", "code"}
    assert definitions["StageSpec"]["additionalProperties"] is False
    json.dumps(schema)
