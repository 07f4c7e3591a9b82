"""The damage campaign: each file of a data dir cut, emptied, deleted or with one bit flipped, and what people do then.

After each damage the crawl is resumed, looked at, exported and rebuilt. What must hold: never a traceback, never a loss
without a word, never fewer good pages than before. A command that refuses says what can be done, and that is then done:
a file restored, an index or a frontier rebuilt; after it the crawl must end with every page that a whole one has.

`make test` runs a sample of every kind of file; WEFT_TEST_CHAOS=1 the whole campaign, and prints its table.
"""

from __future__ import annotations

import io
import logging
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from crawling import Crawler

from weft.cli.main import run
from weft.store.errors import StoreError
from weft.store.pages import PageStore
from weft.testing.web import SyntheticWeb, synthetic_web

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
PLACES = 20 if FULL else 1
pytestmark = pytest.mark.timeout(900)

# What a data dir holds after a clean stop, and after a kill -9 (where SQLite's logs are not folded in).
WARC = "warc/*/*.warc.gz"
STOPPED = (
    "engine.json", "crawls/crawl/config.json", "crawls/crawl/seeds.txt", "status.json", "frontier/frontier.db",
    "frontier/frontier.mark", "frontier/queues.db", "frontier/requests/requests-00000.log", "index-pod0-fetcher0.db",
    WARC,
)  # fmt: skip
KILLED = (
    "frontier/frontier.db", "frontier/frontier.db-wal", "frontier/frontier.mark", "frontier/queues.db-wal",
    "frontier/requests/requests-00000.log", "index-pod0-fetcher0.db-wal", WARC,
)  # fmt: skip
# Nobody reads these back, or they are made anew: the sample takes one of them.
PLAIN = {
    "stopped": (
        "frontier/pulse", "frontier/lock", "lock", "index-pod0-fetcher0.lock", "logs/pod_0/fetcher_0.log",
        "logs/pod_0/orchestrator.log", "metrics/pod0-fetcher0.metrics",
    ),
    "killed": (
        "frontier/frontier.db-shm", "frontier/queues.db-shm", "index-pod0-fetcher0.db-shm", "index-pod0-fetcher0.db",
    ),
}  # fmt: skip
# What a rebuild reads: going on after it must cost nothing either. (The sample leaves that out for the others.)
REBUILT = (WARC, "index-pod0-fetcher0.db", "index-pod0-fetcher0.db-wal")
# Of these nothing can be made again: the message asks for a backup.
IRREPLACEABLE = ("engine.json", "crawls/crawl/config.json", "crawls/crawl/seeds.txt")


Damage = tuple[str, str, str, int]  # state, file, what is done to it, the number of the place


def _cases() -> Iterator[Damage]:
    """All of them; of a sample each file once, by every kind of damage in turn, and what holds pages twice."""
    turn = cycle(_damages())
    for state, files in (("stopped", STOPPED), ("killed", KILLED)):
        for name in files:
            few = [("cut", 0), ("flipped", 0)] if name in REBUILT else [next(turn)]
            yield from ((state, name, *damage) for damage in (_damages() if FULL else few))
        plain = [(name, *damage) for name in PLAIN[state] for damage in _damages()]
        yield from ((state, *damage) for damage in (plain if FULL else random.Random(12).sample(plain, 1)))


def _damages() -> list[tuple[str, int]]:
    return [("deleted", 0), ("cut", 0), ("emptied", 0), ("flipped", 0), *_more_places()]


def _more_places() -> Iterator[tuple[str, int]]:
    return ((kind, place) for kind in ("cut", "flipped") for place in range(1, PLACES))


@dataclass
class Base:
    """A crawl before it is damaged: where it lies, its good pages, and where their bytes are."""

    data_dir: Path
    pages: set[str]
    places: list[tuple[str, int, int]]  # URL, first byte, byte behind the last


@dataclass
class Bases:
    stopped: Base
    killed: Base
    whole: set[str]  # what a crawl that nobody damages has in the end
    rows: list[tuple[str, ...]] = field(default_factory=list)


