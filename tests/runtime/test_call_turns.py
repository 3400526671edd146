"""Jobs go side by side, a warm-up is alone; whoever waits comes in the order of asking, whatever becomes of others."""

import asyncio
from contextlib import suppress

from gateway.runtime.call_turns import CallTurns


async def _hold(turns: CallTurns, order: list[str], name: str, *, alone: bool = False) -> None:
    async with turns.take(alone=alone):
        order.append(name)
        await asyncio.sleep(0)


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_jobs_go_side_by_side_and_a_warm_up_is_alone() -> None:
    turns = CallTurns()
    assert turns.take_now()
    assert turns.take_now()
    assert not turns.take_now(alone=True)
    turns.leave()
    turns.leave()
    assert turns.take_now(alone=True)
    assert not turns.take_now()
    assert not turns.take_now(alone=True)
    turns.leave(alone=True)
    assert turns.take_now()


def test_who_waits_comes_in_the_order_of_asking_and_before_whoever_asks_now() -> None:
    async def main() -> None:
        turns, order = CallTurns(), []
        assert turns.take_now()
        tasks = [asyncio.create_task(_hold(turns, order, name, alone=name == "warm-up")) for name in ("warm-up", "job")]
        await _settle()
        assert order == []
        assert not turns.take_now()  # the warm-up has asked before
        turns.leave()
        await asyncio.gather(*tasks)
        assert order == ["warm-up", "job"]
        assert turns.take_now(alone=True)

    asyncio.run(main())


def test_one_that_gives_up_waiting_lets_the_others_in() -> None:
    async def main() -> None:
        turns, order = CallTurns(), []
        assert turns.take_now()
        warm_up = asyncio.create_task(_hold(turns, order, "warm-up", alone=True))
        job = asyncio.create_task(_hold(turns, order, "job"))
        await _settle()
        warm_up.cancel()
        with suppress(asyncio.CancelledError):
            await warm_up
        await asyncio.wait_for(job, 1)
        assert order == ["job"]

    asyncio.run(main())


def test_one_that_is_cancelled_as_it_is_given_the_turn_passes_it_on() -> None:
    async def main() -> None:
        turns, order = CallTurns(), []
        assert turns.take_now(alone=True)
        first, second = (asyncio.create_task(_hold(turns, order, name, alone=True)) for name in ("first", "second"))
        await asyncio.sleep(0)
        turns.leave(alone=True)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await asyncio.wait_for(second, 1)
        assert order == ["second"]
        assert turns.take_now(alone=True)

    asyncio.run(main())
