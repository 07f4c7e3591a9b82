"""The robots.txt files that are kept as evidence: one for each change, and only as long as a request needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.embedded.robots_files import RobotsFiles
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.requests import robots_digest, robots_evidence
from weft.frontier.view import FrontierView

ORIGIN = "http://a.test"


def learn_embedded(folder: Path, bodies: list[bytes], deleted_until: float) -> None:
    wall = [0.0]
    journal = FrontierJournal(folder / "frontier.db")
    files = RobotsFiles(journal, lambda: wall[0], lambda: deleted_until if wall[0] > 6 else 0.0)
    for day, body in enumerate(bodies, 1):
        wall[0] = float(day)
        files.save_record(ORIGIN, RobotsRecord("ok", body, day + 1.0))
        journal.commit()
    journal.close()


def learn_on_redis(folder: Path, bodies: list[bytes], deleted_until: float) -> None:
    shelf = SharedRecords(folder / "robots.db")
    for day, body in enumerate(bodies, 1):
        shelf.save_robots(ORIGIN, RobotsRecord("ok", body, day + 1.0), float(day), deleted_until if day > 6 else 0.0)
    shelf.close()


@pytest.mark.parametrize("learn", [learn_embedded, learn_on_redis])
@pytest.mark.parametrize(("deleted_until", "first"), [(0.0, 0), (4.5, 1)])
def test_a_file_that_stays_the_same_is_kept_once_and_an_old_one_while_a_request_needs_it(
    tmp_path: Path, learn: object, deleted_until: float, first: int
) -> None:
    assert callable(learn)
    learn(tmp_path, [b"x", b"x", b"y", b"y", b"y", b"x", b"z", b"z"], deleted_until)
    view = FrontierView([tmp_path])
    history = view.robots_history(ORIGIN)
    view.close()
    kept = [(1.0, b"x"), (3.0, b"y"), (6.0, b"x"), (7.0, b"z")]
    assert [(one.wall, one.record.body) for one in history] == kept[first:]
    assert all(
        robots_digest(robots_evidence(RobotsRecord("ok", one.record.body, 9.0))) in one.digests for one in history
    )
