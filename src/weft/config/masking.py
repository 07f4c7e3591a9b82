"""Masks secrets in values for display."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from weft.config.tree import SECRET_KEYS


def masked(name: str, value: Any) -> Any:
    """A value for display, with secrets replaced by asterisks."""
    if name == "pods":
        return tuple(replace(pod, redis_url=without_login(pod.redis_url)) for pod in value)
    if name in ("redis_url", "broker") and value:
        return without_login(value)
    if name in SECRET_KEYS and isinstance(value, dict):
        return dict.fromkeys(value, "***")
    return "***" if name in SECRET_KEYS and value else value


def without_login(url: str) -> str:
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", re.sub(r"//.*@", "//***@", url))
