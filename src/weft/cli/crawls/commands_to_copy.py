"""Complete commands for users to copy: to continue a crawl, and to start it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.cli.terminal.messages import with_value

# of one run only, or written separately
_INTENT_FLAGS = frozenset({"resume", "fresh", "retry_failed", "recrawl", "data_dirs"})
_CODE = ("spider", "scrapy")  # settings of `weft run`
_MOST_SEEDS = 3  # more would make the command too long


@dataclass(frozen=True, slots=True)
class CrawlArguments:
    """The arguments of `weft crawl` or `weft run`, from which the command that starts the crawl again is written."""

    urls: Sequence[str] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    config_file: str | None = None
    out: str | None = None  # the file for items

    @classmethod
    def of_resumed(cls, seeds: Sequence[str], settings: Mapping[str, Any]) -> CrawlArguments:
        """The arguments that would start a resumed crawl with its current settings."""
        pods = [pod.redis_url or "managed" for pod in settings.get("pods", ())]
        return cls(seeds, dict(settings) | ({"pods": pods} if pods else {}))

    def fresh(self, data_dirs: Iterable[str | Path], more: str = "") -> str:
        """The command that starts the same crawl again, with `more` flags."""
        from weft.config import keys

        command = "weft run" if any(name in self.flags for name in _CODE) else "weft crawl"
        words = [command, *map(shlex.quote, _some_seeds(self.urls))]
        words += ["-o " + shlex.quote(self.out)] if self.out else []
        words += ["--overwrite"] if self.out not in (None, "-") else []
        words += ["--config " + shlex.quote(self.config_file)] if self.config_file else []
        kept = {name: value for name, value in self.flags.items() if name not in _INTENT_FLAGS}
        words += [shlex.quote(str(kept.pop("spider")))] if "spider" in kept else []
        words += [with_value(keys()[name].flag, _mask_value(name, value)) for name, value in kept.items()]
        return " ".join([*words, "--fresh", *filter(None, [more]), _data_dir_flags(data_dirs)])


def _mask_value(name: str, value: Any) -> Any:
    from weft.config import masked
    from weft.config.masking import without_login

    return [without_login(pod) for pod in value] if name == "pods" else masked(name, value)


def resume(data_dirs: Iterable[str | Path], more: str = "") -> str:
    """The command that continues a crawl."""
    folders = list(map(str, data_dirs))
    return " ".join(filter(None, [f"{_command_of(folders)} --resume", more, _data_dir_flags(folders)]))


def _command_of(folders: Sequence[str]) -> str:
    """The command that has started the crawl of a folder."""
    from weft.crawl.folder import CrawlFolder
    from weft.errors import WeftError

    try:
        settings = CrawlFolder(folders).settings()
    except WeftError:  # the folder is damaged: what is wrong is reported where it is read
        settings = {}
    return "weft run" if any(settings.get(name) for name in _CODE) else "weft crawl"


def _data_dir_flags(data_dirs: Iterable[str | Path]) -> str:
    return " ".join(f"--data-dir {shlex.quote(str(folder))}" for folder in data_dirs)


def _some_seeds(seeds: Sequence[str]) -> list[str]:
    return list(seeds) if len(seeds) <= _MOST_SEEDS else [*seeds[:_MOST_SEEDS], "..."]
