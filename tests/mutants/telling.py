"""What became of the mutants, and what is known of those that nobody can find."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutant

WANTED = 0.95
_COMMENT = re.compile(r"\s+(?:#|--)\s")


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    found_by: str  # a test, or nothing: it has survived
    seconds: float
    tests: int  # that run what is changed


class Equivalents:
    """Mutants that no test can tell from the original, or should, by module and by what the line becomes: not by its
    number. A mutant is equivalent, or it changes a choice: a size or a pace that nobody promises (`is_choice`)."""

    def __init__(self, path: Path) -> None:
        entries = tomllib.loads(path.read_text()).get("mutant", [])
        ways = [{**one, "becomes": way} for one in entries for way in _listed(one["becomes"])]
        self._entries: list[dict[str, str]] = [{key: _bare(one[key]) for key in one} for one in ways]
        self._used: set[int] = set()
        if wrong := [one["line"] for one in self._entries if one.get("kind", "choice") != "choice"]:
            raise SystemExit(f"mutants: {path.name}: a kind is `choice`, or not given: {', '.join(wrong)}")

    def why(self, mutant: Mutant) -> str | None:
        """The reason, if it is known to be one."""
        entry = self._entry(mutant)
        return entry["why"] if entry is not None else None

    def is_choice(self, mutant: Mutant) -> bool:
        """Whether it changes a size or a pace that nobody promises."""
        entry = self._entry(mutant)
        return entry is not None and "kind" in entry

    def _entry(self, mutant: Mutant) -> dict[str, str] | None:
        sought = mutant.module, _bare(mutant.before), _bare(mutant.after)
        for number, entry in enumerate(self._entries):
            if (entry["module"], entry["line"], entry["becomes"]) != sought:
                continue
            if entry.get("where", mutant.where) == mutant.where:
                self._used.add(number)
                return entry
        return None

    def unused(self, modules: Iterable[str]) -> list[str]:
        """Entries for code that is no more."""
        entries = (entry for number, entry in enumerate(self._entries) if number not in self._used)
        return [f"{entry['module']}: {entry['line']}" for entry in entries if entry["module"] in modules]


def _bare(text: str) -> str:
    """A line in single spaces, without the comment behind it: that is reworded more often than code."""
    return " ".join(_COMMENT.split(text, maxsplit=1)[0].split())


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def report(
    results: list[Result], sample: list[Mutant], known: dict[Mutant, str], choices: set[Mutant], unused: list[str]
) -> tuple[list[str], float]:
    wrong = [result for result in results if result.mutant in known and result.found_by]
    counted = [result for result in results if result.mutant not in known]
    found = sum(1 for result in counted if result.found_by)
    share = found / len(counted) if counted else 1.0
    lines: list[str] = []
    equivalent = [mutant for mutant in sample if mutant in known]
    for title, some in (
        ("equivalent: nothing can tell them from the original", [one for one in equivalent if one not in choices]),
        ("choices: sizes and paces that nobody promises", [one for one in equivalent if one in choices]),
    ):
        if some:
            lines.append(f"── {title} ({len(some)})")
        for mutant in some:
            lines += [told(mutant), f"    {known[mutant]}"]
    survivors = [result for result in counted if not result.found_by]
    if survivors:
        lines.append(f"── survived: no test notices ({len(survivors)})")
        lines += [told(result.mutant) for result in survivors]
    if wrong:
        lines.append("── listed as equivalent, and found all the same: take them out of equivalent.toml")
        lines += [f"{told(result.mutant)}\n    found by {result.found_by}" for result in wrong]
    if unused:
        lines.append("── entries of equivalent.toml that match no line any more")
        lines += unused
    lines.append("── by module")
    every = Counter(result.mutant.module for result in counted)
    lost = Counter(result.mutant.module for result in survivors)
    lines += [f"{every[module] - lost[module]:4} of {every[module]:3}  {module}" for module in sorted(every)]
    chosen = sum(1 for mutant in equivalent if mutant in choices)
    by_time = sum(1 for result in counted if result.found_by.startswith("time"))
    lines.append(
        f"{found} of {len(counted)} mutants found ({share:.1%}; {by_time} of them by their time limit), "
        f"{len(equivalent) - chosen} equivalent, {chosen} choices; at least {WANTED:.0%} is wanted"
    )
    return lines, share


def told(mutant: Mutant) -> str:
    return f"{mutant.module}:{mutant.line} {mutant.where}\n    - {mutant.before}\n    + {mutant.after}"


def write(folder: Path, results: list[Result], lines: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    rows = [
        {
            "module": result.mutant.module,
            "line": result.mutant.line,
            "where": result.mutant.where,
            "before": result.mutant.before,
            "after": result.mutant.after,
            "found_by": result.found_by,
            "tests": result.tests,
            "seconds": round(result.seconds, 2),
        }
        for result in results
    ]
    (folder / "report.json").write_text(json.dumps(rows, indent=1))
    (folder / "report.txt").write_text("\n".join(lines) + "\n")
    print("the whole report: .mutants/report.txt and .mutants/report.json")
