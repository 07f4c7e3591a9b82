"""What a crawl extracts from its pages beyond links: its rules, compiled once for all crawls that have the same.

Settings are checked here, too, since the configuration cannot check selectors: BadRules names the error. The compiler
is imported with the first rules: most crawls have none, and their processes start without it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from weft.config import ExtractSection

if TYPE_CHECKING:
    from weft.extract.rules.field_rules import FieldRules

_encode = msgspec.json.Encoder(order=None).encode  # the order of fields is that of the rules


class Extraction:
    """Compiled rules, with the encoded form for parser children."""

    __slots__ = ("encoded", "rules")

    def __init__(self, rules: FieldRules, encoded: bytes) -> None:
        self.rules = rules
        self.encoded = encoded


def extraction_of(section: ExtractSection) -> Extraction | None:
    """The compiled rules; None for a crawl without rules. BadRules for invalid rules, Missing for patterns
    without RE2.
    """
    return _compile_rules(_encode(section.extract)) if section.extract else None


@lru_cache(maxsize=256)
def _compile_rules(encoded: bytes) -> Extraction:
    from weft.extract.rules.field_rules import compile_rules

    return Extraction(compile_rules(msgspec.json.decode(encoded)), encoded)
