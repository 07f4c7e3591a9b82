"""The help of every command, as a terminal of 80 columns shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from weft.cli.main import COMMANDS, weft
from weft.config import keys


def commands() -> Iterator[list[str]]:
    yield []
    for name, (module, _) in sorted(COMMANDS.items()):
        yield [name]
        command = getattr(import_module(module), name)
        if isinstance(command, click.Group):
            yield from ([name, one] for one in sorted(command.commands))


def shown(*words: str, flag: str = "--help") -> str:
    done = CliRunner().invoke(weft, [*words, flag], prog_name="weft", terminal_width=80)
    assert done.exit_code == 0, done.output
    return str(done.output)


def entries(text: str) -> list[tuple[str, str]]:
    """The flags and commands of a help, each with what it says."""
    found: list[list[str]] = []
    flags = re.split(r"^\S.*:$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    for line in flags.splitlines():
        if entry := re.fullmatch(r"  (-[\w\[\]-]+(?:, --\w+)?(?: \S+)?|[a-z]\w+)(?:  +(\S.*))?", line):
            found.append([entry[1], entry[2] or ""])
        elif found and line.startswith("   ") and line.strip():
            found[-1][1] += " " + line.strip()
        elif not line.strip():
            found.append(["", ""])
    return [(name, said.strip()) for name, said in found if name.startswith("-")]


@pytest.mark.parametrize("words", list(commands()), ids=lambda words: " ".join(words) or "weft")
def test_a_help_fits_on_80_columns_and_is_written_in_sentences(words: list[str]) -> None:
    text = shown(*words)
    assert max(map(len, text.splitlines())) <= 80, text
    assert "..." not in re.sub(r"\]?\.\.\.(\n|$)", "", text.partition("\n")[2]), "a sentence is cut off"
    for name, said in entries(text):
        sentence = re.sub(r" *\[[^\[]*\]$", "", said)  # a default, a range
        assert re.fullmatch(r"[A-Z].*\.", sentence), (name, said)
        assert not re.search(r"\burls?\b", sentence.replace("redis_url", "")), (name, said)
    assert not re.search(r"\b(INTEGER|FLOAT|RANGE)\b", text), text


def test_the_help_of_a_crawl_has_groups_and_defaults_and_tuning_is_in_the_long_one() -> None:
    text, everything = shown("crawl"), shown("crawl", flag="--help-all")
    for heading in ("Where to go:", "When to stop:", "How to treat a site:", "Output and help:"):
        assert f"\n{heading}\n" in text
    assert "Redis of the pods:" not in text and "Redis of the pods:" in everything
    for item in keys().values():
        flag = re.escape(item.flag.removeprefix("--"))
        line = re.compile(rf"^  (-\w, )?--(\[no-\])?{flag}\b", re.MULTILINE)
        assert bool(line.search(text)) != item.tuning, item.name
        assert line.search(everything), item.name
        if item.default_words not in ("", "off"):
            assert f"[default: {item.default_words}]" in " ".join(everything.split()), item.name
    assert len(text.splitlines()) < 115 < len(everything.splitlines())
