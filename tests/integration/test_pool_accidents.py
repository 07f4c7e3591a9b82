"""A run directory after an accident: cut, flipped, emptied or deleted files. A resume gives every result and says what
it does again, or it says what is wrong and does nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pace import patience

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving

ITEMS = 60
JOURNAL_BYTES = 1000  # what some of the items leave there


def weft(place: Path, *more: str, redirect: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(misbehaving.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = f'exec "$0" -m weft pool run misbehaving:act --items items.jsonl --workers 2 "$@" {redirect}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *more],
        cwd=place,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=patience(100),
    )


def write_items(place: Path) -> None:
    trace = place / "trace"
    lines = [{"id": f"i{n}", "sleep": 0.002, "trace": str(trace)} for n in range(ITEMS)]
    lines[30] |= {"do": "kill_parents_parent", "journal": [str(place / "logs" / "*" / "journal"), JOURNAL_BYTES]}
    (place / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def accident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed from one of its own items: some results in the journal, others in the slots only."""
    place = tmp_path_factory.mktemp("accident")
    write_items(place)
    killed = weft(place, "--out", "out.jsonl", "--batch-size", "5", "-q")
    assert killed.returncode == -signal.SIGKILL
    (run,) = (place / "logs").iterdir()
    assert (run / "journal").stat().st_size >= JOURNAL_BYTES
    return place


def damage_cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def block_at(path: Path, share: float) -> tuple[int, int]:
    """Where the block of a journal begins and ends that lies at a share of it."""
    data, at = path.read_bytes(), 8
    while True:
        end = at + 12 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data) * share:
            return at, end
        at = end


def damage_cut_in_a_block(path: Path) -> None:
    """Two thirds of a journal, to the middle of a block: one that ends with a block is whole."""
    os.truncate(path, sum(block_at(path, 2 / 3)) // 2)


def damage_flip_in_a_block(path: Path) -> None:
    """In its content: a block whose length is another is no block, and ends the journal."""
    flip(path, block_at(path, 1 / 3)[0] + 12)


def damage_cut_by_little(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 7)


def damage_flip(path: Path) -> None:
    flip(path, path.stat().st_size // 3)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 4]))


def damage_empty(path: Path) -> None:
    os.truncate(path, 0)


def damage_delete(path: Path) -> None:
    path.unlink()


def nothing(path: Path) -> None:
    """As the kill left it."""


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("journal", nothing, ""),
        ("journal", damage_cut_in_a_block, "were torn and were cut off"),
        ("journal", damage_cut_by_little, "were torn and were cut off"),
        ("journal", damage_flip_in_a_block, "are damaged and were skipped"),
        ("journal", damage_empty, "was missing or empty: every item of the run is done again"),
        ("journal", damage_delete, "was missing or empty: every item of the run is done again"),
        ("run.json", damage_cut, "is rebuilt from this command"),
        ("run.json", damage_empty, "is rebuilt from this command"),
        ("run.json", damage_delete, "is rebuilt from this command"),
        ("lock", damage_flip, ""),
    ],
)
def test_a_resume_gives_every_result_and_says_what_was_lost(
    accident: Path, tmp_path: Path, name: str, damage: Callable[[Path], None], told: str
) -> None:
    place = tmp_path / "place"
    shutil.copytree(accident, place)
    (place / "items.jsonl").write_text((accident / "items.jsonl").read_text().replace(str(accident), str(place)))
    (run,) = (place / "logs").iterdir()
    manifest = run / "run.json"
    manifest.write_text(manifest.read_text().replace(str(accident), str(place)).replace("items_stamp", "old_stamp"))
    damage(run / name)
    before = Counter((place / "trace").read_text().splitlines())
    again = weft(place, "--out", "out.jsonl", "-q", "--resume", run.name)
    assert again.returncode == 0, again.stderr
    assert told in again.stderr if told else again.stderr == ""
    assert "Traceback" not in again.stderr
    results = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert Counter((line["item_id"], line["status"]) for line in results) == {(f"i{n}", "ok"): 1 for n in range(ITEMS)}
    repeated = Counter((place / "trace").read_text().splitlines()) - before
    assert told or sum(repeated[item] for item in before) <= 2  # the kill may hit each worker before its commit


def test_a_damaged_manifest_is_reported_when_the_latest_run_is_looked_for(accident: Path, tmp_path: Path) -> None:
    shutil.copytree(accident, tmp_path / "place")
    (run,) = (tmp_path / "place" / "logs").iterdir()
    damage_cut(run / "run.json")
    again = weft(tmp_path / "place", "--resume")
    assert (again.returncode, f"name it: --resume {run.name}" in again.stderr) == (2, True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    (place / "items.jsonl").write_text("".join(f'{{"id": {n}}}\n' for n in range(20)))
    assert weft(place, "-q", "--batch-size", "2").returncode == 0
    return place


def test_a_journal_that_was_cut_between_two_records_is_shorter_than_it_was(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "place")
    (run,) = (tmp_path / "place" / "logs").iterdir()
    os.truncate(run / "journal", 8)
    again = weft(tmp_path / "place", "-q", "--resume", run.name, "--items", str(finished / "items.jsonl"))
    assert (again.returncode, "bytes shorter than the run left it" in again.stderr) == (0, True), again.stderr


def test_items_that_changed_since_the_run_are_reported(finished: Path, tmp_path: Path) -> None:
    items = finished / "items.jsonl"
    kept, times = items.read_bytes(), items.stat()
    shutil.copytree(finished / "logs", tmp_path / "logs")
    (run,) = (tmp_path / "logs").iterdir()
    try:
        items.write_text(items.read_text() + '{"id": "new"}\n')
        again = weft(finished, "-q", "--logs", str(tmp_path / "logs"), "--resume", "--out", str(tmp_path / "out.jsonl"))
    finally:
        items.write_bytes(kept)
        os.utime(items, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert again.returncode == 0
    assert "items.jsonl has changed since the run began" in again.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 21
    told = json.loads((run / "run.json").read_text())
    assert told["finished"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_cost_nothing(finished: Path, tmp_path: Path, closed: str) -> None:
    done = weft(finished, "--logs", str(tmp_path / "logs"), "--out", str(tmp_path / "out"), redirect=closed)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 20


@pytest.mark.parametrize(("more", "closed"), [(["--out", "-"], ">&-"), (["--items", "-"], "<&-")])
def test_a_closed_descriptor_that_is_asked_for_is_reported(
    finished: Path, tmp_path: Path, more: list[str], closed: str
) -> None:
    done = weft(finished, "--logs", str(tmp_path / "logs"), *more, redirect=closed)
    assert (done.returncode, "is closed" in done.stderr) == (2, True)
    assert not (tmp_path / "logs").exists()
