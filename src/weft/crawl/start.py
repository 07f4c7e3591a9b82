"""Prepares a crawl from a user's request: merges settings, locks the folder, reads seeds, and checks everything.

Shared by `weft crawl`, `weft demo` and `weft.crawl(...)`. Everything that can be refused is refused here, before
anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import urls
from weft.config import Config, Loaded, load, was_given
from weft.crawl.commands import CrawlCommands
from weft.crawl.folder import CrawlFolder
from weft.crawl.own_code import SETTINGS_ORIGIN, check_resumed, describe_code, settings_in
from weft.crawl.pods.distribution import announce_pods
from weft.crawl.pods.nodes import SharedSettings, check_nodes, is_part_of_crawl, join_crawl
from weft.crawl.pods.process_slots import require_cores_for_affinity
from weft.crawl.pods.servers import forget_pods
from weft.crawl.processes.frontier_settings import redis_settings_of
from weft.crawl.processes.logs import open_log, orchestrator_slot, report_changes
from weft.crawl.processes.orchestrator import Orchestrator
from weft.crawl.reports.combined_status import current_status
from weft.crawl.reports.outcome import CrawlOutcome, outcome_of
from weft.crawl.seeds.seed_file import SeedFile
from weft.crawl.siblings import all_data_dirs, record_siblings
from weft.credentials import seed_origins
from weft.engine.admission.rules import read_domains
from weft.engine.crawls.limits import check_email
from weft.engine.crawls.settings_record import SettingsRecord
from weft.engine.login.checking import checked_login
from weft.engine.loop.stop import Stop
from weft.engine.machine import check_clock
from weft.engine.parsing.extraction import extraction_of
from weft.engine.user_code.calls import Description
from weft.errors import BadInput, BadUrl, Busy, NoCrawl, Occupied, WeftError, installing
from weft.files import have_temporary_folder
from weft.frontier.redis.connection import server_addresses
from weft.store.pages import PageStore
from weft.supervise.node import NodeMetrics
from weft.telemetry import Log, LogFile, MetricsEndpoint

log = Log("weft.crawl.start")
# reasons of a crawl that has ended with work left
_STOPPED_ON_PURPOSE = frozenset({str(Stop.INTERRUPTED), str(Stop.MAX_DURATION)})

if TYPE_CHECKING:
    from weft.crawl.pods.redis_pods import RedisPods


@dataclass(frozen=True, slots=True)
class Prepared:
    """A crawl that is ready to run; its folder is held until `close`."""

    loaded: Loaded
    folder: CrawlFolder
    orchestrator: Orchestrator
    endpoint: MetricsEndpoint | None
    pods: RedisPods | None = None
    log_file: LogFile | None = None

    def outcome(self) -> CrawlOutcome:
        """The outcome of the crawl, after it has ended."""
        outcome = outcome_of(self.folder, self.loaded.config, self.orchestrator.status())
        for cause in outcome.causes:
            log.warning("nothing to show", cause=cause.cause, urls=cause.urls)
        return outcome

    def close(self) -> None:
        """Releases everything after the crawl has ended."""
        if self.pods is not None:
            self.pods.close()
        if self.endpoint is not None:
            self.endpoint.close()
        if self.log_file is not None:
            self.log_file.close()
        self.folder.release()


def prepare(
    typed: Sequence[str],
    flags: Mapping[str, Any],
    config_file: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    complain: Callable[[str], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
    stays_paused: bool = False,
    is_paused: bool = False,
) -> Prepared:
    """Checks everything and locks the folder, or raises what is wrong.

    `complain` is called with problems that a user should fix, `announce` with information. `stays_paused`: resuming
    does not continue a crawl that a command has paused; `is_paused`: a resumed crawl begins paused.
    """
    # Contradictions depend on the settings that a resumed crawl was started with, which are in its data dir.
    asked = load(config_file, environment, flags, is_judged=False)
    if asked.config.run.start_or_resume and CrawlFolder(all_data_dirs(asked.config.store.data_dirs)).exists():
        flags = {**flags, "resume": True}
        asked = load(config_file, environment, flags, is_judged=False)
    if asked.config.run.resume:
        flags = {name: value for name, value in flags.items() if name != "data_dir"}
        flags["data_dirs"] = list(map(str, all_data_dirs(asked.config.store.data_dirs)))
        asked = load(config_file, environment, flags, is_judged=False)
    folder = CrawlFolder(asked.config.store.data_dirs)
    description: Description | None = None
    if asked.config.run.resume and folder.exists():
        folder.open_existing()
        record = folder.settings_record()
        kept = _settings_to_keep(record, asked)
        loaded = load(config_file, environment, flags, kept, earlier_defaults=record.defaults)
        description = describe_code(loaded.config)
    else:
        # resume and fresh contradict each other: reported by `load`
        if asked.config.run.resume and not asked.config.run.fresh:
            folder.identity()  # raises what is wrong
        description = describe_code(asked.config)
        brought = settings_in(description) if description is not None else {}
        loaded = load(config_file, environment, flags, brought, earlier_origin=SETTINGS_ORIGIN)
        folder = CrawlFolder(loaded.config.store.data_dirs)
    config = loaded.config
    seeds = [_seed_from_text(text) for text in typed]
    if description is not None and not description.has_start and not config.run.resume:
        seeds += [_seed_from_text(text) for text in description.start_urls]
    given = SeedFile(config.scope.seed_file) if config.scope.seed_file else None
    try:
        return _prepare_locked(
            loaded, folder, seeds, given, environment, complain, announce, stays_paused, is_paused, description
        )
    finally:
        if given is not None:
            given.close()


def _prepare_locked(
    loaded: Loaded,
    folder: CrawlFolder,
    seeds: list[str],
    given: SeedFile | None,
    environment: Mapping[str, str] | None,
    complain: Callable[[str], None],
    announce: Callable[[str], None],
    stays_paused: bool,
    is_paused: bool,
    description: Description | None,
) -> Prepared:
    config, resume = loaded.config, loaded.config.run.resume
    for note in description.notes if description is not None else ():
        complain(note)
    if config.spider.scrapy and (config.spider.spider_workers or 1) > 1:
        complain("spider_workers: each process has a spider object of its own, which sees a part of the pages")
    large = given if given is not None and not given.is_small else None
    first = given.seeds(complain) if given is not None else []
    if large is None:
        seeds = seeds + first
    if config.scope.scope == "prefix" and (large is not None or (resume and folder.seed_streams())):
        path = large.path if large is not None else folder.seed_streams()[0].name
        raise BadInput(
            f"seed file {path}: is larger than a megabyte, and with `scope='prefix'` every link would be held "
            "against each of its lines: use `scope` domain, host or any"
        )
    if description is not None and not (seeds or large or description.has_start or resume):
        raise BadInput(f"{description.title} has no `start_urls` and no `start()`: give it one of them, or give URLs")
    if not (seeds or large or description is not None) and not resume:
        raise BadInput("no seeds: give URLs, or `seed_file=FILE` with one a line, or `resume=True` to continue a crawl")
    named = _canonical_urls(description.start_urls) if description is not None and not resume else []
    check_email([*seeds, *first, *named], config.fetch)
    extraction_of(config.extract)
    checked_login(config)
    _check_proxies(config, complain)
    if config.scope.exclude_file:
        read_domains(config.scope.exclude_file)
    check_nodes(loaded)
    require_cores_for_affinity(config.pods)
    _check_installed(config)
    if not config.pods.on_redis:
        check_clock(config.politeness, complain)
    folder.lock_folder()
    have_temporary_folder(folder.home)
    endpoint: MetricsEndpoint | None = None
    pods: RedisPods | None = None
    log_file: LogFile | None = None
    is_new = False
    try:
        if resume:
            identity = folder.open_existing()
            CrawlCommands(folder).check_open()
            if not stays_paused:
                folder.keep_state(is_paused=is_paused)
            record_siblings(folder.data_dirs, identity.id)
            check_resumed(folder, description, complain)
            folder.check_streams()  # damage is reported before anything is started
            _check_pods(folder, loaded)
            _check_suffixes(folder, identity.suffix_list)
            _check_seen_filter(folder, loaded)
        else:
            _clear_existing_crawl(folder, loaded)
            crawl_id = join_crawl(config) if is_part_of_crawl(config) else None
            is_new = True
            identity = folder.start(
                seeds,
                config.pods.num_pods,
                settings=loaded.kept(),
                defaults=loaded.kept_defaults(),
                on_redis=config.pods.on_redis,
                crawl_id=crawl_id,
                large=large,
                report_progress=complain,
                spider=description,
            )
            folder.record_credential_origins(config.fetch)
        log_file = open_log(loaded, folder, identity)
        endpoint = _open_metrics_endpoint(folder, loaded, complain)
        announce_pods(config.pods.num_pods, seeds, environment, announce)
        pods = _open_pods(folder, loaded, identity.id, seeds, complain)
        if resume:
            folder.restore_credential_origins(config.fetch)
            folder.add_seeds(seeds, large, complain)
            _keep_origins(folder, loaded, seeds, complain)
            report_changes(loaded, _record_settings(folder, loaded), announce)
            if description is not None:
                folder.keep_spider(description)
        if config.scope.scope != "any":
            folder.record_scope_origins(complain)  # once, and before the crawl's time is counted
        if endpoint is not None and pods is not None:
            endpoint.add(pods.metrics())
            endpoint.talks_to(server_addresses(pods.urls))
    except BaseException:
        if pods is not None:
            pods.close()
        if endpoint is not None:
            endpoint.close()
        if log_file is not None:
            log_file.close()
        if is_new:
            folder.clear()
        folder.release()
        raise
    return Prepared(loaded, folder, Orchestrator(config, folder, identity.id, pods=pods), endpoint, pods, log_file)


def _canonical_urls(texts: Sequence[str]) -> list[str]:
    """The URLs among the texts that a spider's own `start` is likely to request."""
    found = []
    for text in texts:
        with suppress(BadUrl):
            found.append(urls.seed(text))
    return found


