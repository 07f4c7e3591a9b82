"""The files of a pod's lead on Redis: used segments, those of what was dropped, and what nobody knows any more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clocked_pod import SMALL, Pod, admit, claim

from weft.frontier.contract import End, EndedLease, TransferEnd
from weft.frontier.redis.parts.lead import UNREGISTERED_FILES_KEPT_S, USED_FILES_KEPT_S
from weft.supervise.redis_server import RedisServer


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Pod]:
    pod = Pod(tmp_path / "pod", shared_server("redis"))
    yield pod
    pod.client.close()


def segments(pod: Pod) -> list[Path]:
    return sorted((pod.folder / "spill").glob("*/*.seg"))


def test_a_segment_that_was_used_is_kept_for_a_while(pod: Pod) -> None:
    frontier = pod.process(limits=SMALL, delay_s=0.0, places=1000)
    admit(frontier, "hot", pages=100)
    spilled = frontier.spiller.move_segments()
    assert spilled == len(segments(pod)) > 0
    assert frontier.spiller.move_segments() == 0, "nothing is left to move"
    names = [f"https://hot/{number}" for number in range(100)]
    claimed: list[str] = []
    moved = 0
    while leases := claim(frontier, 3) or claim(frontier, 3):
        claimed += [lease.url for lease in leases]
        frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
        moved += frontier.spiller.move_segments()
    assert (claimed, moved) == (names, spilled)
    assert len(segments(pod)) == spilled
    pod.time += USED_FILES_KEPT_S
    frontier.spiller.move_segments()
    assert len(segments(pod)) == spilled
    pod.time += 0.2
    frontier.spiller.move_segments()
    assert segments(pod) == []


def test_segments_of_what_was_rejected_are_brought_and_counted(pod: Pod) -> None:
    frontier = pod.process(limits=SMALL, delay_s=0.0, places=1000)
    admit(frontier, "hot", pages=100)
    spilled = frontier.spiller.move_segments()
    (first,) = frontier.leases.claim(frontier.owner, 1)
    frontier.leases.cool([TransferEnd(first, frontier.now(), slow_down=True, retry_after_s=1e9)])
    assert frontier.spiller.move_segments() == spilled > 1
    rejected: list[str] = []
    while some := frontier.rejected.rejections():
        rejected += [one.item.url for one in some]
        frontier.rejected.end_stored([one.item.item for one in some])
    assert sorted(rejected) == sorted(f"https://hot/{number}" for number in range(1, 100))
    assert frontier.status.stats().queued == 0
    assert frontier.status.stats_and_waits()[1]["rejects"] == 0, "nobody waits for more"


def test_files_that_nobody_knows_are_swept_when_they_are_old(pod: Pod) -> None:
    frontier = pod.process(limits=SMALL, delay_s=0.0, places=1000)
    admit(frontier, "hot", pages=100)
    frontier.spiller.move_segments()
    known = segments(pod)
    folder = pod.folder / "spill" / "left"
    folder.mkdir()
    (pod.folder / "spill" / "empty").mkdir()
    old, young = folder / "old.seg", folder / "young.seg"
    for path in (old, young):
        path.write_bytes(b"x")
    long_ago = time.time() - UNREGISTERED_FILES_KEPT_S - 60
    for path in (old, *known):
        os.utime(path, (long_ago, long_ago))
    next_lead = pod.process(limits=SMALL, delay_s=0.0, places=1000)
    next_lead.spiller.move_segments()
    assert segments(pod) == sorted([*known, young])
    assert not (pod.folder / "spill" / "empty").exists()
    os.utime(young, (long_ago, long_ago))
    next_lead.spiller.move_segments()
    assert young.exists(), "once for each process"


def test_a_segment_that_another_lead_writes_while_an_empty_folder_is_swept_stays(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied = pod.folder / "spill" / "emptied"
    emptied.mkdir(parents=True)
    list_, remove, written = Path.iterdir, os.rmdir, list[Path]()

    def write(folder: Path) -> None:
        """What the other one does as soon as somebody looks at the folder."""
        if folder == emptied and not written:
            written.append(folder / "new.seg")
            written[0].write_bytes(b"x")

    def listing(folder: Path) -> Iterator[Path]:
        found = list(list_(folder))
        write(folder)
        return iter(found)

    def removing(folder: Path, **more: Any) -> None:
        write(Path(folder))
        remove(folder, **more)

    monkeypatch.setattr(Path, "iterdir", listing)
    monkeypatch.setattr(os, "rmdir", removing)
    pod.process(limits=SMALL).spiller.move_segments()
    assert written and segments(pod) == written


def test_a_folder_that_another_lead_sweeps_before_the_segment_is_written_is_made_again(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = pod.process(limits=SMALL, delay_s=0.0, places=1000)
    admit(frontier, "hot", pages=100)
    make, removed = Path.mkdir, list[Path]()

    def late(folder: Path, *args: Any, **more: Any) -> None:
        make(folder, *args, **more)
        if folder.parent.name == "spill" and not removed:
            removed.append(folder)
            folder.rmdir()

    monkeypatch.setattr(Path, "mkdir", late)
    frontier.spiller.move_segments()
    assert removed and {path.parent for path in segments(pod)} == set(removed)


@pytest.mark.parametrize("step", ["stat", "unlink"])
def test_a_file_that_another_lead_deletes_first_is_swept_without_trouble(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    left = pod.folder / "spill" / "left"
    left.mkdir(parents=True)
    long_ago = time.time() - UNREGISTERED_FILES_KEPT_S - 60
    for name in ("one.seg", "two.seg"):
        (left / name).write_bytes(b"x")
        os.utime(left / name, (long_ago, long_ago))
    real, unlink = getattr(Path, step), Path.unlink

    def late(path: Path, **more: Any) -> Any:
        if path.suffix == ".seg":
            unlink(path)
        return real(path, **more)

    monkeypatch.setattr(Path, step, late)
    pod.process(limits=SMALL).spiller.move_segments()
    assert not left.exists()


def test_a_used_file_that_the_next_lead_has_swept_is_no_trouble_for_the_one_before(pod: Pod) -> None:
    frontier = pod.process(limits=SMALL, delay_s=0.0, places=1000)
    admit(frontier, "hot", pages=100)
    assert frontier.spiller.move_segments() > 0
    while leases := claim(frontier, 3) or claim(frontier, 3):
        frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
        frontier.spiller.move_segments()
    long_ago = time.time() - UNREGISTERED_FILES_KEPT_S - 60
    for path in segments(pod):
        os.utime(path, (long_ago, long_ago))
    pod.process("pod0-fetcher1", limits=SMALL, delay_s=0.0, places=1000).spiller.move_segments()
    assert segments(pod) == []
    pod.time += USED_FILES_KEPT_S + 1
    assert frontier.spiller.move_segments() == 0
