"""Live updates: one look for all who look, the same never twice, and nothing while nobody looks."""

from __future__ import annotations

import asyncio
from typing import Any

from pace import patience

from weft.errors import BadInput
from weft.jobs.reading.hub import Hub

SERVICE: Any = None  # no view asks it for anything


async def _until(test: Any) -> None:
    async with asyncio.timeout(patience(5)):
        while not test():
            await asyncio.sleep(0.001)


def test_many_viewers_cost_one_look() -> None:
    looks = 0

    async def make() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        return {"looks": looks, "is_over": looks == 3}

    async def main() -> None:
        hub = Hub(SERVICE, 60, tick_s=0.02)

        async def view() -> list[bytes]:
            return [piece async for piece in hub.view("key", "tasks", make, lambda _: False)]

        seen = await asyncio.gather(*(view() for _ in range(50)))
        assert looks == 3
        assert all(one == seen[0] for one in seen)
        assert seen[0][-1] == b'event: tasks\ndata: {"looks":3,"is_over":true}\n\n'

    asyncio.run(main())


def test_what_says_the_same_is_not_sent_again_and_nobody_costs_nothing() -> None:
    looks = 0

    async def make() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        return {"same": 1}

    async def main() -> None:
        hub, seen = Hub(SERVICE, 60, tick_s=0.001), list[bytes]()

        async def view() -> None:
            seen.extend([piece async for piece in hub.view("key", "tasks", make, lambda _: False)])

        viewer = asyncio.create_task(view())
        await _until(lambda: looks > 10)
        viewer.cancel()
        await asyncio.gather(viewer, return_exceptions=True)
        await asyncio.sleep(0.01)
        before = looks
        await asyncio.sleep(0.02)
        assert looks == before

        watch = hub.view("key", "tasks", make, lambda _: False)
        assert await anext(watch) == b'event: tasks\ndata: {"same":1}\n\n'
        await _until(lambda: looks > before + 5)
        hub.close()
        assert [piece async for piece in watch if piece] == []

    asyncio.run(main())


def test_a_look_that_fails_is_tried_again() -> None:
    looks = 0

    async def make() -> dict[str, Any] | None:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise BadInput("the engine is away") if looks == 1 else ZeroDivisionError
        return {"looks": looks} if looks == 3 else None

    async def main() -> None:
        hub = Hub(SERVICE, 60, tick_s=0.001)
        seen = [piece async for piece in hub.view("key", "task", make, lambda _: False) if piece]
        assert seen == [b'event: task\ndata: {"looks":3}\n\n']

    asyncio.run(main())


def test_silence_is_said_now_and_then() -> None:
    async def make() -> dict[str, Any]:
        return {}

    async def main() -> None:
        hub = Hub(SERVICE, 0.001, tick_s=0.002)
        watch = hub.view("key", "tasks", make, lambda _: False)
        seen = [await anext(watch) for _ in range(20)]
        assert b"" in seen and sum(map(bool, seen)) == 1
        hub.close()
        await watch.aclose()

    asyncio.run(main())
