"""Starting a Triton again that ended: how often and when. Time is counted, not waited for."""

import asyncio
import logging

import pytest

from gateway.api import keeper
from gateway.api.keeper import keep_running
from gateway.errors import EmbeddedTritonError


class Triton:
    """Ends after `lives[n]` polls of its nth life; a life of 0 is a start that fails."""

    def __init__(self, *lives):
        self.lives = list(lives)
        self.left = self.lives.pop(0)
        self.starts = 0

    @property
    def running(self):
        self.left -= 1
        return self.left > 0

    def restart(self):
        self.starts += 1
        self.left = self.lives.pop(0)
        if self.left == 0:
            raise EmbeddedTritonError("a port is taken")


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made, without those of polling."""
    made = []
    clock = [0.0]

    async def sleep(seconds, real=asyncio.sleep):
        clock[0] += seconds
        if seconds != keeper.POLL_S:
            made.append(seconds)
        await real(0)

    monkeypatch.setattr(keeper.asyncio, "sleep", sleep)
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda self: clock[0])
    return made


def run(triton):
    async def test():
        task = asyncio.ensure_future(keep_running(triton))
        turn = asyncio.get_running_loop().create_future
        while triton.lives and not task.done():
            asyncio.get_running_loop().call_soon((future := turn()).set_result, None)
            await future
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(test())


def errors(caplog):
    return [record for record in caplog.records if record.levelno == logging.ERROR]


def test_it_is_started_again_at_once_and_one_error_is_logged(pauses, caplog):
    triton = Triton(5, 1_000_000)
    run(triton)
    assert (triton.starts, pauses) == (1, [0.0])
    assert len(errors(caplog)) == 1


def test_starts_that_fail_are_repeated_with_growing_pauses(pauses, caplog):
    triton = Triton(5, *[0] * 8, 1_000_000)
    run(triton)
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert len(errors(caplog)) == 1
    assert "a port is taken" in caplog.text


def test_one_that_dies_again_and_again_is_not_started_without_pause(pauses, caplog):
    run(Triton(5, 4, 4, 4, 1_000_000))
    assert pauses == [0.0, 0.5, 1.0, 2.0]
    assert len(errors(caplog)) == 4


def test_one_that_ran_for_a_while_begins_anew(pauses):
    polls = round(keeper.STEADY_S / keeper.POLL_S) + 10
    run(Triton(5, 4, polls, 1_000_000))
    assert pauses == [0.0, 0.5, 0.0]
