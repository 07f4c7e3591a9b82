"""What brain and hand send each other about a page that is rendered, in the bodies of signed messages.

A task holds the page's order. The hand asks for each part (`render-question`) over the list of the brain's process, and
reads the answers (`render-verdict`) from a list of the task. At the end it sends the page (`render-result`). Orders and
pages are JSON; a large one lies beside its message, as bodies of fetched pages do.
"""

from __future__ import annotations

from msgspec import Struct

from weft.fetch.remote.messages import LargeBody

TASK, QUESTION, VERDICT, RESULT = "render", "render-question", "render-verdict", "render-result"
ANSWERS_KEPT_S = 300


class RenderTask(Struct, frozen=True, omit_defaults=True):
    """One page. After its begin a task has `run_s`, of which the browser does not use the last `margin_s`."""

    slot: str
    epoch: int
    claims: tuple[str, ...]  # one: the task's name in the messages below
    run_s: float
    margin_s: float
    most_bytes: int
    order: bytes = b""
    large: LargeBody | None = None
    is_shared: bool = False
    dns_servers: tuple[str, ...] = ()


class PartAsked(Struct, frozen=True):
    """A part that the page wants."""

    id: str
    slot: str
    epoch: int
    hand: str
    question: int
    url: str
    kind: str
    is_page: bool


class PartAnswered(Struct, frozen=True, omit_defaults=True):
    """The brain's answer. `is_cancelled`: the page is not wanted any more."""

    id: str
    question: int = 0
    refused: str = ""
    is_cancelled: bool = False


class PageRendered(Struct, frozen=True, omit_defaults=True):
    """The end of a task."""

    id: str
    slot: str
    epoch: int
    hand: str
    age_s: float
    page: bytes = b""
    large: LargeBody | None = None


def results_key(slot: str) -> str:
    """The list of questions and pages for one process of the brain."""
    return f"renders:{slot}"


def verdicts_key(task: str) -> str:
    """The list of answers for one task."""
    return f"verdicts:{task}"
