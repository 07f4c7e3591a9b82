"""Signs of how a repository is kept: what its tree has, and how recent its history is. Pure."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from weft.pipelines.builtin.modules.repositories.tree import Tree

ACTIVE_DAYS, SLOW_DAYS = 365, 3 * 365
_MAX_PATH = 300  # longer ones are no one's tests, and patterns would take long over them
_FILE_PATTERNS = {
    "changelog": re.compile(r"(?:changelog|changes|history|news|releases?)(?:\.\w+)?", re.IGNORECASE),
    "contributing": re.compile(r"(?:\.github/|docs/)?contributing(?:\.\w+)?", re.IGNORECASE),
    "code_of_conduct": re.compile(r"(?:\.github/|docs/)?code[-_]of[-_]conduct(?:\.\w+)?", re.IGNORECASE),
    "security_policy": re.compile(r"(?:\.github/|docs/)?security(?:\.\w+)?", re.IGNORECASE),
    "lock_file": re.compile(
        r"package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock"
    ),
    "continuous_integration": re.compile(
        r"\.github/workflows/.+\.ya?ml|\.gitlab-ci\.yml|\.travis\.yml|\.circleci/config\.yml|azure-pipelines\.yml|Jenkinsfile"
    ),
    "dependency_updates": re.compile(r"\.github/dependabot\.ya?ml|renovate\.json5?|\.renovaterc(?:\.json)?"),
    "tests": re.compile(
        r"(?:.*/)?(?:tests?|__tests__|spec)/.+\.\w+|(?:.*/)?(?:test_.+|.+_test)\.py|.+\.(?:test|spec)\.[cm]?[jt]sx?"
    ),
}


def of_tree(tree: Tree) -> dict[str, Any]:
    """Which of the usual files a tree has, and its size by kind of file."""
    kinds: Counter[str] = Counter()
    for path, size in tree.sizes.items():
        kinds[posixpath.splitext(path)[1].lower() or "(none)"] += size
    paths = [path for path in tree.sizes if len(path) <= _MAX_PATH]
    largest = max(tree.sizes.items(), key=lambda entry: (entry[1], entry[0]), default=None)
    return {
        **{sign: any(pattern.fullmatch(path) for path in paths) for sign, pattern in _FILE_PATTERNS.items()},
        "bytes_by_kind": dict(sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))[:10]),
        "largest_file": {"path": largest[0], "bytes": largest[1]} if largest else None,
        "vendored_files": sum(1 for path in tree.sizes if "node_modules/" in path),
    }


def of_history(clone: Mapping[str, Any], today: date) -> dict[str, Any]:
    """How old the newest commit is, and how many there were within a year. In whole days: see `collect`."""
    newest = _day_of(clone.get("committed_at"))
    age = None if newest is None else max(0, (today - newest).days)
    dates = [day for text in clone["history"]["dates"] if (day := _day_of(text)) is not None]
    return {
        "age_days": age,
        "commits_last_year": sum(1 for day in dates if (today - day).days <= ACTIVE_DAYS),
        "maintained": judged(age),
    }


def judged(age_days: int | None) -> str:
    """Whether a repository is active, slow or dormant, by the age of its newest commit."""
    if age_days is None:
        return "unknown"
    return "active" if age_days <= ACTIVE_DAYS else "slow" if age_days <= SLOW_DAYS else "dormant"


def _day_of(text: Any) -> date | None:
    return datetime.fromisoformat(text).date() if isinstance(text, str) else None
