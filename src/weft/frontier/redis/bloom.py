"""The Bloom filter, as the alternative seen set: it mistakes a configured share of new URLs for seen ones.

A server with the BF.* commands keeps the filter itself; otherwise scripts keep it as bits in strings of a megabyte
each. Both have the configured capacity and error rate.
"""

from __future__ import annotations

from math import ceil, log
from typing import Any

from weft.frontier.redis.connection import convert_errors


def filter_shape(client: Any, where: str, capacity: int, error_rate: float) -> str:
    """`server` if it has BF.*, else BITS:HASHES, the size that the filter needs."""
    with convert_errors(where):
        commands: Any = client.execute_command("COMMAND INFO", "BF.ADD")
    if commands and (commands[0] if isinstance(commands, list) else commands):
        return "server"
    bits = ceil(-capacity * log(error_rate) / log(2) ** 2)
    return f"{bits}:{max(1, round(bits / capacity * log(2)))}"


def reserve_filter(client: Any, where: str, crawl: int, capacity: int, error_rate: float) -> None:
    """Creates the server's own filter, if it does not exist."""
    from redis import exceptions as wrong

    with convert_errors(where):
        try:
            client.execute_command("BF.RESERVE", f"b:{crawl}", error_rate, capacity)
        except wrong.ResponseError as error:
            if "exists" not in str(error):
                raise
