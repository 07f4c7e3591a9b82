"""Tests of what is made of a tree run on both parsers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.extract import parse

WITHOUT_TREES = (
    "test_charset",
    "test_convert",
    "test_encodings",
    "test_kind",
    "test_parsers_alike",
    "test_quality",
    "test_robots_meta",
    "test_similar",
    "test_words",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.path.stem not in WITHOUT_TREES:
        metafunc.parametrize("html_parser", parse.PARSERS, indirect=True)


@pytest.fixture(autouse=True)
def html_parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """The parser that a test runs on."""
    parser: str = getattr(request, "param", parse.PARSERS[0])
    parse.choose(parser)
    yield parser
    parse.choose(parse.PARSERS[0])
