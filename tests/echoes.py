"""Frames that are filled with their own number, sent in every order and size: each must get itself back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from gateway.core.types import NS_PER_MS, Outcome, ServiceClass
from gateway.errors import ArenaFull, BestEffortFull, FrameSurplus
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import StreamRecord
from gateway.runtime.tickets import FrameTicket
from tests.runtime_support import make_spec

#: Frames of one body, as reported.
SIZES = (1, 8, 3, 16, 2, 16, 1)
LARGEST = max(SIZES)
#: So many frames may wait for an answer: enough for full batches of each shape.
_IN_FLIGHT = 150


@dataclass
class Exchange:
    """How an exchange went: outcomes, sizes of the jobs that were answered, bodies that were refused."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    batches: Counter[int] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


async def exchange(
    gateway: Gateway, shapes: tuple[tuple[int, ...], ...], total: int, seed: int, *, model: str = "echo"
) -> Exchange:
    """Send `total` frames of several streams of each shape, and hold each answer against its frame.

    Bodies of random size come at random instants from random streams; one frame in ten is given up.
    """
    rng, done = random.Random(seed), Exchange()
    records = [
        await _stream(gateway, model, shape, kind) for shape in shapes for kind in (*ServiceClass, *ServiceClass)
    ]
    waiting: set[asyncio.Task[None]] = set()
    sent = 0
    while sent < total:
        record = rng.choice(records)
        numbers = range(sent, sent + rng.choice(SIZES))
        body = b"".join(_frame(record, number) for number in numbers)
        try:
            tickets = gateway.submit(record.stream_id, body)
        except (FrameSurplus, BestEffortFull, ArenaFull) as error:
            done.refused[error.code] += 1
            await asyncio.sleep(0.01)
            continue
        sent += len(numbers)
        for number, ticket in zip(numbers, tickets, strict=True):
            if rng.random() < 0.1:
                asyncio.get_running_loop().call_later(rng.choice([0, 0.001, 0.01]), ticket.result.cancel)
            waiting.add(asyncio.create_task(_check(record, number, ticket, done)))
        await asyncio.sleep(rng.choice([0, 0, 0.001, 0.005]))
        while len(waiting) > _IN_FLIGHT:
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
    await asyncio.gather(*waiting)
    for record in records:
        assert record.accepted == record.outcomes.total() + record.in_flight
    return done


async def _stream(gateway: Gateway, model: str, shape: tuple[int, ...], service_class: ServiceClass) -> StreamRecord:
    spec = make_spec(200, 20_000, model=model, shape=shape, service_class=service_class, burst=2 * LARGEST)
    registration = await gateway.register(spec)
    assert registration.stream is not None, registration.verdict
    return registration.stream


def _frame(record: StreamRecord, number: int) -> bytes:
    return np.full(record.frame_bytes // 4, number, np.uint32).tobytes()


async def _check(record: StreamRecord, number: int, ticket: FrameTicket, done: Exchange) -> None:
    try:
        result = await ticket.result
    except asyncio.CancelledError:
        done.outcomes[Outcome.CANCELLED] += 1
        return
    done.outcomes[result.outcome] += 1
    assert result.outcome in {Outcome.MET, Outcome.MISSED}, (result.outcome, result.reason)
    assert result.latency_ms < record.spec.deadline_ns / NS_PER_MS or result.outcome is Outcome.MISSED
    done.batches[result.batch] += 1
    assert result.outputs is not None
    [echo] = [array for array in result.outputs.values() if array.dtype == np.uint8]
    assert echo.shape == record.spec.shape
    assert echo.tobytes() == _frame(record, number), "a frame got another's answer"
