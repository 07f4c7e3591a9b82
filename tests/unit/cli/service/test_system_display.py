"""The live view of services, and the end of a log that goes on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from weft.cli.service import system
from weft.cli.service.system_display import service_changes, services_picture
from weft.cli.terminal.live import ChangeLines, Size, rendered
from weft.system.state import ServiceRow, SystemState

STATE = SystemState(
    boot="",
    supervisor=None,
    urls={"api": "http://127.0.0.1:8000"},
    services=(
        ServiceRow(name="redis", state="running", healthy=True, pid=4194304, since="2026-02-04T10:30:45.123Z"),
        ServiceRow(name="engine", state="back-off", restarts=3, last_error="killed by SIGKILL"),
        ServiceRow(name="api", state="failed", last_error="exited with code 1: \x1b[31m" + "a long message " * 20),
    ),
)


def drawn(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(rendered(services_picture(STATE, Size(width, 24), "./weft-service")))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_it_fits_the_terminal_and_shows_what_is_wrong(width: int) -> None:
    lines = drawn(width)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines) and len(lines) == 8
    assert "1 of 3 services healthy" in text and "http://127.0.0.1:8000" in text
    assert "engine: killed by SIGKILL" in text and "redis: " not in text
    assert r"\x1b[31m" in text and "\x1b" not in text
    assert ("2026-02-04T10:30:45.123Z" in text) is (width == 140)


def test_without_a_terminal_changes_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ChangeLines(service_changes)
    lines(STATE)
    lines(STATE)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["weft: redis: running, healthy", "weft: engine: back-off (killed by SIGKILL)"]
    assert len(said) == 3


def test_a_log_is_followed_into_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, said = tmp_path / "api.log", list[str]()
    path.write_text("before\n")

    def more(_: float) -> None:
        if not said:
            with path.open("a") as file:
                file.write("one\n")
        elif said == ["one"]:
            path.rename(tmp_path / "api.log.1")
            path.write_text("two\n")
        elif said == ["one", "two"]:
            raise KeyboardInterrupt

    monkeypatch.setattr("weft.cli.service.system.time.sleep", more)
    with pytest.raises(KeyboardInterrupt):
        system._follow(path, said.append)
    assert said == ["one", "two"]
