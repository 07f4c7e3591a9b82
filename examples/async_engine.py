"""An engine from asyncio: two readers follow their crawls at the same time.

python examples/async_engine.py FOLDER EMAIL https://example.com https://example.org
"""

from __future__ import annotations

import asyncio
import os
import sys

import weft
from weft.urls import host_of


async def follow(engine: weft.AsyncEngine, name: str) -> None:
    async for page in engine.pages(name):
        print(f"{name} {page.number}: {page.title}", flush=True)


async def main(folder: str, email: str, seeds: list[str]) -> None:
    private = os.environ.get("WEFT_ALLOW_PRIVATE") == "true"
    async with weft.AsyncEngine(folder, email=email, allow_private=private) as engine:
        for seed in seeds:
            await engine.open(host_of(seed), seed, max_pages=5, delay=0.05)
        await asyncio.gather(*(follow(engine, host_of(seed)) for seed in seeds))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