def _seed_from_text(text: str) -> str:
    """The canonical URL of what a user typed; for a file or a folder raises BadInput, which says how to pass it."""
    if "://" not in text and os.path.exists(text):  # noqa: PTH110 (a Path raises for some texts)
        is_domain = bool(urls.registered(text.partition("/")[0])[1])
        if not is_domain:  # a folder may be named after the site whose pages it has
            kind, helps = "file", f"if it lists URLs, one a line, use `seed_file={text!r}`"
            if os.path.isdir(text):  # noqa: PTH112
                kind, helps = "folder", f"a crawl in it is continued with `resume=True` `data_dir={text!r}`"
            raise BadInput(f"{text} is a {kind}, not a URL: {helps}")
    return urls.seed(text)


def _keep_origins(folder: CrawlFolder, loaded: Loaded, seeds: Sequence[str], complain: Callable[[str], None]) -> None:
    """Records where credentials are sent: new ones to the origins of the current seeds; existing ones as before."""
    kept, given, fetch = folder.settings(), loaded.given(), loaded.config.fetch
    if any((kept.get(name) or {}) != (given.get(name) or {}) for name in ("headers", "auth")):
        folder.record_credential_origins(fetch)
        return
    known = folder.origins()
    new = [origin for origin in seed_origins(seeds, fetch.headers, fetch.auth) if origin not in known]
    if new:
        complain(
            f"{new[0]}: gets no credentials, because its seed was added after them; name its host: "
            "`headers={'HOST:NAME': 'VALUE'}`"
        )


