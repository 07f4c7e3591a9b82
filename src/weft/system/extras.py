"""Weft's optional parts: which there are, which the services need, and how those that are missing are installed."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib import metadata

from weft.config import ServiceConfig
from weft.errors import Missing, installing
from weft.supervise.redis_server import find_program

NOT_FOR_USERS = ("all", "dev")
_NO_EXTRA = (
    "; instead of the extra 'redis' a redis-server or valkey-server of your system's packages will do; or leave "
    "`redis` out of `services`"
)


def packages() -> dict[str, list[str]]:
    """The packages of each extra; empty if Weft runs from its source without being installed."""
    packages_by_extra: dict[str, list[str]] = {}
    try:
        requirements = metadata.requires("weft") or ()
    except metadata.PackageNotFoundError:
        return packages_by_extra
    for requirement in requirements:
        name, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if name and extra and extra[1] not in NOT_FOR_USERS and name[0] != "weft":
            packages_by_extra.setdefault(extra[1], []).append(name[0])
    return packages_by_extra


def missing(names: Collection[str]) -> list[str]:
    """The packages of `names` that are not installed."""
    return [name for name in names if not _is_installed(name)]


def needed(config: ServiceConfig, services: Collection[str]) -> set[str]:
    """The extras without which these services cannot run."""
    extras = {"serve"} if "api" in services else set()
    if "celery" in services:
        extras.add("cluster")  # it includes a Redis server and client
    elif "redis" in services and (config.services.redis_url or not _has_redis_server()):
        extras.add("redis")
    return extras


def check(config: ServiceConfig, services: Collection[str]) -> None:
    """Raises Missing, which names every extra that these services need and that is not installed."""
    brings = packages()
    wanted = [name for name in sorted(needed(config, services)) if missing(brings.get(name, ()))]
    if not wanted:
        return
    which = f"the extra {wanted[0]!r} is" if len(wanted) == 1 else f"the extras {' and '.join(map(repr, wanted))} are"
    otherwise = _NO_EXTRA if "redis" in wanted and not config.services.redis_url else ""
    how = installing(f"weft[{','.join(wanted)}]")
    raise Missing.said(f"{which} needed, and not installed: {how}{otherwise}")


def _has_redis_server() -> bool:
    try:
        find_program()
    except Missing:
        return False
    return True


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
