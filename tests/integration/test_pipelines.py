"""Pipelines on the pool: what is run, what is not run again and why, and what comes out."""

from __future__ import annotations

import gc
import json
import re
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import staged
from staged import traced, words_file

from weft.errors import BadInput, Busy, DiskFull, WeftError, writing
from weft.pipelines.cache.cache import Cache
from weft.pipelines.output.results import EndedItem, ResultsFile
from weft.pipelines.output.sink import OutputSink
from weft.pipelines.replay import replay_item
from weft.pipelines.run import PipelineRun, RunOptions, RunSummary
from weft.pipelines.runner import UNCHANGED
from weft.pipelines.spec.definition import changed, load
from weft.pipelines.why import why


class Bench:
    """A folder with a pipeline in it, and a trace of what its stages did."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.trace = folder / "trace"
        monkeypatch.chdir(folder)
        monkeypatch.setenv(staged.TRACE, str(self.trace))

    def run(self, file: Path, *settings: str, **options: Any) -> RunSummary:
        """Runs it; the trace is of this run alone."""
        self.trace.unlink(missing_ok=True)
        (pipeline,) = load(file, {}).values()
        asked = RunOptions(workers=2, logs=self.folder / "logs")
        pipeline = changed(pipeline, list(settings), None, None)
        return PipelineRun(pipeline, msgspec.structs.replace(asked, **options)).run()

    def ran(self) -> dict[str, int]:
        """How often each stage was run."""
        return {name: count for name, count in traced(self.trace).items() if " " not in name}

    def rows(self, output: str = "output/words") -> list[dict[str, Any]]:
        shards = sorted((self.folder / output).glob("shard-*.jsonl"))
        return [json.loads(line) for shard in shards for line in shard.read_text().splitlines()]

    def reasons(self, run: RunSummary, item: str) -> dict[str, list[str]]:
        return {
            one.stage: one.reasons for one in why(self.folder / "logs", run.run_id, item).stages if one.did == "ran"
        }


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_rows_are_in_the_order_of_the_source_and_a_second_run_does_nothing(bench: Bench) -> None:
    file = words_file(bench.folder, count=25)
    first = bench.run(file)
    assert first.stats.by_status == {"ok": 25}
    assert bench.ran() == {"read": 25, "count": 25, "label": 25, "join": 25}
    rows = bench.rows()
    assert [row["id"] for row in rows] == [f"i{number:05}" for number in range(25)]
    assert rows[4] == {"id": "i00004", "count": {"words": 8}, "label": "p1"}
    output = {path.name: path.read_bytes() for path in Path(first.output).iterdir() if path.is_file()}
    second = bench.run(file)
    assert bench.ran() == {}
    assert (second.stats.by_status, second.stats.unchanged) == ({"skipped": 25}, 25)
    assert {path.name: path.read_bytes() for path in Path(second.output).iterdir() if path.is_file()} | {
        ".lock": b""
    } == output | {".lock": b""}
    manifest = json.loads((Path(first.output) / "manifest.json").read_text())
    assert [shard["rows"] for shard in manifest["shards"]] == [10, 10, 5]
    line = json.loads((Path(second.path) / "results.jsonl").read_text().splitlines()[0])
    assert (line["error"], line["stages"]["join"]["cached"]) == (UNCHANGED, True)


def test_only_what_changed_is_run_again_and_why_names_it(bench: Bench) -> None:
    file = words_file(bench.folder)
    bench.run(file)
    run = bench.run(file, "count.times=2")
    assert bench.ran() == {"count": 20, "join": 17}  # three texts are empty: their value is the same, so is the join
    assert bench.reasons(run, "i00001") == {
        "count": ["setting 'times' is 2 and was not given"],
        "join": ["the value of stage 'count' changed"],
    }
    run = bench.run(file, "count.times=2", "config.prefix=q")
    assert bench.ran() == {"label": 20, "join": 20}
    assert bench.reasons(run, "i00001")["label"] == ["config 'prefix' is 'q' and was 'p'"]
    bench.run(file)  # back to what was there before
    assert bench.ran() == {}


def test_an_input_a_version_and_code_are_named_too(bench: Bench) -> None:
    (bench.folder / "rules").mkdir()
    (bench.folder / "rules" / "one.txt").write_text("1")
    source = bench.folder / "items.json"
    source.write_text(json.dumps([{"id": "a", "n": 1, "text": "x"}, {"id": "b", "n": 2, "text": "y"}]))
    file = bench.folder / "p.yaml"
    text = (
        'items: {file: items.json}\nstages:\n  read: {run: "staged:read"}\n  count: {run: "staged:count", needs: [read]'
    )
    file.write_text(text + "}\n")
    bench.run(file)
    source.write_text(json.dumps([{"id": "a", "n": 1, "text": "x"}, {"id": "b", "n": 2, "text": "z", "more": 1}]))
    run = bench.run(file)
    assert bench.ran() == {"read": 1, "count": 1}
    assert bench.reasons(run, "b")["read"] == ["input 'more' is new", "input 'text' changed"]
    assert bench.reasons(run, "a") == {}
    file.write_text(text + ", code: [rules]}\n")
    run = bench.run(file)
    assert bench.reasons(run, "a") == {"count": ["code rules/one.txt is new"]}
    (bench.folder / "rules" / "one.txt").write_text("2")
    run = bench.run(file)
    assert bench.reasons(run, "a") == {"count": ["code rules/one.txt changed"]}
    file.write_text(text + ", version: 7}\n")
    run = bench.run(file)
    assert bench.reasons(run, "a") == {"count": ["its version is 7 and was the hash of its code"]}
    assert bench.ran() == {"count": 2}


def test_a_changed_helper_of_the_authors_package_makes_a_stage_stale(bench: Bench) -> None:
    package = bench.folder / "mine_of_imports"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(
        "from . import helper\nimport beside_of_imports\n\n\ndef run(item, context):\n"
        "    return helper.words(item['text'])\n"
    )
    (package / "helper.py").write_text("def words(text):\n    from .deep import cut\n    return len(cut(text))\n")
    (package / "deep.py").write_text("def cut(text):\n    return text.split()\n")
    (package / "other.py").write_text("")
    (bench.folder / "beside_of_imports.py").write_text("")
    (bench.folder / "items.json").write_text(json.dumps([{"id": "a", "text": "x y"}]))
    file = bench.folder / "p.yaml"
    file.write_text('items: {file: items.json}\nstages:\n  count: {run: "mine_of_imports.work:run"}\n')
    assert bench.run(file).stats.stages["count"].ran == 1
    (package / "other.py").write_text("changed = True\n")  # nothing imports it
    assert bench.run(file).stats.stages["count"].ran == 0
    for name in ("mine_of_imports/deep.py", "beside_of_imports.py"):
        (bench.folder / name).write_text((bench.folder / name).read_text() + "\n")
        run = bench.run(file)
        assert bench.reasons(run, "a") == {"count": [f"code {name} changed"]}


def test_a_stage_that_reads_the_environment_or_a_file_is_named_with_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (bench.folder / "reads_outside.py").write_text(
        "import os\n\ndef run(item, context):\n    return os.environ.get('LANG'), open('data.txt').read()\n"
    )
    (bench.folder / "data.txt").write_text("1")
    (bench.folder / "items.json").write_text(json.dumps([{"id": "a"}]))
    file, text = bench.folder / "p.yaml", 'items: {file: items.json}\nstages:\n  one: {run: "reads_outside.py:run"'
    file.write_text(text + "}\n")
    bench.run(file)
    assert [line.partition(", and")[0] for line in caplog.messages] == [
        "stage 'one': reads_outside.py, line 4 reads the environment",
        "stage 'one': reads_outside.py, line 4 reads a file",
    ]
    for declared, count in ((", code: [data.txt]}\n", 1), (", version: 1}\n", 0), (", cache: false}\n", 0)):
        caplog.clear()
        file.write_text(text + declared)
        bench.run(file)
        assert len(caplog.messages) == count


def test_a_value_that_nothing_read_serves_a_stage_that_reads_it_later(bench: Bench) -> None:
    (bench.folder / "items.json").write_text(json.dumps([{"id": "a", "n": 1, "text": "x y"}]))
    file = bench.folder / "p.yaml"
    alone = 'items: {file: items.json}\nstages:\n  read: {run: "staged:read"}\n  other: {run: "staged:plain"'
    file.write_text(alone + "}\n")
    bench.run(file)
    file.write_text(alone + '}\n  count: {run: "staged:count", needs: [read]}\n')
    run = bench.run(file)
    assert bench.ran() == {"count": 1}
    assert list(bench.reasons(run, "a")) == ["count"] and "the stage is new" in bench.reasons(run, "a")["count"][0]
    assert bench.rows("output/p") == [{"id": "a", "other": "plain", "count": {"words": 2}}]
    bench.run(file)
    assert bench.ran() == {}
    file.write_text(alone + ', after: [read]}\n  count: {run: "staged:count", needs: [read]}\n')
    assert bench.reasons(bench.run(file), "a") == {"other": ["it needs 'read' now, and did not"]}
    bench.run(file)
    assert bench.ran() == {}
    file.write_text(alone + "}\n")
    assert bench.run(file).stats.unchanged == 1


def test_ten_thousand_items_and_one_that_changed(bench: Bench) -> None:
    def write(changed: int | None) -> None:
        lines = [{"id": number, "text": "word" * (2 if number == changed else 1), "n": 1} for number in range(10_000)]
        (bench.folder / "items.jsonl").write_text("\n".join(map(json.dumps, lines)))

    file = bench.folder / "many.yaml"
    file.write_text('items: {file: items.jsonl}\nstages: {read: {run: "staged:read", inputs: [id, text, n]}}\n')
    write(None)
    assert bench.run(file, item_logs=False).stats.stages["read"].ran == 10_000
    write(7_777)
    again = bench.run(file, item_logs=False)
    assert bench.ran() == {"read": 1}
    assert (again.stats.unchanged, again.stats.stages["read"].ran, again.rows) == (9_999, 1, 10_000)
    assert bench.reasons(again, "7777") == {"read": ["input 'text' changed"]}


def test_fresh_from_stage_and_only(bench: Bench) -> None:
    file = words_file(bench.folder)
    bench.run(file)
    before = bench.rows()
    bench.run(file, fresh=True)
    assert bench.ran() == {"read": 20, "count": 20, "label": 20, "join": 20}
    run = bench.run(file, from_stage="label")
    assert bench.ran() == {"label": 20, "join": 20}
    assert bench.reasons(run, "i00002")["label"] == ["it was asked for with --fresh or --from-stage"]
    run = bench.run(file, "count.times=3", only=["i00004", "i00002"])
    assert bench.ran() == {"count": 2, "join": 2}
    assert [row["id"] for row in bench.rows(f"logs/{run.run_id}/output")] == ["i00002", "i00004"]
    assert bench.rows() == before  # the pipeline's own output stays as it was
    with pytest.raises(BadInput, match="the source has no item 'nobody'"):
        bench.run(file, only=["nobody"])
    with pytest.raises(BadInput, match="there is no stage 'lable'"):
        bench.run(file, from_stage="lable")


MIXED: list[dict[str, Any]] = [
    {"id": "fine"},
    {"id": "raise", "do": "raise"},
    {"id": "skip", "do": "skip"},
    {"id": "hang", "do": "hang"},
    {"id": "die", "do": "die"},
    {"id": "object", "do": "object"},
    {"id": "print", "do": "print"},
    {"id": "fork", "do": "fork"},
    {"id": "unwanted", "wanted": False},
    {"id": "fine"},
    {"no": "id"},
]
BRANCHES = """\
items: {file: items.json, keep: [do]}
item_name: modules
pool: {item_timeout: 2}
stages:
  clone: {run: "staged:act", when: "item.wanted != false"}
  enrich: {run: "staged:plain", needs: [clone]}
  other: {run: "staged:plain"}
  late: {run: "staged:plain", after: [clone]}
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, RunSummary, dict[str, Any]]:
    """One run over items of every kind."""
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(tmp_path_factory.mktemp("mixed"), patch)
        (bench.folder / "items.json").write_text(json.dumps(MIXED))
        (bench.folder / "b.yaml").write_text(BRANCHES)
        run = bench.run(bench.folder / "b.yaml")
    lines = [json.loads(line) for line in (Path(run.path) / "results.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [*(item["id"] for item in MIXED[:-1]), "#10"]
    return bench, run, {line["id"]: line for line in reversed(lines)}


@pytest.mark.parametrize(
    ("name", "status", "phase", "error", "stages"),
    [
        ("fine", "ok", None, None, "ok ok ok ok"),
        ("raise", "failed", "clone", "ValueError: no such branch", "failed skipped ok ok"),
        ("skip", "ok", None, None, "skipped skipped ok ok"),
        ("hang", "timeout", "clone", "limit of 2 s", ""),
        ("die", "crashed", "clone", "SIGKILL", ""),
        ("object", "failed", "clone", "the value cannot be encoded", "failed skipped ok ok"),
        ("print", "ok", None, None, "ok ok ok ok"),
        ("fork", "ok", None, None, "ok ok ok ok"),
        ("unwanted", "ok", None, None, "skipped skipped ok ok"),
        ("#10", "failed", "input", "the item has no id", ""),
    ],
)
def test_what_needs_a_failed_stage_is_not_run_and_other_branches_are(
    mixed: tuple[Bench, RunSummary, dict[str, Any]], name: str, status: str, phase: str, error: str, stages: str
) -> None:
    line = mixed[2][name]
    assert (line["status"], line.get("failure_phase")) == (status, phase)
    assert error is None or error in line["error"]
    assert " ".join(stage["status"] for stage in line.get("stages", {}).values()) == stages


def test_the_second_item_with_an_id_fails_and_the_first_does_not(
    mixed: tuple[Bench, RunSummary, dict[str, Any]],
) -> None:
    lines = [json.loads(line) for line in (Path(mixed[1].path) / "results.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines if line["id"] == "fine"] == ["ok", "failed"]


def test_why_knows_an_item_that_failed_as_it_arrived(mixed: tuple[Bench, RunSummary, dict[str, Any]]) -> None:
    bench, run, _ = mixed
    found = why(bench.folder / "logs", run.run_id, "#10")
    assert (found.status, found.error, found.stages) == ("failed", "the item has no id", [])
    with pytest.raises(BadInput, match="no result of an item '#11'"):
        why(bench.folder / "logs", run.run_id, "#11")


def test_logs_are_in_the_folder_of_the_items_name_with_a_line_for_each_stage(
    mixed: tuple[Bench, RunSummary, dict[str, Any]],
) -> None:
    _, run, lines = mixed
    assert re.fullmatch(r"modules/print\.worker-\d+\.log", lines["print"]["log"])
    log = (Path(run.path) / lines["print"]["log"]).read_text().splitlines()
    assert all(re.match(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[INFO\] \[\w+\] \S", line) for line in log), log
    bodies = [line.split("] [INFO] ")[1] for line in log]
    assert bodies[:2] == ["[clone] printed by print", '[clone] Logged {"url":"http://example.org/"}']
    assert [body.split()[0] for body in bodies[2:]] == ["[clone]", "[enrich]", "[other]", "[late]", "[end]"]
    assert re.fullmatch(r'\[end\] ok \{"processingTimeMs":\d+\}', bodies[-1])
    failed = (Path(run.path) / lines["raise"]["log"]).read_text()
    assert failed.count("[ERROR] [clone] ValueError: no such branch") == 1
    assert "staged.py" in failed and "runner.py" not in failed


def test_the_report_counts_failures_by_phase_and_links_their_logs(
    mixed: tuple[Bench, RunSummary, dict[str, Any]],
) -> None:
    _, run, lines = mixed
    report = json.loads((Path(run.path) / "report.json").read_text())
    assert report["by_phase"] == {"clone": 4, "input": 2}
    assert report["by_status"] == {"ok": 5, "failed": 4, "timeout": 1, "crashed": 1}
    assert report["stages"]["other"]["ran"] == 7
    # the timeout, the crash and the two that raised are the clone's; what comes behind them was not run
    counts = {name: [stage[kind] for kind in ("ran", "skipped", "failed")] for name, stage in report["stages"].items()}
    assert counts == {"clone": [3, 2, 4], "enrich": [3, 4, 0], "other": [7, 0, 0], "late": [7, 0, 0]}
    page = (Path(run.path) / "report.html").read_text()
    assert f'<a href="{lines["raise"]["log"]}">log</a>' in page
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")


def test_a_quarantined_item_and_any_other_can_be_replayed(mixed: tuple[Bench, RunSummary, dict[str, Any]]) -> None:
    bench, run, _ = mixed
    (pipeline,) = load(bench.folder / "b.yaml", {}).values()
    pipeline = changed(pipeline, [], str(bench.folder / "items.json"), None)
    from weft.pipelines.pool.durability.runs import RunDirectory

    result, _ = replay_item(pipeline, RunDirectory(Path(run.path)), "die")
    assert (result.status, result.attempts) == ("crashed", 1)
    result, outcomes = replay_item(pipeline, RunDirectory(Path(run.path)), "raise")
    assert {name: one.status for name, one in outcomes.items()} == {
        "clone": "failed", "enrich": "skipped", "other": "ok", "late": "ok",
    }  # fmt: skip
    with pytest.raises(BadInput, match="no item 'nobody'"):
        replay_item(pipeline, RunDirectory(Path(run.path)), "nobody")


def test_a_failed_stage_is_tried_again_and_the_others_are_not(bench: Bench) -> None:
    (bench.folder / "items.json").write_text(json.dumps(MIXED[:3]))
    (bench.folder / "b.yaml").write_text(BRANCHES)
    bench.run(bench.folder / "b.yaml")
    again = bench.run(bench.folder / "b.yaml")
    assert again.stats.by_status == {"skipped": 2, "failed": 1}
    stage = again.stats.stages["clone"]
    assert (stage.ran, stage.cached, stage.failed) == (0, 2, 1)
    (found,) = [one for one in why(bench.folder / "logs", again.run_id, "raise").stages if one.stage == "clone"]
    assert found.did == "failed"
    assert "it failed in run" in found.reasons[0]
    (behind,) = [one for one in why(bench.folder / "logs", again.run_id, "raise").stages if one.stage == "enrich"]
    assert (behind.did, behind.reasons) == ("skipped", ["needs clone, which failed"])
    assert found.reasons[-1] == "it failed: ValueError: no such branch"


def test_why_says_what_a_stage_said_that_skipped_its_item(bench: Bench) -> None:
    (bench.folder / "items.json").write_text(json.dumps([{"id": "skip", "do": "skip"}]))
    (bench.folder / "b.yaml").write_text(BRANCHES)
    for did, said in (
        ("skipped", "it skipped the item: nothing to do"),
        ("unchanged", "which skipped it: nothing to do"),
    ):
        run = bench.run(bench.folder / "b.yaml")
        (found,) = [one for one in why(bench.folder / "logs", run.run_id, "skip").stages if one.stage == "clone"]
        assert (found.did, found.reasons[-1]) == (did, said)


def test_a_stage_reads_only_the_inputs_it_names(bench: Bench) -> None:
    (bench.folder / "items.json").write_text(json.dumps([{"id": 1, "do": "undeclared", "secret": 1}]))
    file = bench.folder / "p.yaml"
    file.write_text('items: {file: items.json}\nstages: {act: {run: "staged:act", inputs: [do]}}\n')
    (failure,) = bench.run(file).stats.failures
    assert "'secret' is not among the stage's inputs" in (failure.error or "")


def test_a_fingerprint_makes_a_stage_stale(bench: Bench) -> None:
    watched = bench.folder / "watched"
    watched.write_text("one")
    items = [{"id": "a", "path": str(watched), "n": 1, "text": ""}, {"id": "b", "path": "none", "n": 1, "text": ""}]
    (bench.folder / "items.json").write_text(json.dumps(items))
    file = bench.folder / "p.yaml"
    file.write_text(
        'items: {file: items.json}\nstages: {read: {run: "staged:read", fingerprint: "staged:file_state"}}\n'
    )
    bench.run(file)
    bench.run(file)
    assert bench.ran() == {}
    watched.write_text("two")
    run = bench.run(file)
    assert traced(bench.trace)["read a"] == 1 and bench.ran() == {"read": 1}
    assert bench.reasons(run, "a") == {"read": ["its fingerprint (staged:file_state) is another"]}


def test_files_of_a_stage_are_made_again_when_they_are_gone_and_deleted_with_their_item(bench: Bench) -> None:
    file = bench.folder / "p.yaml"
    file.write_text(
        'items: {source: "staged:items", settings: {count: 3}}\nstages: {thumbnail: {run: "staged:thumbnail"}}\n'
        "output: {directory: out}\n"
    )
    bench.run(file)
    thumbs = bench.folder / "out" / "thumbs"
    assert sorted(path.name for path in thumbs.iterdir()) == ["i00000.png", "i00001.png", "i00002.png"]
    (thumbs / "i00001.png").unlink()
    run = bench.run(file)
    assert bench.ran() == {"thumbnail": 1}
    assert "a file that it wrote was gone" in bench.reasons(run, "i00001")["thumbnail"][0]
    bench.run(file, "items.count=2")
    assert sorted(path.name for path in thumbs.iterdir()) == ["i00000.png", "i00001.png"]
    manifest = json.loads((bench.folder / "out" / "manifest.json").read_text())
    assert [name for name, _, _ in manifest["files"]] == ["thumbs/i00000.png", "thumbs/i00001.png"]


def test_a_collector_makes_the_rows_and_files(bench: Bench) -> None:
    file = words_file(bench.folder, count=23, shard_items=4, more='collect: {run: "staged:collect"}\n')
    run = bench.run(file)
    assert [row["words"] for row in bench.rows()] == [0, 2, 4, 6, 8, 10, 12]
    assert (Path(run.output) / "card.md").read_text() == "# 23 items, 7 rows\n"
    assert run.rows == 7
    assert len(list(Path(run.output).glob("shard-*"))) == 2


def test_parquet_shards_have_one_schema_and_the_rows_of_the_lines(bench: Bench) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = words_file(bench.folder, count=25)
    file.write_text(file.read_text().replace("output: {", "output: {format: [jsonl, parquet], "))
    run = bench.run(file)
    tables = [parquet.read_table(path) for path in sorted(Path(run.output).glob("parquet/*.parquet"))]
    assert [table.num_rows for table in tables] == [10, 10, 5]
    assert len({str(table.schema) for table in tables}) == 1
    assert [row for table in tables for row in table.to_pylist()] == bench.rows()
    assert run.rows == 25


def test_a_row_that_json_cannot_hold_is_that_items_failure(bench: Bench) -> None:
    (bench.folder / "odd.py").write_text("def stage(item, context):\n    return {None: 1} if item['n'] == 1 else 2\n")
    file = bench.folder / "p.yaml"
    file.write_text('items: {source: "staged:items", settings: {count: 3}}\nstages: {a: {run: "odd:stage"}}\n')
    run = bench.run(file)
    assert [row["id"] for row in bench.rows("output/p")] == ["i00000", "i00002"]
    (failure,) = run.stats.failures
    assert (failure.id, failure.phase) == ("i00001", "output")
    assert "cannot be written as JSON" in (failure.error or "")


def test_a_callable_that_no_worker_can_import_is_one_error_before_any_work(bench: Bench) -> None:
    (bench.folder / "broken.py").write_text("import nothing_of_this_name\n")
    file = bench.folder / "p.yaml"
    for name, said in [
        ("broken:stage", "stage 'a': broken:stage cannot be imported: ModuleNotFoundError"),
        ("staged:nobody", "stage 'a': staged:nobody is not there"),
        ("nowhere.at_all:f", "stage 'a': nowhere.at_all:f cannot be imported"),
    ]:
        file.write_text(
            f'items: {{source: "staged:items", settings: {{count: 3}}}}\nstages: {{a: {{run: "{name}"}}}}\n'
        )
        with pytest.raises(BadInput, match=said):
            bench.run(file)
    assert not list((bench.folder / "logs").glob("*"))


def test_a_check_of_the_pipeline_refuses_settings_before_any_work(bench: Bench) -> None:
    with pytest.raises(BadInput, match="times must be greater than 0"):
        bench.run(words_file(bench.folder), "count.times=0")
    assert not (bench.folder / "logs").exists()


def test_two_runs_on_one_directory_are_refused(bench: Bench) -> None:
    file = words_file(bench.folder)
    cache = Cache(bench.folder / ".weft/cache/words")
    with pytest.raises(Busy, match=r"the cache .* is in use by another run"):
        bench.run(file)
    cache.close()
    (pipeline,) = load(file, {}).values()
    held = PipelineRun(pipeline, RunOptions(logs=bench.folder / "logs"))
    with pytest.raises(Busy, match=r"the output .* is in use by another run"):
        bench.run(file, cache=bench.folder / "other")
    held.close()


def test_a_source_or_collector_that_fails_ends_the_run_with_its_error(bench: Bench) -> None:
    (bench.folder / "sources.py").write_text(
        "def late(settings):\n    yield {'id': 1, 'n': 1, 'text': ''}\n    raise OSError('gone')\n"
        "def rows(results, context):\n    yield {'id': next(results).id}\n    raise KeyError('x')\n"
        "def at_once(results, context):\n    raise KeyError('x')\n"
    )
    file = bench.folder / "p.yaml"
    file.write_text('items: {source: "sources:late"}\nstages: {read: {run: "staged:read"}}\n')
    with pytest.raises(WeftError, match="the source sources:late failed: OSError: gone"):
        bench.run(file)
    start = 'items: {source: "staged:items", settings: {count: 3}}\nstages: {read: {run: "staged:read"}}\n'
    for name in ("rows", "at_once"):
        file.write_text(f'{start}collect: {{run: "sources:{name}"}}\n')
        with pytest.raises(WeftError, match=f"the collector sources:{name} failed: KeyError.*--resume") as told:
            bench.run(file)
        assert not isinstance(told.value, BadInput), "the items were done"
    file.write_text(f'{start}collect: {{run: "sources:none"}}\n')
    with pytest.raises(BadInput, match=r"collect\.run: sources:none is not there"):
        bench.run(file)
    assert bench.ran() == {}, "told before any work"


def test_a_disk_that_is_full_under_a_shard_is_told_as_such(bench: Bench) -> None:
    output = bench.folder / "output"
    sink = OutputSink(output, "words", ["jsonl"], None, lambda _step: None)
    part = output / ".new" / "shard-00000.jsonl.part"
    sink.begin(resumed=False)
    part.symlink_to("/dev/full")
    sink.add(0, {"id": 1})  # it stays in the file's buffer, and closing would write it
    with pytest.raises(DiskFull), writing(output):
        sink.add(0, {"id": 1, "text": "word " * 10_000})
    sink.close()
    OutputSink(output, "words", ["jsonl"], None, lambda _step: None).close()


def test_a_shard_that_is_given_up_says_nothing_when_it_is_collected(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    monkeypatch.setattr("weft.pipelines.output.parquet._BATCH_ROWS", 1)
    sink = OutputSink(bench.folder / "output", "words", ["parquet"], None, lambda _step: None)
    sink.begin(resumed=False)
    sink.add(0, {"id": 1})
    sink.close()
    del sink
    gc.collect()
    assert said == []


def test_results_that_a_full_disk_does_not_take_do_not_hide_what_was_told_of_it(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path)
    results.open(0)
    results.add(EndedItem(0, "a", {}, "ok"))  # it stays in the file's buffer, and closing writes it
    # a limit on the size of files stands for the disk: writing beyond it fails alike
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        results.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "results.jsonl").read_bytes() == b""
