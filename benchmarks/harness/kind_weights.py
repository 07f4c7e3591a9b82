"""Fits the weights by which `weft.extract.text.page_kind` judges the kind of a page: softmax regression, no chance.

The weights are whole hundredths; those that say next to nothing are left out, so that the table stays readable.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.text_pages import FOLDS, KINDS, TruePage
from weft.extract.page import extract
from weft.extract.text.article import paragraphs
from weft.extract.text.page_kind import SCALE, PageKind, Weights, signals
from weft.extract.text.pruning import pruned_content

STEPS = 600
PENALTY = 2.0
LEAST = 3  # hundredths
LEAST_PAGES = 4  # that a signal must be on
ARTICLES_WEIGHT = 0.5  # of a page of the second set, all of which are articles
_KINDS = list(PageKind)


class Example(NamedTuple):
    """A page's signals and its true kind."""

    fold: int
    facts: list[str]
    kind: PageKind
    weight: float


def examples(pages: list[TruePage]) -> list[Example]:
    """The pages that have text, as examples."""
    found = []
    for page in pages:
        document = extract(page.body, page.url, "text/html").document
        pruned = pruned_content(document) if document is not None else None
        if document is not None and pruned is not None:
            facts = ["always", *signals(document, page.url, pruned.root, paragraphs(pruned.root))]
            weight = 1.0 if page.set == "wcxb" else ARTICLES_WEIGHT
            found.append(Example(page.fold, facts, PageKind(KINDS[page.type]), weight))
    return found


def by_fold(pages: list[TruePage]) -> list[Weights]:
    """For each fold the weights that were fitted on the others."""
    every = examples(pages)
    return [fitted([one for one in every if one.fold != fold]) for fold in range(FOLDS)]


def fitted(found: list[Example]) -> Weights:
    """The weights that fit some examples best, with a penalty for large ones."""
    counts = Counter(fact for one in found for fact in set(one.facts))
    names = sorted(name for name, count in counts.items() if count >= LEAST_PAGES)
    at = {name: number for number, name in enumerate(names)}
    facts = np.zeros((len(found), len(names)))
    for row, one in enumerate(found):
        facts[row, [at[fact] for fact in one.facts if fact in at]] = 1
    true = np.eye(len(_KINDS))[[_KINDS.index(one.kind) for one in found]]
    table = _descended(facts, true, np.array([one.weight for one in found])[:, None])
    return {name: row for name in names if (row := _row(table[at[name]]))}


def _descended(facts: NDArray[np.float64], true: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """Gradient descent with momentum."""
    weights = np.zeros((facts.shape[1], true.shape[1]))
    speed = np.zeros_like(weights)
    rate = 0.4 / len(facts)
    for _ in range(STEPS):
        sums = facts @ weights
        likely = np.exp(sums - sums.max(1, keepdims=True))
        likely /= likely.sum(1, keepdims=True)
        speed = 0.9 * speed - rate * (facts.T @ (weight * (likely - true)) + PENALTY * weights)
        weights += speed
    return np.round(weights * SCALE).astype(np.int64)


def _row(values: NDArray[np.int64]) -> dict[PageKind, int]:
    return {kind: int(value) for kind, value in zip(_KINDS, values, strict=True) if abs(value) >= LEAST}


def written(weights: Weights) -> str:
    """The table as it is kept: a line for each signal."""
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in weights.items())
    return f"{{\n{rows}\n}}\n"


def accuracy(pages: list[TruePage], kinds: list[str]) -> dict[str, float]:
    """The share of pages whose kind was judged rightly, by true kind; a page without any text has none."""
    right: dict[str, list[bool]] = {}
    for page, kind in zip(pages, kinds, strict=True):
        right.setdefault(f"{page.set} {KINDS[page.type]}", []).append(kind == KINDS[page.type])
    return {name: round(sum(found) / len(found), 3) for name, found in sorted(right.items())}
