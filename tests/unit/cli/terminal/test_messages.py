"""Messages name a setting as a program writes it; the command line says it as a flag."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weft
from weft.cli.crawls.commands_to_copy import CrawlArguments, resume
from weft.cli.terminal.messages import as_flags
from weft.config import keys, own_names

SOURCES = Path(weft.__file__).parent


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("`allow_private=True` lets such addresses in", "--allow-private lets such addresses in"),
        ("`tls_verify=False` takes any", "--no-tls-verify takes any"),
        ("`max_pages`: 'ten' is not accepted", "--max-pages: 'ten' is not accepted"),
        ("a longer `delay`, or `politeness_delay_seconds`", "a longer --delay, or --delay"),
        ("choose another `data_dir`", "choose another --data-dir"),
        ("give one: `auth={'HOST': 'USER:PASSWORD'}`", "give one: --auth HOST=USER:PASSWORD"),
        ("No URL matched `include='/a b/*'`", "No URL matched --include '/a b/*'"),
        ("`store=['warc', 'text']`", "--store warc --store text"),
        ("give the file as `config=FILE`", "give the file as --config FILE"),
        ("leave `max_bytes` out", "leave --max-bytes out"),
        ("`weft rebuild x` and `no_such=1` stay", "`weft rebuild x` and `no_such=1` stay"),
    ],
)
def test_a_setting_in_a_message_is_a_flag_on_the_command_line(message: str, said: str) -> None:
    assert as_flags(message) == said


def test_no_room_below_the_command_line_speaks_of_a_crawls_flags() -> None:
    """What `weft.crawl` and `weft.Engine` raise is read by programs, which have no flags."""
    flags = {f"--{name.replace('_', '-')}" for name in own_names(keys())} | {
        "--no-tls-verify",
        "--out",
        "--fields",
        "--content",
        "--max-bytes",
    }
    command = re.compile(r"`weft [^`]*`")
    found = [
        (path.relative_to(SOURCES), line.strip())
        for room in ("crawl", "engine", "frontier", "fetch", "config", "supervise", "store")
        for path in sorted((SOURCES / room).rglob("*.py"))
        for line in path.read_text().splitlines()
        if set(re.findall(r"--[a-z][a-z-]*", command.sub("", line))) & flags
    ]
    allowed = {"SHORT_FLAGS"}
    assert [where for where in found if not any(word in where[1] for word in allowed)] == []


def test_a_crawl_is_started_over_as_it_was_typed_but_for_secrets() -> None:
    flags = {"data_dirs": ["x"], "resume": False, "include": ["/a b*"], "max_pages": 5, "tls_verify": False,
             "auth": {"a.test": "me:secret"}, "pods": ["redis://me:secret@h/0", "managed"]}  # fmt: skip
    command = CrawlArguments(["http://a.test/?a&b"], flags, "my conf.yaml").fresh(["x", "y z"], "--allow-private")
    assert command == (
        "weft crawl 'http://a.test/?a&b' --config 'my conf.yaml' --include '/a b*' --max-pages 5 --no-tls-verify "
        "--auth 'a.test=***' --pods 'redis://***@h/0' --pods managed --fresh --allow-private "
        "--data-dir x --data-dir 'y z'"
    )
    assert "secret" not in command
    assert resume(["x"], "--retry-failed") == "weft crawl --resume --retry-failed --data-dir x"
