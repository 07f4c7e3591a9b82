"""What the documents show is true: every shell and Python block is run, every flag and target they name is there.

A document's blocks run in their order, in a folder of their own, against a synthetic web. What is put in the place of
what a reader would type is in SUBSTITUTIONS. How a block is told apart:

    sh, bash, or no language and a line that starts with a program   run, line by line
    python                                                           run
    yaml                                                             held against the configuration
    text, or no language and no program                              a listing or a drawing, not run

A line `# not run: REASON` at the top of a block keeps it from being run, where every reader sees it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import click
import pytest
from crawling import environment, until
from pace import patience

from weft.cli.main import COMMANDS
from weft.fetch.curl.handles import kind
from weft.records import RETRYABLE, Reason
from weft.testing.web import SyntheticWeb, synthetic_web

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/[!d]*/*.md", "examples/README.md")
    for path in ROOT.glob(pattern)
)
# What a reader would type, and what is run in its place. SITE, PORT and PYTHON are filled in.
SUBSTITUTIONS = [
    (r"https://example\.com", "SITE"),
    (r"\.venv/bin/python", "PYTHON"),
    (r"source \.venv/bin/activate", "true"),
    (r"--max-pages (\d)000\b", r"--max-pages \g<1>2"),  # 1000: 12, 2000: 22, so that what goes on has something to do
    (r"WEFT_MAX_PAGES=\d+", "WEFT_MAX_PAGES=5"),
    (r"\bmax_pages=\d+", "max_pages=5"),
    # A crawl that verbs are shown on has to be there for all of them, however late they come: it may not reach its end.
    (r"max_pages=\d+, weight=2", "max_pages=5, delay=3600, weight=2"),
    (r'Engine\("\./engine"', 'Engine("./engine", allow_private=True, delay=0.01'),  # it does not read the environment
    (r"--hosts \d+ --pages \d+", "--hosts 4 --pages 30 --port 0"),
    (r'hosts=30, pages=300, profile="messy"', "hosts=2, pages=6"),
    (r"--delay 0\.2", "--delay 0.02"),
    (r"delay_s=0\.2", "delay_s=0.02"),
    (r"\bFILE\b", "laptop.yaml"),
    (r"\bDIR\b", "./weft-data"),
    (r"\b2026-02-04T10-30-45\b", "$(ls logs | head -1)"),
    (r"\bITEM\b", "a"),
    (r"\bPATH\b", "pages.out"),
    (r"\b(\w+)(?:\|\w+)+\b", r"\1"),  # of a|b|c, a
]
# Put behind a command: a crawl of a web that is larger than a test needs.
APPENDED = {"weft crawl": "--no-progress --prometheus-port 0"}
BOUNDED = "--max-pages 12"
# 3: stopped by a limit, which is ours. The others must succeed.
EXIT_CODES = {"weft crawl": {0, 3}}
# What a Python block takes for granted.
PREAMBLES = {
    "docs/synthetic-web.md": """
        import weft
        def crawl(seeds):
            settings = {"scope": "any", "politeness_delay_seconds": 0.02, "allow_private": True}
            return list(weft.crawl(seeds, **settings))
    """,
}
# What a document's reader has done before, where it does not say so itself.
BEFORE = {
    "README.md": ["weft crawl SITE --data-dir ./weft-demo --max-pages 3 --prometheus-port 0 -q || test $? = 3"],
    "docs/export.md": [
        "weft crawl SITE --data-dir ./weft-data --max-pages 12 --prometheus-port 0 -q || test $? = 3",
        "weft export ./weft-data --format parquet --out pages.parquet",
    ],
    "docs/pool.md": [
        r"mkdir mypackage && printf 'def process_item(item, context):\n    return 42\n' > mypackage/work.py",
        r"""printf '{"id": "a"}\n{"id": "b"}\n' > items.jsonl""",
    ],
}
# Programs that are no part of Weft, done by their Python packages.
STAND_INS = {"duckdb": "import duckdb, sys; print(duckdb.sql(sys.argv[2]))"}


@dataclass
class Block:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    text: str

    @property
    def kind(self) -> str:
        """What is done with it."""
        if re.match(r"# not run: \S", self.text):
            return "not run"
        if self.language in ("sh", "bash") or (not self.language and any(map(is_command, self.text.splitlines()))):
            return "shell"
        return {"python": "python", "yaml": "yaml", "text": "listing", "": "listing"}.get(self.language, "unknown")


@dataclass
class Outcome:
    """What became of a document's blocks."""

    ran: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def blocks_of(document: str) -> Iterator[Block]:
    """The fenced blocks of a document, in their order."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    begun: tuple[int, str, str] | None = None
    for number, line in enumerate(lines, 1):
        fence = re.match(r"\s*(`{3,})\s*(\S*)", line)
        if begun is None and fence:
            begun = (number, fence[1], fence[2])
        elif begun is not None and line.strip() == begun[1]:
            yield Block(document, begun[0], begun[2], "\n".join(lines[begun[0] : number - 1]))
            begun = None
    assert begun is None, f"{document}:{begun}: the block has no end"


def is_command(line: str) -> bool:
    """Whether a line begins with a program that there is."""
    word = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line).partition(" ")[0]
    known = word in ("weft", "make", "pip", *STAND_INS) or word.startswith((".venv/bin/", "scripts/"))
    return known or bool(re.fullmatch(r"[a-z][a-z0-9._-]*", word) and shutil.which(word))


def commands_of(text: str) -> list[str]:
    """The commands of a shell block, without comments, continued lines put together."""
    lines = text.replace("\\\n", " ").splitlines()
    stripped = (re.sub(r"(^|\s)#\s.*$", "", line).strip() for line in lines)
    return [line for line in stripped if line]


class Runner:
    """Runs the blocks of one document."""

    def __init__(self, document: str, folder: Path, web: SyntheticWeb) -> None:
        self.document = document
        self.outcome = Outcome()
        self._folder = folder
        self._web = web
        self._stack = ExitStack()
        (folder / "seeds.txt").write_text("".join(f"{seed}\n" for seed in web.seeds))
        for name in ("examples", "docs"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "laptop.yaml").write_text((ROOT / "examples" / "laptop.yaml").read_text())
        (folder / "bin").mkdir()
        for name, program in STAND_INS.items():
            (folder / "bin" / name).write_text(f"#!{sys.executable}\n{program}\n")
            (folder / "bin" / name).chmod(0o755)
        self._environment = environment(
            WEFT_ALLOW_PRIVATE="true",
            WEFT_POLITENESS_DELAY_SECONDS="0.01",
            PATH=os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        )

    def run(self) -> Outcome:
        """All blocks; what went wrong is in the outcome."""
        with self._stack:
            for command in BEFORE.get(self.document, []):
                self._take(self.document, command, ["bash", "-c", self._filled(command)])
            for block in blocks_of(self.document):
                self._run_block(block)
        return self.outcome

    def _run_block(self, block: Block) -> None:
        place = f"{block.document}:{block.line}"
        if block.kind == "shell":
            commands = commands_of(block.text)
            if not commands:
                self.outcome.faults.append(f"{place}: a shell block without a command")
            for command in commands:
                self._run_command(place, command)
        elif block.kind == "python":
            self._run_python(place, block.text)
        elif block.kind == "yaml":
            path = self._folder / "block.yaml"
            path.write_text(block.text)
            self._take(place, "weft config check", ["weft", "config", "check", str(path)])
        elif block.kind == "unknown":
            self.outcome.faults.append(
                f"{place}: nobody runs a block in {block.language!r}; if none should, call it text"
            )
        else:
            self.outcome.ran.append(f"{place}: {block.kind}")

    def _run_command(self, place: str, command: str) -> None:
        words = shlex.split(command)
        if words[0] == "make":
            self._check(place, command, words[1:], targets())
        elif words[:2] == ["pip", "install"]:
            self._check(place, command, re.findall(r"\w+(?=[\],])", " ".join(words)), extras())
        else:
            filled = self._filled(command)
            name = " ".join(words[:2])
            if name in APPENDED and "--help" not in words:
                bound = "" if {"--max-pages", "--resume"} & set(words) else BOUNDED
                filled = f"{filled} {APPENDED[name]} {bound}"
            if name == "weft web":
                self._serve(place, filled)
            else:
                self._take(place, command, ["bash", "-o", "pipefail", "-c", filled], EXIT_CODES.get(name, {0}))

    def _run_python(self, place: str, text: str) -> None:
        preamble = "\n".join(line[8:] for line in PREAMBLES.get(self.document, "").splitlines())
        path = self._folder / "block.py"
        path.write_text(f"{preamble}\n{self._filled(text)}\n")
        self._take(place, "a Python block", [sys.executable, path.name])

    def _take(
        self, place: str, said: str, command: list[str], accepted: frozenset[int] | set[int] = frozenset({0})
    ) -> None:
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=patience(60)
        )
        if done.returncode not in accepted:
            tail = (done.stdout + done.stderr)[-800:]
            self.outcome.faults.append(f"{place}: {said}: exit code {done.returncode}\n{command[-1]}\n{tail}")
        self.outcome.ran.append(f"{place}: {said} ({time.monotonic() - began:.1f} s)")

    def _serve(self, place: str, command: str) -> None:
        """A server runs on until the document is through; it is there when it has written its seeds."""
        (self._folder / "seeds.txt").unlink()
        server = subprocess.Popen(shlex.split(command), cwd=self._folder, env=self._environment, stderr=subprocess.PIPE)
        self._stack.callback(server.wait)
        self._stack.callback(server.kill)
        assert server.stderr is not None
        server.stderr.readline()
        until((self._folder / "seeds.txt").exists, 20, "the seed file of weft web")
        self.outcome.ran.append(f"{place}: {command}")

    def _check(self, place: str, command: str, names: list[str], known: set[str]) -> None:
        if unknown := set(names) - known:
            self.outcome.faults.append(f"{place}: {command}: there is no {', '.join(unknown)}")
        self.outcome.ran.append(f"{place}: {command} (checked, not run)")

    def _filled(self, text: str) -> str:
        for pattern, instead in SUBSTITUTIONS:
            text = re.sub(pattern, instead, text)
        return text.replace("SITE", self._web.seeds[0].rstrip("/")).replace("PYTHON", sys.executable)


def targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def extras() -> set[str]:
    """The extras of the package."""
    section = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = ", section, re.MULTILINE))


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    """What all documents crawl."""
    with synthetic_web(hosts=3, pages=30) as web:
        yield web


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_of_the_document_is_run(document: str, web: SyntheticWeb, tmp_path: Path) -> None:
    outcome = Runner(document, tmp_path, web).run()
    print("\n".join(outcome.ran))
    assert not outcome.faults, "\n\n".join(outcome.faults)
    assert len(outcome.ran) >= len(list(blocks_of(document)))


def test_blocks_are_found_and_distinguished() -> None:
    kinds = {block.kind for document in DOCUMENTS for block in blocks_of(document)}
    assert {"shell", "python", "listing"} <= kinds
    assert commands_of("weft a \\\n  --b  # why\n\n# only words\nmake c") == ["weft a    --b", "make c"]
    assert Block("", 1, "", "├── a\n").kind == "listing"
    assert Block("", 1, "", "weft demo\n").kind == "shell"
    assert Block("", 1, "sh", "# not run: it needs a second machine\nweft crawl\n").kind == "not run"
    assert Block("", 1, "perl", "print 1\n").kind == "unknown"


# ── what is named in passing ───────────────────────────────────────────────────────────────────────────────────────


def flags_of(command: click.Command) -> set[str]:
    """Every flag of a command and of the commands below it."""
    own = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts) if flag.startswith("--")}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(flags_of, below), {"--help"})


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    return {name: flags_of(getattr(import_module(module), name)) for name, (module, _) in COMMANDS.items()}


SCRIPTS = {"scripts/mutants": "tests/mutants/run.py"}


def known_to_pytest(span: str) -> str:
    """The options of a test run, ours and xdist's, where a span is one."""
    return (ROOT / "tests/conftest.py").read_text() + " --dist" if span.startswith("scripts/test ") else ""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_flags_and_links_that_are_named_exist(document: str, flags: dict[str, set[str]]) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    known = set().union(*flags.values()) | {"--version"}
    for span in spans:
        script = re.match(r"benchmarks/\w+\.py(?= )|scripts/mutants(?= )", span)
        source = (
            (ROOT / SCRIPTS.get(script[0], script[0])).read_text(encoding="utf-8") if script else known_to_pytest(span)
        )
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span):
            assert flag in known or flag in source, f"{span}: no command has {flag}"
        if named := re.match(r"weft ([a-z]+)(?: |$)(.*)", span):
            assert named[1] in COMMANDS, span
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", named[2])) <= flags[named[1]], span
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / document).parent.joinpath(target).exists(), f"{document}: there is no {target}"


def test_every_reason_and_error_has_its_line_in_the_document() -> None:
    text = (ROOT / "docs" / "crawl.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/weft/engine").rglob("*.py"))
    fetching = {kind(code, "") for code in range(101)} | RETRYABLE
    recorded = set(re.findall(r'error="([a-z_]+)"', source))
    assert {"too_large", "noindex"} <= recorded
    missing = [word for word in {*map(str, Reason), *fetching, *recorded} if f"`{word}`" not in text]
    assert missing == []