def good_pages(data_dir: Path) -> dict[str, tuple[int, int]]:
    """The pages that can be read back, each with the place of its record."""
    store = PageStore.open([data_dir], read_only=True)
    found = {}
    try:
        for row in store.rows():
            if not row.warc_file or not 200 <= row.status < 300:
                continue
            try:
                stored = store.read_page(row)
            except StoreError:
                continue
            if stored.http is not None and len(stored.http.body) == row.length:
                found[row.url] = (row.warc_offset, row.warc_offset + row.warc_length)
    except StoreError:
        pass  # a damaged index gives no more than this
    finally:
        store.abandon()
    return found


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=2, pages=10, profile="calm", stocked=1, seed=3) as serving:
        yield serving


@pytest.fixture(scope="module")
def bases(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bases]:
    folder = tmp_path_factory.mktemp("bases")
    stopped = Crawler(web.seeds, folder / "stopped", "--max-pages", 60, delay_s=0)
    assert stopped.run() == 3, stopped.said
    # With a delay, or it would be over before it can be killed; the resumed one has none.
    killed = Crawler(web.seeds, folder / "killed", delay_s=0.05)
    with killed.running(group=True) as running:
        killed.pages_at_least(25)
        os.killpg(running.pid, signal.SIGKILL)
    whole = folder / "whole"
    shutil.copytree(stopped.data_dir, whole, ignore=shutil.ignore_patterns("*.sock"))
    code, said = weft("crawl", "--resume", *QUICK, "--data-dir", whole)
    assert code == 0, said
    made = Bases(_base(stopped.data_dir), _base(killed.data_dir), set(good_pages(whole)))
    assert len(made.whole) > len(made.stopped.pages) > 50 and made.killed.pages
    yield made
    if FULL:
        print("\n".join(["", *("  ".join(row) for row in made.rows)]))


def _base(data_dir: Path) -> Base:
    copy = data_dir.with_name("looked-at")  # reading folds SQLite's logs, which are to be damaged
    shutil.copytree(data_dir, copy, ignore=shutil.ignore_patterns("*.sock"))
    pages = good_pages(copy)
    shutil.rmtree(copy)
    return Base(data_dir, set(pages), [(url, *place) for url, place in pages.items()])


QUICK = ("--delay", "0", "--max-pages", "100000", "--prometheus-port", "0", "--no-progress")


def weft(*arguments: object) -> tuple[int, str]:
    """One command in this process (a crawl fetches in one of its own): exit code, and all that was said."""
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            code = run([str(argument) for argument in arguments])
    finally:
        logger = logging.getLogger("weft")
        for handler in logger.handlers[:]:
            logger.removeHandler(handler)
            handler.close()
    text = said.getvalue()
    assert "Traceback" not in text and "internal error" not in text, (arguments, text)
    return code, text


def damage_file(path: Path, damage: str, chance: random.Random) -> tuple[int, int]:
    """Does it; gives the first byte that is not as it was, and the byte behind the last."""
    data = path.read_bytes()
    if damage == "deleted" or not data:
        path.unlink()
        return 0, len(data)
    if damage == "flipped":
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        return at, at + 1
    at = 0 if damage == "emptied" else chance.randrange(len(data))
    path.write_bytes(data[:at])
    return at, len(data)


