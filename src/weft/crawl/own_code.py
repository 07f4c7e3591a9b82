"""Describes and checks the user code of a crawl that is about to be started or resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.config import Config, keys, own_names
from weft.crawl.folder import CrawlFolder
from weft.engine.user_code.calls import Code, Description
from weft.engine.user_code.describing import describe
from weft.engine.user_code.sources import code_of_crawl
from weft.errors import BadConfig, BadInput
from weft.names import answer
from weft.references import is_broken_reference, is_reference, names_secret

SETTINGS_ORIGIN = "settings of the spider"
_NOT_OF_SPIDERS = frozenset(
    {"spider", "on_page", "scrapy", "scrapy_arguments", "scrapy_settings", "resume", "fresh", "retry_failed", "recrawl"}
)


def describe_code(config: Config) -> Description | None:
    """The description of the code that the settings name; None if they name none."""
    code = code_of_crawl(config)
    if code is None:
        return None
    section = config.spider
    named = [name for name in ("spider", "on_page", "scrapy") if getattr(section, name)]
    if len(named) > 1:
        raise BadInput(f"`{named[0]}` and `{named[1]}` are two ways to read the pages: give one of them")
    if section.scrapy and config.pods.num_pods > 1:
        raise BadInput("a Scrapy spider lives in one process: leave `num_pods` out")
    if config.pods.on_redis:
        raise BadInput("a spider does not run on pods on Redis yet: leave `pods` out, or use `num_pods`")
    _check_secrets(code)
    return describe(code)


def _check_secrets(code: Code) -> None:
    """Refuses passwords as plain text among the arguments and settings of a Scrapy spider: they would be recorded with
    the crawl, and everybody on the machine could read them in the list of processes."""
    for flag, given in (("-a", code.arguments), ("-s", code.settings)):
        for name, value in given.items():
            if is_broken_reference(value):
                raise BadInput(f"{flag} {name}: has a reference that is none: write ${{env:NAME}} or ${{file:PATH}}")
            if value and names_secret(name) and not is_reference(value):
                raise BadInput(
                    f"{flag} {name}: a secret as plain text would be recorded: write it as a reference, "
                    f"{flag} {name}='${{env:NAME}}' for a variable of the environment, or '${{file:PATH}}'"
                )


def settings_in(description: Description) -> dict[str, Any]:
    """The crawl settings of a spider, by key; raises BadConfig for invalid ones."""
    own, problems, settings = own_names(keys()), list[str](), dict[str, Any]()
    for name, value in description.settings.items():
        if name not in own:
            problems.append(f"{SETTINGS_ORIGIN}: no setting {name!r}{answer(name, own, str)}")
        elif own[name] in _NOT_OF_SPIDERS:
            problems.append(f"{SETTINGS_ORIGIN}: {name} can only be set by the command that runs it")
        else:
            settings[own[name]] = value
    if problems:
        raise BadConfig(problems)
    return settings


def check_resumed(folder: CrawlFolder, description: Description | None, complain: Callable[[str], None]) -> None:
    """Refuses code for a crawl that was started without; reports when the code has changed."""
    before = folder.spider()
    if description is None:
        return
    if before is None:
        raise BadInput(f"{folder.home}: the crawl was started without a spider: start a new one in another `data_dir`")
    if before.has_pipelines is not description.has_pipelines:
        was, now = ("with", "without") if before.has_pipelines else ("without", "with")
        raise BadInput(
            f"{folder.home}: the crawl was started {was} item pipelines, and its spider comes {now}: its output would "
            "be of two kinds; start a new one in another `data_dir`"
        )
    if before.digest and before.digest != description.digest:
        complain(
            f"{description.title} has changed since the crawl ran last: pages that are stored keep their items "
            "(`weft extract` makes them again, in a file of its own)"
        )
