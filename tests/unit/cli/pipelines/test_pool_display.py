"""What is shown of a run of the pool."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from weft.cli.pipelines.pool_display import RunPicture, RunState, RunView, failure_line, sentence
from weft.cli.terminal.live import Size, rendered
from weft.pipelines.pool.engine.run_request import WorkerView
from weft.pipelines.pool.events import PoolCounts
from weft.pipelines.pool.record import Result, Status


class FakeStream:
    def counts(self) -> PoolCounts:
        return PoolCounts(1300, 512, 505, 2, 3, 1, 1, 0, 120.4, 6.5)

    def workers(self) -> list[WorkerView]:
        return [
            WorkerView(0, 4242, "running", "repo-17", "clone", 1.25, 130, 45.2),
            WorkerView(1, None, "back-off", None, None, 0.0, 7, 0.0),
        ]


class TestView:
    def test_sentence(self) -> None:
        assert sentence(FakeStream().counts()) == (
            "512/1,300 39 % done, 505 ok, 2 skipped, 3 failed, 1 timeout, 1 crashed, 120.4/s, 0:06 left"
        )

    def test_live_picture_has_bar_workers_and_failures(self) -> None:
        picture = RunPicture("weft pool work:f  run R")
        picture.failed(Result("repo-3", Status.CRASHED, None, "clone", "killed by SIGSEGV\nmore"))
        console = Console(width=100, file=io.StringIO(), record=True)
        stream = FakeStream()
        console.print(rendered(picture(RunState(stream.counts(), stream.workers()), Size(100, 24))))
        text = console.export_text()
        for piece in ("512/1,300 39 %", "120/s", "0:06 left", "505 ok", "4242", "repo-17", "1.2 s", "back-off"):
            assert piece in text
        assert "repo-3 crashed in clone: killed by SIGSEGV" in text
        assert "more" not in text

    @pytest.mark.parametrize("columns", [80, 120])
    def test_live_picture_keeps_its_numbers_whatever_the_names(self, columns: int) -> None:
        workers = [
            WorkerView(
                n, 1234567, "running", f"https://example.org/{'long/' * 20}日本語-{n}", "s" * 50, 1.25, 98765, 4321
            )
            for n in range(20)
        ]
        workers[0] = workers[0]._replace(item_id="[/red]\x1b", stage="[bold")
        picture = RunPicture("weft pool work:f  run R")
        for n in range(5):
            picture.failed(Result(n, Status.FAILED, None, "p", "e" * 300))
        console = Console(width=columns, file=io.StringIO(), record=True)
        console.print(rendered(picture(RunState(FakeStream().counts(), workers), Size(columns, 24))))
        lines = console.export_text().splitlines()
        assert len(lines) <= 24
        assert max(cell_len(line.rstrip()) for line in lines) <= columns
        assert "[/red]\\x1b" in lines[5]
        assert "[bold" in lines[5]
        for number, line in enumerate(lines[6:11], 1):
            assert all(piece in line for piece in ("1234567", f"日本語-{number}", "1.2 s", "98765", "4321"))

    def test_many_failures_do_not_flood_a_log(self, capsys: pytest.CaptureFixture[str]) -> None:
        view = RunView("t", quiet=False)
        for n in range(100):
            view.failed(Result(n, Status.FAILED, None, "p", "e"))
        view.show_end(FakeStream())
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 21
        assert "only in the results" in lines[-1]

    def test_control_characters_in_an_id_do_nothing_to_the_terminal(self) -> None:
        assert (
            failure_line(Result("a\x1b[2J\0", Status.FAILED, None, "x", "y\x07"))
            == "a\\x1b[2J\\x00 failed in x: y\\x07"
        )

    def test_long_failures_are_cut(self) -> None:
        assert len(failure_line(Result("x" * 300, Status.FAILED, error="y" * 300))) == 200
