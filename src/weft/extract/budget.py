"""What rules may cost on one page: a bound that depends on the page's length alone, whatever page and rules are."""

from __future__ import annotations

LEAST_STEPS = 50_000
STEPS_PER_CHAR = 4
MAX_CHARS = 1_000_000  # of all values of a page
VALUE_CHARS = 16  # that a value counts for besides its text


class TooMuch(Exception):
    """The rules cost more than the page is worth: its `str` says of what there was too much."""


class Budget:
    """What is left for one page. A step is about one look at one element."""

    __slots__ = ("chars", "steps")

    def __init__(self, page_chars: int) -> None:
        self.steps = LEAST_STEPS + STEPS_PER_CHAR * page_chars
        self.chars = MAX_CHARS

    def step(self, count: int = 1) -> None:
        """Takes steps."""
        self.steps -= count
        if self.steps < 0:
            raise TooMuch("the page is too large, or too deeply nested, for these rules")

    def keep(self, chars: int) -> None:
        """Takes room for a value."""
        self.chars -= chars + VALUE_CHARS
        if self.chars < 0:
            raise TooMuch(f"the values of the page have more than {MAX_CHARS:,} characters")
