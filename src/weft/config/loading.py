"""Merges all sources into one configuration: every value checked, and every mistake told at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from weft.config.contradictions import contradictions
from weft.config.keys import Key, keys
from weft.config.sources import from_environment, from_file, from_flags
from weft.config.tree import NOT_KEPT, Config, was_given
from weft.config.values import Value, compute, place, typed
from weft.errors import BadConfig


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration and where each of its values came from."""

    config: Config
    origins: dict[str, str]
    values: dict[str, Any]

    def given(self) -> dict[str, Any]:
        """The values that are no defaults and that a resumed crawl keeps."""
        return {
            name: value for name, value in self.values.items() if name not in NOT_KEPT and was_given(self.origins, name)
        }


def load(
    path: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    *,
    is_judged: bool = True,
) -> Loaded:
    """Merges all sources into one configuration, or raises BadConfig with every problem found.

    `earlier` is what a crawl that is resumed was started with: it counts before the defaults. Whether the values fit
    together is left open where that is not known yet (`is_judged`).
    """
    known, problems = keys(), list[str]()
    environment = os.environ if environment is None else environment
    given = [
        (name, Value(value, "as the crawl was started")) for name, value in (earlier or {}).items() if name in known
    ]
    if path is not None:
        given += from_file(Path(path), known, environment, problems)
    given += from_environment(known, environment, problems)
    given += from_flags(known, flags or {}, problems)
    values, origins = typed(given, known, problems)
    if not problems:
        compute(values, origins)
        told = contradictions(values, origins) if is_judged else ()
        problems += [f"{place(origins[name], name)}: {text}" for name, text in told]
    if problems:
        raise BadConfig(sorted(problems, key=_line))
    _take_first_pods(values, origins)
    ordered = {name: values[name] for name in known}
    return Loaded(_assemble(ordered, known), origins, ordered)


def _take_first_pods(values: dict[str, Any], origins: dict[str, str]) -> None:
    """A list of many pods can be tried with few: the first are taken."""
    listed, wanted = len(values["pods"]), values["num_pods"]
    if wanted < listed:
        values["pods"] = values["pods"][:wanted]
        origins["pods"] += f", the first {wanted} of {listed}"


def _assemble(values: Mapping[str, Any], known: Mapping[str, Key]) -> Config:
    sections: dict[str, dict[str, Any]] = {}
    for name, item in known.items():
        sections.setdefault(item.section, {})[item.attribute] = values[name]
    return Config(**{name: struct(**sections[name]) for name, struct in get_type_hints(Config).items()})


def _line(problem: str) -> int:
    """The line that a problem names, to tell them from the top of the file down."""
    found = re.search(r":([0-9]+): ", problem)
    return int(found[1]) if found else 0
