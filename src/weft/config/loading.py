"""Merges all sources into one configuration; checks every value, and reports all problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from weft.config.contradictions import contradictions, service_contradictions
from weft.config.keys import keys
from weft.config.service import ServiceConfig
from weft.config.sources import from_environment, from_file, from_flags
from weft.config.tree import CRAWL, KEPT_IF_GIVEN, NOT_KEPT, SERVICE, Config, Product, was_given
from weft.config.values import Value, compute, location, typed
from weft.errors import BadConfig

_RECORDED = "as the crawl was started"
_RECORDED_DEFAULT = "default, as the crawl was started"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration, and the origin of each value."""

    config: Config
    origins: dict[str, str]
    values: dict[str, Any]

    def given(self) -> dict[str, Any]:
        """The values that are not defaults and that a resumed crawl keeps."""
        return {name: value for name, value in self.kept().items() if was_given(self.origins, name)}

    def kept(self) -> dict[str, Any]:
        """The values that are recorded when a crawl starts and kept by each resume, including the effective
        defaults."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in NOT_KEPT and (name not in KEPT_IF_GIVEN or was_given(self.origins, name))
        }

    def kept_defaults(self) -> list[str]:
        """Which of the kept values are defaults."""
        return [name for name in self.kept() if not was_given(self.origins, name)]


def load(
    path: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    *,
    earlier_defaults: Collection[str] = (),
    earlier_origin: str = _RECORDED,
    is_judged: bool = True,
) -> Loaded:
    """Merges all sources into one configuration; raises BadConfig with every problem.

    `earlier`: values recorded by a crawl that is resumed, or settings of a spider (`earlier_origin`); they take
    precedence over the defaults. `earlier_defaults`: the keys among them that were defaults. Contradictions are not
    checked while values are still missing (`is_judged`).
    """
    known = keys()
    kept = [
        (name, Value(value, _RECORDED_DEFAULT if name in earlier_defaults else earlier_origin))
        for name, value in (earlier or {}).items()
        if name in known
    ]
    judge = contradictions if is_judged else lambda *_: ()
    values, origins = _merged(CRAWL, kept, path, environment, flags, judge)
    _keep_first_pods(values, origins)
    ordered = {name: values[name] for name in known}
    return Loaded(Config(**_sections(ordered, CRAWL)), origins, ordered)


def load_service(
    path: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> ServiceConfig:
    """Merges the sources for the scrape service; see `load`."""
    values, _ = _merged(SERVICE, [], path, environment, flags, service_contradictions)
    return ServiceConfig(**_sections(values, SERVICE))


def _merged(
    product: Product,
    given: list[tuple[str, Value]],
    path: Path | str | None,
    environment: Mapping[str, str] | None,
    flags: Mapping[str, Any] | None,
    judge: Callable[[Mapping[str, Any], Mapping[str, str]], Iterable[tuple[str, str]]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Every value of a product and its origin; raises BadConfig with every problem."""
    known, problems = keys(product), list[str]()
    environment = os.environ if environment is None else environment
    if path is not None:
        given += from_file(Path(path), known, environment, problems)
    given += from_environment(known, environment, problems)
    given += from_flags(known, flags or {}, problems)
    values, origins = typed(given, known, problems, product.computed)
    if not problems:
        compute(values, origins, product.computed)
        problems += [f"{location(origins[name], name)}: {text}" for name, text in judge(values, origins)]
    if problems:
        raise BadConfig(sorted(problems, key=_line))
    return values, origins


def _keep_first_pods(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Keeps the first `num_pods` of a list of pods, so that a long list can be tried with few."""
    listed, wanted = len(values["pods"]), values["num_pods"]
    if wanted < listed:
        values["pods"] = values["pods"][:wanted]
        origins["pods"] += f", the first {wanted} of {listed}"


def _sections(values: Mapping[str, Any], product: Product) -> dict[str, Any]:
    sections: dict[str, dict[str, Any]] = {}
    for name, item in keys(product).items():
        sections.setdefault(item.section, {})[item.attribute] = values[name]
    return {name: struct(**sections[name]) for name, struct in get_type_hints(product.tree).items()}


def _line(problem: str) -> int:
    """The line number in a problem's message, to sort the problems of a file from top to bottom."""
    match = re.search(r":([0-9]+): ", problem)
    return int(match[1]) if match else 0
