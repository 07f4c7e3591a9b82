"""Finding a user's code: what is refused says what is wrong with it, before anything is requested."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from weft.engine.user_code.calls import Description
from weft.engine.user_code.describing import describe
from weft.engine.user_code.sources import code_named, import_name_of
from weft.errors import BadInput

SPIDER = """
import weft
print("printed at import")
class {name}(weft.Spider):
    start_urls = ["http://h.test/"]
    def parse(self, page):
        yield {{"title": page.css({css!r}).text}}
    def author(self, page): pass
"""


def described(tmp_path: Path, text: str, name: str = "") -> Description:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return describe(code_named(f"{file}:{name}" if name else str(file)))


def test_a_spider_says_what_it_is(tmp_path: Path) -> None:
    found = described(tmp_path, SPIDER.format(name="Mine", css="h1::text"))
    assert (found.title, found.start_urls, found.has_start, found.follows) == ("Mine", ["http://h.test/"], False, False)
    assert {"parse", "author"} <= set(found.callbacks)
    assert len(found.digest) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_that_name", r"cannot be imported: ModuleNotFoundError: No module named .* \(line 1\)"),
        ("def f(:\n", r"cannot be imported: SyntaxError: .*\(line 1\)"),
        ("1 / 0", r"cannot be imported: ZeroDivisionError: division by zero \(line 1\)"),
        ("x = 1", "has no spider: define a class that is derived from weft.Spider"),
        (SPIDER.format(name="A", css="p") + SPIDER.format(name="B", css="p"), r"has 2 spiders \(A, B\): name one"),
        (SPIDER.format(name="A", css="p:hover"), "mine.py:7: css: :hover is not supported"),
        (SPIDER.format(name="A", css="p[["), "mine.py:7: css: .* is not understood"),
        ("import os\nos._exit(3)", "its import ended the process: exit code 3"),
        ("import weft\nclass A(weft.Spider):\n    start_urls = 7\n", "start_urls: 7 is not accepted"),
        (
            "import weft\nclass A(weft.Spider):\n    start = ['http://h.test/']\n",
            r"A.start is a list, .* `start_urls = ",
        ),
        ("import weft\nclass A(weft.Spider):\n    settings = [1]\n", r"settings: \[1\] is not accepted"),
        ("import weft\nclass A(weft.Spider):\n    def __init__(self): 1 / 0\n", "ZeroDivisionError"),
        ("import weft\nclass A(weft.Spider): pass\nnext(weft.run(A))", "if __name__ == '__main__'"),
        ("import weft\nweft.crawl('http://h.test/')", "if __name__ == '__main__'"),
    ],
)
def test_what_cannot_be_run_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        described(tmp_path, text)


def test_names_of_code(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no such file"):
        code_named(str(tmp_path / "nothing.py"))
    (tmp_path / "rules.yaml").touch()
    with (
        contextlib.chdir(tmp_path),
        pytest.raises(BadInput, match=r"rules.yaml: is no Python file: name FILE.py\[:CLASS"),
    ):
        code_named("rules.yaml")
    with pytest.raises(BadInput, match=r"No module named 'missing'\. Name FILE.py, or a module"):
        describe(code_named("missing.yaml"))
    with pytest.raises(BadInput, match="name the function behind a colon"):
        code_named("module", is_function=True)
    with pytest.raises(BadInput, match="is no spider"):
        described(tmp_path, "A = 3", "A")
    with pytest.raises(BadInput, match="has no 'B'"):
        described(tmp_path, "A = 3", "B")
    with pytest.raises(BadInput, match="define it in a module, under a name"):
        import_name_of(lambda page: page)


def test_objects_of_a_program_are_named_by_their_file() -> None:
    assert import_name_of(Description).endswith("engine/user_code/calls.py:Description")
