"""From what a person asked for to a crawl that can run: settings merged, folder taken, seeds read, everything checked.

Shared by `weft crawl`, `weft demo` and `weft.crawl(...)`. All that can be refused is refused here, before anything is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import urls
from weft.config import Loaded, load
from weft.crawl.folder import CrawlFolder
from weft.crawl.nodes import Shared, check_nodes, is_part, join
from weft.crawl.orchestrator import Orchestrator
from weft.crawl.places import check_cores
from weft.crawl.redis_pods import RedisPods, check_servers
from weft.crawl.redis_process import settings_of
from weft.crawl.seeds import check_email, read_seed_file
from weft.crawl.servers import forget_pods
from weft.errors import BadInput, Busy
from weft.frontier.admission import read_domains
from weft.supervise.node import NodeMetrics
from weft.telemetry import Endpoint, Slot, log_to_file


@dataclass(frozen=True, slots=True)
class Prepared:
    """A crawl that is ready to run; its folder is held until `close`."""

    loaded: Loaded
    folder: CrawlFolder
    orchestrator: Orchestrator
    endpoint: Endpoint | None
    pods: RedisPods | None = None

    def close(self) -> None:
        """Gives everything back; the crawl has ended."""
        if self.pods is not None:
            self.pods.close()
        if self.endpoint is not None:
            self.endpoint.close()
        self.folder.let_go()


def prepare(
    typed: Sequence[str],
    flags: Mapping[str, Any],
    config_file: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    complain: Callable[[str], None] = lambda _: None,
) -> Prepared:
    """Checks everything and takes the folder, or raises what is wrong."""
    loaded = load(config_file, environment, flags)
    folder = CrawlFolder(loaded.config.store.data_dirs)
    resume = loaded.config.run.resume
    if resume:
        identity = folder.identity()
        loaded = load(config_file, environment, flags, _kept(folder, loaded))
    config = loaded.config
    seeds = [urls.seed(text) for text in typed]
    if config.scope.seed_file:
        seeds += read_seed_file(config.scope.seed_file, complain)
    if not seeds and not resume:
        raise BadInput("no seeds: give URLs, or --seed-file FILE with one a line, or --resume to go on with a crawl")
    check_email(seeds, config.fetch)
    if config.scope.exclude_file:
        read_domains(config.scope.exclude_file)
    check_nodes(loaded)
    check_cores(config.pods)
    check_servers(config)
    folder.hold()
    endpoint: Endpoint | None = None
    pods: RedisPods | None = None
    is_new = False
    try:
        if resume:
            identity = folder.go_on()
            folder.seeds()  # what is damaged is refused before anything is started
            _check_pods(folder, loaded)
            _check_suffixes(folder, identity.suffix_list)
        else:
            _make_room(folder, loaded)
            crawl_id = join(config) if is_part(config) else None
            is_new = True
            identity = folder.start(
                seeds,
                config.pods.num_pods,
                settings=loaded.given(),
                on_redis=config.pods.on_redis,
                crawl_id=crawl_id,
            )
        log_to_file(Path(config.log.log_dir), Slot(0, "orchestrator"), config.log.log_level)
        endpoint = _endpoint(folder, loaded, complain)
        pods = _open_pods(folder, loaded, identity.crawl_id, seeds, complain)
        if resume:
            folder.keep_settings(loaded.given())
            folder.add_seeds(seeds)
        if endpoint is not None and pods is not None:
            endpoint.add(pods.metrics())
    except BaseException:
        if pods is not None:
            pods.close()
        if endpoint is not None:
            endpoint.close()
        if is_new:
            folder.clear()
        folder.let_go()
        raise
    return Prepared(loaded, folder, Orchestrator(config, folder, identity.crawl_id, pods=pods), endpoint, pods)


def _open_pods(
    folder: CrawlFolder, loaded: Loaded, crawl_id: str, seeds: Sequence[str], complain: Callable[[str], None]
) -> RedisPods | None:
    """The pods on Redis, taken for this crawl."""
    section = loaded.config.pods
    if not section.on_redis:
        return None
    if section.seen_filter == "bloom":
        share = f"{section.bloom_error_rate:.2%}"
        complain(f"seen_filter is bloom: about {share} of the URLs will be taken for known ones, and never crawled")
    pods = RedisPods(loaded.config, folder, crawl_id)
    shared = Shared.of(loaded, [*folder.seeds(), *seeds]) if is_part(loaded.config) else None
    pods.start(complain, shared)
    return pods


def _check_pods(folder: CrawlFolder, loaded: Loaded) -> None:
    pods, asked = folder.pods, loaded.config.pods.num_pods
    if folder.on_redis != loaded.config.pods.on_redis:
        kind = "on Redis" if folder.on_redis else "embedded"
        raise BadInput(f"{folder.home}: the crawl's pods are {kind}; resume it with the same `pods`")
    if pods != asked:
        raise BadInput(
            f"{folder.home}: the crawl has {_counted(pods)}, {asked} {'was' if asked == 1 else 'were'} asked for "
            f"({loaded.origins['num_pods']}); the number is fixed for a crawl: resume it with {pods}. "
            "To move a crawl to another number is for `weft reshard`, which this Weft does not have yet"
        )


def _check_suffixes(folder: CrawlFolder, recorded: str) -> None:
    """With another list a domain could be another pod's than the one that has asked it."""
    here = urls.suffix_list_version()
    if folder.pods > 1 and recorded != here:
        raise BadInput(
            f"{folder.home}: divided with version {recorded} of the public suffix list, and here is {here}; "
            f"resume it with the same: pip install publicsuffixlist=={recorded}"
        )


def _counted(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _endpoint(folder: CrawlFolder, loaded: Loaded, complain: Callable[[str], None]) -> Endpoint | None:
    """Metrics over HTTP. A port that was asked for must be free; the usual one may be another crawl's."""
    port = loaded.config.log.prometheus_port
    if not port:
        return None
    try:
        node = NodeMetrics(folder.data_dirs)
        return Endpoint(folder.metrics, port, own=Slot(0, "orchestrator"), collectors=[node])
    except Busy as busy:
        if loaded.origins["prometheus_port"] != "default":
            raise
        complain(f"no metrics endpoint: {busy}")
        return None


def _kept(folder: CrawlFolder, loaded: Loaded) -> dict[str, Any]:
    """What the crawl was started with; a recrawl is not held to the number of pages, which are all there already."""
    kept = folder.settings()
    if loaded.config.run.recrawl:
        kept.pop("max_pages", None)
    return kept


def _make_room(folder: CrawlFolder, loaded: Loaded) -> None:
    """Sees that nothing is there; a crawl that is started over is deleted, what it left in databases too."""
    if not folder.exists():
        if folder.holds_pages():
            raise BadInput(f"{folder.home}: holds pages, but no crawl.json: choose another data dir")
        return
    if not loaded.config.run.fresh:
        raise BadInput(
            f"{folder.home} holds a crawl already: go on with --resume, start over with --fresh, "
            "or choose another --data-dir"
        )
    before = folder.identity()
    if before.on_redis:
        servers = {pod: spec.redis_url for pod, spec in enumerate(loaded.config.pods.pods) if spec.redis_url}
        forget_pods(before.crawl_id, servers, settings_of(loaded.config), folder.node)
    folder.clear()
