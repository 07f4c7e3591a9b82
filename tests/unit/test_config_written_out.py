"""What is made from the configuration is current: docs/settings.md, the keywords of weft.crawl, the help's groups."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_type_hints

import pytest

from weft.cli.terminal.settings import GROUPS
from weft.config import COMPUTED, Config, keys, own_names
from weft.config.document import keywords_module, settings_page
from weft.config.tree import COMPUTED_WORDS
from weft.crawl.keywords import Settings
from weft.crawl.page_iteration import crawl

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "made"),
    [("docs/settings.md", settings_page), ("src/weft/crawl/keywords.py", keywords_module)],
    ids=["page", "keywords"],
)
def test_what_is_made_from_the_configuration_is_current(path: str, made: object) -> None:
    assert callable(made)
    assert (ROOT / path).read_text() == made(), "run `make settings`"


def test_every_name_of_a_setting_is_a_keyword_and_no_other() -> None:
    own = set(inspect.signature(crawl).parameters)
    assert set(Settings.__annotations__) | {"data_dir", "spider", "on_page"} == set(own_names(keys()))
    assert own == {"seeds", "data_dir", "config", "on_page", "settings"}


def test_every_section_has_its_group_and_every_computed_default_its_words() -> None:
    assert set(GROUPS) == set(get_type_hints(Config))
    assert set(COMPUTED_WORDS) == set(COMPUTED)
    for name, words in COMPUTED_WORDS.items():
        assert words in (ROOT / "docs/settings.md").read_text(), name