class Case:
    """A copy of a crawl, one file of it damaged; `said` is all that anybody was told since."""

    def __init__(self, base: Base, folder: Path, name: str, damage: str, seed: str) -> None:
        self.base = base
        self.data_dir = folder / "data"
        shutil.copytree(base.data_dir, self.data_dir, ignore=shutil.ignore_patterns("*.sock"))
        (self.path,) = self.data_dir.glob(name)
        self._name = str(self.path.relative_to(self.data_dir))
        first, behind = damage_file(self.path, damage, random.Random(seed))
        # A flipped bit may hit what every page of the file needs: only a page's own bytes make it a victim.
        hit = (url for url, begin, end in base.places if begin < behind and first < end)
        self.victims = set(hit) if name == WARC else set[str]()
        self.said = ""

    def weft(self, *arguments: object) -> int:
        code, said = weft(*arguments)
        self.said += said
        assert "times in a row" not in said, f"a crash loop: {said}"
        return code

    def resume(self) -> int:
        """Goes on with the crawl, and where that is refused, does what the message says."""
        for _ in range(4):
            before = len(self.said)
            code = self.weft("crawl", "--resume", *QUICK, "--data-dir", self.data_dir)
            if code != 2:
                return code
            self._obey(self.said[before:])
        raise AssertionError(f"it is refused again and again: {self.said}")

    def _obey(self, said: str) -> None:
        if "--frontier" in said:
            assert self.weft("rebuild", self.data_dir, "--frontier") == 0, self.said
        elif "weft rebuild" in said or "rebuild the index" in said:
            assert self.weft("rebuild", self.data_dir) == 0, self.said
        else:
            assert "restore it from a backup" in said, said
            assert self._name in IRREPLACEABLE, said
            shutil.copy(self.base.data_dir / self._name, self.path)

    def warned(self) -> bool:
        """Whether somebody was told of a loss: by a command, or in a log."""
        logs = [path.read_text(errors="replace") for path in (self.data_dir / "logs").rglob("*.log")]
        known = [path.read_text(errors="replace") for path in (self.base.data_dir / "logs").rglob("*.log")]
        lines = {line for log in logs for line in log.splitlines()} - {
            line for log in known for line in log.splitlines()
        }
        words = (" WARNING ", " ERROR ")
        return any(word in line for line in lines for word in words) or any(
            word in self.said for word in ("damaged", "cannot be read", "lost", "half a record", "is missing")
        )


@pytest.mark.parametrize(("state", "name", "damage", "place"), list(_cases()))
def test_damage_is_survived_or_said(
    bases: Bases, tmp_path: Path, state: str, name: str, damage: str, place: int
) -> None:
    case = Case(getattr(bases, state), tmp_path, name, damage, f"{state} {name} {damage} {place}")
    code = case.resume()
    assert code == 0, case.said
    got = set(good_pages(case.data_dir))
    missing = bases.whole - got - case.victims  # what rots in a WARC file is found by who reads it, below
    read = ("export", case.data_dir, "--format")
    ends = {
        "stats": case.weft("stats", case.data_dir),
        "jsonl": case.weft(*read, "jsonl", "--content", "text", "--out", tmp_path / "pages.jsonl"),
        "markdown": case.weft(*read, "markdown", "--out", tmp_path / "pages"),
    }
    assert not missing or case.warned(), f"{len(missing)} pages are lost without a word: {case.said}"
    ends["rebuild"] = case.weft("rebuild", case.data_dir)
    if FULL or name in REBUILT:
        ends["resume"] = case.resume()
    # Pages whose own bytes are damaged may be told of by exit code 1, an index by 2; nothing else is a reason to fail.
    told = {0, 1} if name in REBUILT else {0}
    if "index-" in name and "`weft rebuild" in case.said:
        told.add(2)
    assert set(ends.values()) <= told, (ends, case.said)
    assert ends["rebuild"] in (0, 1), case.said
    kept = set(good_pages(case.data_dir))
    assert kept >= bases.whole - case.victims, (sorted(bases.whole - case.victims - kept), case.said)
    assert not bases.whole - kept or case.warned(), case.said
    words = " ".join(case.said.split("weft: ")[1].split()[1:12]) if "weft: " in case.said else "-"
    bases.rows.append((f"{state:8}{name:38}{damage:8}{place:>3}", f"{len(kept):>4} of {len(bases.whole)}", words))
    shutil.rmtree(case.data_dir)


def test_every_file_of_a_data_dir_is_in_the_campaign(bases: Bases) -> None:
    for state, names in (("stopped", STOPPED), ("killed", KILLED)):
        folder = getattr(bases, state).data_dir
        covered = {path for name in (*names, *PLAIN[state]) for path in folder.glob(name)}
        covered |= {path for other in (*STOPPED, *PLAIN["stopped"]) for path in folder.glob(other)}
        there = {path for path in folder.rglob("*") if path.is_file()}
        # Whoever reads an index leaves an empty log of SQLite's beside it.
        there -= {
            log for suffix in ("db-wal", "db-shm") for log in folder.glob(f"index-*.{suffix}") if state == "stopped"
        }
        assert there == covered, sorted(str(path.relative_to(folder)) for path in there ^ covered)
