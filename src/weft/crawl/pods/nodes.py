"""A crawl whose pods are run by several nodes: one id, one set of settings, each pod on one node.

A node is a machine (or a data dir) with `weft crawl --only-pods ...`, on the same list of pods as the others. The first
that comes takes pod 0's database for a new crawl, and all others join it. What decides where links may lead, what a
site bears and how many pages there may be must be the same on all nodes: it is compared through pod 0 when one starts.
A crawl's settings may be changed, as those of any crawl, by a node that resumes it while no other runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

import msgspec

from weft import urls
from weft.config import Config, Loaded, keys, location
from weft.crawl.processes.frontier_settings import settings_of
from weft.engine.admission.rules import read_domains
from weft.engine.folder import new_id
from weft.errors import BadInput
from weft.frontier.redis.connection import connect, inspect
from weft.frontier.redis.pod_info import agree

_SHARED = {
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
    "politeness": None,  # all of it: it goes with every call to a pod's scripts, from whatever node
    "fetch": ("render",),
    "pods": ("seen_filter", "bloom_filter_capacity", "bloom_filter_error_rate"),
}


def is_part(config: Config) -> bool:
    """Whether other nodes run pods of this crawl, too."""
    return set(config.pods.here) != set(range(config.pods.num_pods))


def check_nodes(loaded: Loaded) -> None:
    """A server that a crawl runs itself listens on a socket of its own machine: other nodes cannot reach it."""
    pods = loaded.config.pods
    managed = [pod for pod, spec in enumerate(pods.pods) if spec.managed]
    if is_part(loaded.config) and managed:
        raise BadInput(
            f"{location(loaded.origins['only_pods'], 'only_pods')}: {pods.only_pods} leaves pods to other nodes, and "
            f"pod {managed[0]} is managed, which no other node can reach: give all a redis_url, or leave only_pods out"
        )


def join(config: Config) -> str:
    """The id of the crawl that this node shall be a part of; a new one where pod 0's database is empty."""
    url, settings = config.pods.pods[0].redis_url, settings_of(config)
    with closing(connect(url, settings)) as client:
        try:
            return agree(client, inspect(url, client).address, config.pods.num_pods, new_id())
        except BadInput as wrong:
            raise BadInput(f"pod 0: {wrong}") from None


@dataclass(frozen=True, slots=True)
class Shared:
    """What all nodes must have the same, as JSON by key; and where this node has it from."""

    values: dict[str, str]
    origins: dict[str, str]
    is_resumed: bool

    @classmethod
    def of(cls, loaded: Loaded, seeds: Iterable[str]) -> Shared:
        """Of a crawl's settings and seeds."""
        values = {
            name: _json(getattr(getattr(loaded.config, key.section), key.attribute))
            for name, key in keys().items()
            if key.section in _SHARED and name in (_SHARED[key.section] or (name,))
        }
        listed = loaded.config.scope.exclude_file
        values["exclude_file"] = _told(read_domains(listed) if listed else ())
        values["seeds"] = _told(seeds)
        values["public suffix list"] = _json(urls.suffix_list_version())
        return cls(values, loaded.origins, loaded.config.run.resume)

    def refusal(self, differs: Mapping[str, tuple[str | None, str | None]]) -> BadInput:
        """What is said to a node that would crawl otherwise than the rest."""
        told = "; ".join(
            f"{name} ({self.origins.get(name, 'given')}) is {here or 'unknown'} here and {there or 'unknown'} there"
            for name, (there, here) in differs.items()
        )
        hint = "a crawl's settings can be changed by `resume=True` while no other node runs"
        return BadInput(f"the other nodes crawl with other settings: {told}. Give all nodes the same; {hint}")


def _told(lines: Iterable[str]) -> str:
    together = sorted(set(lines))
    digest = hashlib.sha256("\n".join(together).encode()).hexdigest()[:12]
    return f"{len(together)} ({digest})"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
