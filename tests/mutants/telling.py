"""What became of the mutants."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutant

WANTED = 0.90  # about one in twenty changes nothing that a caller could notice, or a size that nobody promises


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    found_by: str  # a test, or nothing: it has survived
    seconds: float
    tests: int  # that run what is changed


def report(results: list[Result]) -> tuple[list[str], float]:
    found = sum(1 for result in results if result.found_by)
    share = found / len(results) if results else 1.0
    lines: list[str] = []
    survivors = [result for result in results if not result.found_by]
    if survivors:
        lines.append(f"── survived: no test notices ({len(survivors)})")
        lines += [told(result.mutant) for result in survivors]
    lines.append("── by module")
    every = Counter(result.mutant.module for result in results)
    lost = Counter(result.mutant.module for result in survivors)
    lines += [f"{every[module] - lost[module]:4} of {every[module]:3}  {module}" for module in sorted(every)]
    by_time = sum(1 for result in results if result.found_by.startswith("time"))
    lines.append(
        f"{found} of {len(results)} mutants found ({share:.1%}; {by_time} of them by their time limit); at least "
        f"{WANTED:.0%} is wanted"
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
