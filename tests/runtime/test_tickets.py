"""Whoever waits for a frame is told of its end once, from the event loop, and nobody is held up by another."""

import asyncio
from typing import Any

import pytest

from gateway.core.types import Outcome
from gateway.errors import EngineFailed
from gateway.runtime.results import FrameResult
from gateway.runtime.tickets import FrameTicket, Telling, all_ended, results_of


def result(seq: int = 0) -> FrameResult:
    return FrameResult("s", seq, Outcome.MET, "", 1.0, 2.0, 1, 0.5, 0.5, False, (2,), {})


def ticket(seq: int = 0, gone: list[FrameTicket] | None = None) -> FrameTicket:
    return FrameTicket("s", seq, None, (gone if gone is not None else []).append)


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test(), 5))


def test_watchers_are_told_together_in_the_next_turn_of_the_loop() -> None:
    async def test() -> None:
        telling, told = Telling(), []
        tickets = [ticket(seq) for seq in range(3)]
        for each in tickets:
            each.watch(lambda ended: told.append(ended.seq))
            assert each.end(result(each.seq))
            telling.tell_soon(each)
        assert told == []
        await asyncio.sleep(0)
        assert told == [0, 1, 2]
        await asyncio.sleep(0)
        assert told == [0, 1, 2]

    run(test)


def test_a_watcher_that_raises_does_not_hold_up_the_others() -> None:
    async def test() -> None:
        faults: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
        telling, told = Telling(), []

        def broken(_ended: FrameTicket) -> None:
            raise ValueError("broken")

        for seq in range(3):
            each = ticket(seq)
            each.watch(broken if seq == 1 else lambda ended: told.append(ended.seq))
            each.end(result(seq))
            telling.tell_soon(each)
        for _ in range(3):
            await asyncio.sleep(0)
        assert told == [0, 2]
        assert [str(fault) for fault in faults] == ["broken"]

    run(test)


def test_one_who_watches_too_late_is_told_all_the_same_and_not_at_once() -> None:
    async def test() -> None:
        told: list[FrameTicket] = []
        each = ticket()
        assert not each.end(result())  # nobody is to be told
        each.watch(told.append)
        assert told == []
        await asyncio.sleep(0)
        assert told == [each]

    run(test)


@pytest.mark.parametrize("early", [True, False])
def test_a_future_is_made_for_those_who_ask(early: bool) -> None:
    async def test() -> None:
        each, ended = ticket(), result()
        future = each.result if early else None
        each.end(ended)
        assert each.result is (future or each.result)
        assert await each.result is ended

    run(test)


def test_cancelling_the_future_says_that_nobody_waits_unless_the_frame_has_ended() -> None:
    async def test() -> None:
        gone: list[FrameTicket] = []
        waiting, ended = ticket(0, gone), ticket(1, gone)
        assert ended.result.cancel()
        ended.end(result(1))  # before the loop has told of the cancellation
        waiting.result.cancel()
        await asyncio.sleep(0)
        assert gone == [waiting]
        assert not waiting.end(result())  # and nothing is said to a future that was cancelled

    run(test)


def test_the_engines_failure_is_raised() -> None:
    async def test() -> None:
        awaited, looked_at = ticket(), ticket()
        future = awaited.result
        for each in (awaited, looked_at):
            each.end(EngineFailed("broken"))
        with pytest.raises(EngineFailed):
            await future
        with pytest.raises(EngineFailed):
            results_of([looked_at])

    run(test)


def test_all_have_ended() -> None:
    async def test() -> None:
        telling, tickets = Telling(), [ticket(seq) for seq in range(3)]
        tickets[1].end(result(1))
        waiting = asyncio.create_task(all_ended(tickets))
        for each in (tickets[2], tickets[0]):
            await asyncio.sleep(0)
            assert not waiting.done()
            if each.end(result(each.seq)):
                telling.tell_soon(each)
        await waiting
        assert [each.seq for each in results_of(tickets)] == [0, 1, 2]
        with pytest.raises(RuntimeError):
            results_of([ticket()])

    run(test)


def test_one_who_does_not_wait_to_the_end_leaves_the_frames_alone() -> None:
    async def test() -> None:
        telling, each = Telling(), ticket()
        waiting = asyncio.create_task(all_ended([each]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if each.end(result()):
            telling.tell_soon(each)
        await asyncio.sleep(0)
        assert (await each.result).seq == 0

    run(test)
