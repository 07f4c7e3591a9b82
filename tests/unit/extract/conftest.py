"""Every test of extraction runs on both parsers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.extract import parse


@pytest.fixture(autouse=True, params=parse.PARSERS)
def html_parser(request: pytest.FixtureRequest) -> Iterator[str]:
    parse.choose(request.param)
    yield request.param
    parse.choose(parse.PARSERS[0])