def _check_proxies(config: Config, complain: Callable[[str], None]) -> None:
    """Checks that there are proxies if they are required. Their modules are only imported then."""
    if config.fetch.proxies is None:
        return
    from weft.fetch.proxies.pool import check

    if unreadable := check(Path(config.fetch.proxies)):
        complain(unreadable)


def _check_installed(config: Config) -> None:
    """Checks that the required servers are installed. Their modules are only imported then."""
    if config.pods.on_redis:
        from weft.crawl.pods.redis_pods import check_servers

        check_servers(config)


def _open_pods(
    folder: CrawlFolder, loaded: Loaded, crawl_id: str, seeds: Sequence[str], complain: Callable[[str], None]
) -> RedisPods | None:
    """The pods on Redis, claimed for this crawl."""
    section = loaded.config.pods
    if not section.on_redis:
        return None
    if section.seen_filter == "bloom":
        share = f"{section.bloom_error_rate:.2%}"
        complain(f"seen_filter is bloom: about {share} of the URLs will be mistaken for known ones, and never crawled")
    from weft.crawl.pods.redis_pods import RedisPods

    pods = RedisPods(loaded.config, folder, crawl_id)
    listed = [*folder.seeds(), *seeds, *(stream.text for stream in folder.seed_streams())]
    shared = SharedSettings.of(loaded, listed) if is_part_of_crawl(loaded.config) else None
    pods.start(complain, shared)
    return pods


def _check_pods(folder: CrawlFolder, loaded: Loaded) -> None:
    pods, asked = folder.pods, loaded.config.pods.num_pods
    if folder.on_redis != loaded.config.pods.on_redis:
        kind = "on Redis" if folder.on_redis else "embedded"
        raise BadInput(f"{folder.home}: the crawl's pods are {kind}; resume it with the same `pods`")
    if pods != asked:
        raise BadInput(
            f"{folder.home}: the crawl has {_count_of_pods(pods)}, {asked} {'was' if asked == 1 else 'were'} asked for "
            f"({loaded.origins['num_pods']}); the number is fixed for a crawl: resume it with {pods}. "
            "To move a crawl to another number is for `weft reshard`, which this Weft does not have yet"
        )


