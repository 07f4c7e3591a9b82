"""A crawl whose pods run on several nodes: one id, one set of settings, each pod on one node.

A node is a machine (or a data dir) with `weft crawl --only-pods ...`, and the same list of pods as the others. The
first node claims pod 0's database for a new crawl, and all others join it. Settings that decide scope, politeness and
limits must be the same on all nodes: they are compared through pod 0 when a node starts. They may be changed by a node
that resumes the crawl while no other node runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

import msgspec

from weft import urls
from weft.config import Config, Loaded, keys, location
from weft.crawl.processes.frontier_settings import redis_settings_of
from weft.engine.admission.rules import read_domains
from weft.engine.folder import new_id
from weft.errors import BadInput
from weft.frontier.redis.connection import connect, inspect_server
from weft.frontier.redis.pod_info import agree_on_crawl_id

_SHARED_SETTINGS = {
    "scope": (
        "scope",
        "include",
        "exclude",
        "max_depth",
        "offsite_hops",
        "strip_query",
        "trap_rules",
        "seeded_urls_only",
    ),
    "limits": ("max_pages", "max_pages_per_domain"),
    "politeness": None,  # all of them: they are part of every call to a pod's scripts, from any node
    "fetch": ("render",),
    "pods": ("seen_filter", "bloom_filter_capacity", "bloom_filter_error_rate"),
}


def is_part_of_crawl(config: Config) -> bool:
    """Whether other nodes run pods of this crawl, too."""
    return set(config.pods.here) != set(range(config.pods.num_pods))


def check_nodes(loaded: Loaded) -> None:
    """Refuses managed servers: they listen on a socket of their machine, which other nodes cannot reach."""
    pods = loaded.config.pods
    managed = [pod for pod, spec in enumerate(pods.pods) if spec.managed]
    if is_part_of_crawl(loaded.config) and managed:
        raise BadInput(
            f"{location(loaded.origins['only_pods'], 'only_pods')}: {pods.only_pods} leaves pods to other nodes, and "
            f"pod {managed[0]} is managed, which no other node can reach: give all a redis_url, or leave only_pods out"
        )


def join_crawl(config: Config) -> str:
    """The id of the crawl that this node joins; a new one if pod 0's database is empty."""
    url, settings = config.pods.pods[0].redis_url, redis_settings_of(config)
    with closing(connect(url, settings)) as client:
        try:
            return agree_on_crawl_id(client, inspect_server(url, client).address, config.pods.num_pods, new_id())
        except BadInput as wrong:
            raise BadInput(f"pod 0: {wrong}") from None


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """The values that must be equal on all nodes, as JSON by key; and their origins on this node."""

    values: dict[str, str]
    origins: dict[str, str]
    is_resumed: bool

    @classmethod
    def of(cls, loaded: Loaded, seeds: Iterable[str]) -> SharedSettings:
        """The values of a crawl's settings and seeds."""
        values = {
            name: _encode_value(getattr(getattr(loaded.config, key.section), key.attribute))
            for name, key in keys().items()
            if key.section in _SHARED_SETTINGS and name in (_SHARED_SETTINGS[key.section] or (name,))
        }
        listed = loaded.config.scope.exclude_file
        values["exclude_file"] = _summarize_lines(read_domains(listed) if listed else ())
        values["seeds"] = _summarize_lines(seeds)
        values["public suffix list"] = _encode_value(urls.suffix_list_version())
        return cls(values, loaded.origins, loaded.config.run.resume)

    def refusal(self, differs: Mapping[str, tuple[str | None, str | None]]) -> BadInput:
        """The error for a node whose settings differ from those of the others."""
        differences = "; ".join(
            f"{name} ({self.origins.get(name, 'given')}) is {here or 'unknown'} here and {there or 'unknown'} there"
            for name, (there, here) in differs.items()
        )
        hint = "a crawl's settings can be changed by `resume=True` while no other node runs"
        return BadInput(f"the other nodes crawl with other settings: {differences}. Give all nodes the same; {hint}")


def _summarize_lines(lines: Iterable[str]) -> str:
    together = sorted(set(lines))
    digest = hashlib.sha256("\n".join(together).encode()).hexdigest()[:12]
    return f"{len(together)} ({digest})"


def _encode_value(value: object) -> str:
    return msgspec.json.encode(value).decode()
