"""Commands to a crawl from another terminal: pause, resume, edit, seed, cancel.

A command is written to the crawl's folder by the process that holds it: the orchestrator of a running crawl, which
makes its processes read it (`following`), or the command itself if no process runs. Everything that can be refused is
refused before anything is written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from weft import urls
from weft.config import load
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.extraction_requests import add_request
from weft.crawl.pods.nodes import is_part_of_crawl
from weft.engine.crawls.limits import check_email
from weft.engine.crawls.settings import EDITABLE, crawl_settings_of
from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.engine.user_code.calls import Description
from weft.errors import BadInput, BadUrl, Busy
from weft.telemetry import Log

CONNECT_PATIENCE_S = 10.0
RECONNECT_AFTER_S = 0.05
log = Log("weft.crawl.commands")


class AppliedEdit(NamedTuple):
    """The changes of an edit."""

    changed: dict[str, tuple[Any, Any]]  # key → (old value, new value)
    max_duration_s: float | None  # if given: it applies to one run, and is not recorded


class CrawlCommands:
    """The commands of one crawl; the caller holds its folder."""

    def __init__(self, folder: CrawlFolder) -> None:
        self._folder = folder

    def pause(self, reason: str = "") -> None:
        """Pauses the crawl: no more requests are sent, and nothing is lost. `reason`: set if the crawl has paused
        itself."""
        self.check_open()
        self._folder.keep_state(is_paused=True, pause_reason=reason)
        log.always("paused", why=reason or "by a command")

    def resume(self) -> None:
        """Resumes a paused crawl."""
        self.check_open()
        self._folder.keep_state(is_paused=False)
        log.always("resumed")

    def cancel(self) -> None:
        """Cancels the crawl for good; its pages are kept."""
        self._folder.keep_state(is_cancelled=True)
        log.always("cancelled")

    def edit(self, settings: Mapping[str, Any]) -> AppliedEdit:
        """Changes settings of a running crawl: patterns, delay or limits."""
        self.check_open()
        own = crawl_settings_of(settings)
        if fixed := sorted(key for key in own if key not in EDITABLE):
            raise BadInput(
                f"{', '.join(fixed)}: cannot be changed while a crawl runs; stop it, and change it on resume"
            )
        record = self._folder.settings_record()
        before = self._folder.config()
        if is_part_of_crawl(before):
            raise BadInput(
                "the crawl has pods on other nodes, which must follow the same settings: stop it on all of them, and "
                "resume it with the change"
            )
        loaded = load(environment={}, flags=own, earlier=record.values, earlier_defaults=record.defaults)
        if before.scope.max_depth is None and loaded.config.scope.max_depth is not None:
            raise BadInput("max_depth: can be changed, but not added to a crawl that has begun without one")
        most, now = before.limits.max_pages, loaded.config.limits.max_pages
        if not self._folder.is_one_process and now is not None and now != most and (most is None or now < most):
            raise BadInput(
                "max_pages: of a crawl of several pods it can be raised while it runs, not lowered or added: stop the "
                "crawl, and resume it with another"
            )
        kept = self._folder.keep_settings(loaded.kept(), loaded.kept_defaults())
        changed = kept.changes[-1].changed if kept.revision > record.revision else {}
        for key, (old, new) in changed.items():
            log.always("setting changed", key=key, old=old, new=new)
        return AppliedEdit(changed, loaded.config.limits.max_duration_s if "max_duration" in own else None)

    def seed(self, given: Sequence[str]) -> tuple[int, dict[str, str]]:
        """Adds seeds; returns the number of new ones, and the refused ones with their reasons."""
        self.check_open()
        seeds, refused = list[str](), dict[str, str]()
        for text in given:
            try:
                seeds.append(urls.seed(text))
            except BadUrl as error:
                refused[text] = str(error)
        check_email(seeds, self._folder.config().fetch)
        before = len(self._folder.seeds())
        self._folder.add_seeds(seeds)
        new = len(self._folder.seeds()) - before
        log.always("seeds added", seeds=new, refused=len(refused))
        return new, refused

    def extract(self, spider: Mapping[str, Any]) -> int:
        """Requests that pages with a failed callback are processed again; `spider` describes the code. Returns the
        request's number."""
        self.check_open()
        self._folder.keep_spider(msgspec.convert(spider, Description))
        number = add_request(self._folder)
        log.always("failed pages are to be extracted again", number=number)
        return number

    def check_open(self) -> None:
        """Raises BadInput if the crawl was cancelled."""
        if self._folder.settings_record().is_cancelled:
            raise BadInput(
                f"{self._folder.home}: the crawl was cancelled, which cannot be undone; start over with `fresh=True`"
            )


def command(folder: CrawlFolder, verb: str, **arguments: Any) -> dict[str, Any]:
    """Sends a command to the process that runs a crawl, or executes it here if none does; returns the outcome.

    Returns when the command is in force in every process of the crawl, or after PATIENCE_S.
    """
    until = time.monotonic() + CONNECT_PATIENCE_S
    while folder.is_held():
        try:
            return _send_command(folder, verb, arguments, until)
        except EngineGone:
            if time.monotonic() > until:
                raise Busy(
                    f"data dir {folder.home}: another process works on it and takes no commands; try again later"
                ) from None
            time.sleep(RECONNECT_AFTER_S)
    folder.lock_folder()
    try:
        commands = CrawlCommands(folder)
        result: dict[str, Any] = {}
        if verb == "edit" and "max_duration" in crawl_settings_of(arguments["settings"]):
            raise BadInput("`max_duration`: applies to one run, and no process runs the crawl: set it on resume")
        if verb == "edit":
            result["changed"] = commands.edit(**arguments).changed
        elif verb == "seed":
            result["new"], result["refused_urls"] = commands.seed(**arguments)
        else:
            getattr(commands, verb)()
        return {**result, "is_running": False, "is_in_force": True}
    finally:
        folder.release()


def engine_command(folder: CrawlFolder, verb: str, name: str | None, **arguments: Any) -> dict[str, Any]:
    """Sends a command to a running engine for one of its crawls; it is in force when the engine has answered."""
    if name is None:
        raise BadInput(f"{folder.home}: holds the crawls of an engine: say which one with --crawl NAME")
    if verb == "seed":
        arguments = {"seeds": arguments["given"]}
    try:
        connection = Connection(socket_path(folder.home))
    except EngineGone:
        raise BadInput(f"{folder.home}: no process runs this engine, and only it can change its crawls") from None
    try:
        result: dict[str, Any] = connection.call(verb, name=name, **arguments)
        changed = {key: (None, value) for key, value in arguments.get("settings", {}).items()}
        if verb == "seed":
            result = {**connection.call("standing", name=name), "new": result["new"], "refused_urls": result["refused"]}
        return {**result, "changed": changed, "is_running": True, "is_in_force": True}
    finally:
        connection.close()


def _send_command(folder: CrawlFolder, verb: str, arguments: dict[str, Any], until: float) -> dict[str, Any]:
    connection = Connection(socket_path(folder.home))
    try:
        result: dict[str, Any] = connection.call(verb, **arguments)
        state = result
        while verb != "cancel" and state["in_force"] < result["changes"] and time.monotonic() < until:
            time.sleep(RECONNECT_AFTER_S)
            state = connection.call("standing")
        return {**result, **state, "is_running": True, "is_in_force": state["in_force"] >= result["changes"]}
    finally:
        connection.close()
