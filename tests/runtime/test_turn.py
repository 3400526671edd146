"""Turns are taken one at a time, in the order of asking, whatever becomes of those who wait."""

import asyncio
from contextlib import suppress

from gateway.runtime.turn import Turn


def test_a_free_turn_is_taken_at_once_and_only_once() -> None:
    turn = Turn()
    assert turn.take_now()
    assert not turn.take_now()
    turn.leave()
    assert turn.take_now()


def test_who_waits_comes_in_the_order_of_asking_and_before_whoever_asks_now() -> None:
    async def main() -> None:
        turn, order = Turn(), []

        async def take(name: str) -> None:
            async with turn:
                order.append(name)
                await asyncio.sleep(0)

        assert turn.take_now()
        tasks = [asyncio.create_task(take(name)) for name in "abc"]
        await asyncio.sleep(0)
        turn.leave()
        assert not turn.take_now()  # it is a's, who does not run yet
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "c"]
        assert turn.take_now()

    asyncio.run(main())


def test_one_that_gives_up_waiting_is_passed_over() -> None:
    async def main() -> None:
        turn = Turn()
        assert turn.take_now()
        waiting = asyncio.create_task(turn.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        turn.leave()
        assert turn.take_now()

    asyncio.run(main())


def test_one_that_is_cancelled_as_it_is_given_the_turn_passes_it_on() -> None:
    async def main() -> None:
        turn = Turn()
        assert turn.take_now()
        first, second = (asyncio.create_task(turn.__aenter__()) for _ in range(2))
        await asyncio.sleep(0)
        turn.leave()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await asyncio.wait_for(second, 1)
        assert not turn.take_now()
        turn.leave()
        assert turn.take_now()

    asyncio.run(main())