def _check_seen_filter(folder: CrawlFolder, loaded: Loaded) -> None:
    """Checks that the seen filter is unchanged: seen URLs are in the filter that the pods were created with, and cannot
    be read from it."""
    if not folder.on_redis:
        return
    before, now = folder.config().pods, loaded.config.pods
    is_bloom = before.seen_filter == "bloom"
    shape = f" ({before.bloom_capacity:,} URLs, error rate {before.bloom_error_rate:g})" if is_bloom else ""
    if before.seen_filter != now.seen_filter or (
        is_bloom and (before.bloom_capacity, before.bloom_error_rate) != (now.bloom_capacity, now.bloom_error_rate)
    ):
        raise BadInput(
            f"{folder.home}: the crawl's seen_filter is {before.seen_filter}{shape}, and is fixed for a crawl: leave "
            "seen_filter and the bloom keys as they were, or start over with `fresh=True`"
        )


def _check_suffixes(folder: CrawlFolder, recorded: str) -> None:
    """Checks the public suffix list: with another version a domain could belong to another pod than the one that has
    requested it."""
    here = urls.suffix_list_version()
    if folder.pods > 1 and recorded != here:
        raise BadInput(
            f"{folder.home}: divided with version {recorded} of the public suffix list, and here is {here}; "
            f"resume it with the same: {installing(f'publicsuffixlist=={recorded}')}"
        )


def _count_of_pods(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _open_metrics_endpoint(
    folder: CrawlFolder, loaded: Loaded, complain: Callable[[str], None]
) -> MetricsEndpoint | None:
    """The metrics endpoint. A port that was set must be free; the default one may be in use by another crawl."""
    port = loaded.config.log.prometheus_port
    if not port:
        return None
    try:
        node = NodeMetrics(folder.data_dirs)
        host = loaded.config.log.prometheus_host
        own = orchestrator_slot(loaded.config.pods.here)
        return MetricsEndpoint(folder.metrics, port, host, own=own, collectors=[node])
    except Busy as busy:
        if was_given(loaded.origins, "prometheus_port"):
            raise
        complain(f"no metrics endpoint: {busy}")
        return None


def _settings_to_keep(record: SettingsRecord, asked: Loaded) -> dict[str, Any]:
    """The settings that a resumed crawl continues with; a recrawl drops `max_pages`, because the pages exist
    already."""
    return {key: value for key, value in record.values.items() if key != "max_pages" or not asked.config.run.recrawl}


def _record_settings(folder: CrawlFolder, loaded: Loaded) -> Mapping[str, tuple[Any, Any]]:
    """Records the settings of a resume; returns the changed ones."""
    before = folder.settings_record().revision
    record = folder.keep_settings(loaded.kept(), loaded.kept_defaults())
    return record.changes[-1].changed if record.revision > before else {}


def _is_failed_start(folder: CrawlFolder, loaded: Loaded) -> bool:
    """Whether the existing crawl stored no page and was not stopped by a user: then the same command starts again."""
    status = current_status(folder)
    if is_part_of_crawl(loaded.config) or (
        status.state in ("interrupted", "limit") and status.note in _STOPPED_ON_PURPOSE
    ):
        return False
    try:
        store = PageStore.open(folder.data_dirs, read_only=True)
    except BadInput:
        return True  # there is no index yet
    try:
        return store.stats(0).pages == 0
    except WeftError:
        return False  # an unreadable index may have pages
    finally:
        store.abandon()


def _clear_existing_crawl(folder: CrawlFolder, loaded: Loaded) -> None:
    """Checks that there is no crawl; with `fresh` the existing one is deleted, including its databases."""
    if not folder.exists() and folder.holds_pages():
        raise BadInput(f"{folder.home}: holds pages, but no engine.json: choose another data dir")
    try:
        before = folder.open_existing()
    except NoCrawl:
        return
    if not loaded.config.run.fresh and not _is_failed_start(folder, loaded):
        raise Occupied(folder.home)
    if before.on_redis:
        servers = {pod: spec.redis_url for pod, spec in enumerate(loaded.config.pods.pods) if spec.redis_url}
        forget_pods(before.id, servers, redis_settings_of(loaded.config), folder.node)
    folder.clear()
