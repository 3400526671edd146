"""The gateway as an ingest process knows it, against a scheduler that is played here message by message."""

import asyncio
import pickle
from collections import Counter

import pytest

from gateway.core.types import Outcome, StreamSpec
from gateway.errors import ArenaFull, EngineFailed, StreamClosed, StreamFinished, StreamNotFound
from gateway.ingest import wire
from gateway.ingest.remote import RemoteGateway
from gateway.ingest.staging import Staging
from gateway.runtime.results import FrameResult

PAGE = 4096
SPEC = StreamSpec("echo", "1", (4, 4, 4), period_ns=10**8, deadline_ns=10**8)
FRAME = bytes(range(64))


class Scheduler:
    """The other end of the socket: keeps what it is told."""

    def __init__(self):
        self.messages = wire.Messages()
        self.heard = []

    def write(self, data):
        self.heard += [bytes(message) for message in self.messages.feed(data)]

    def is_closing(self):
        return False

    def of(self, kind):
        return [message for message in self.heard if message[0] == kind]


@pytest.fixture
def parts():
    staging, refused = Staging.create(PAGE), Counter()
    gateway, scheduler = RemoteGateway(staging, refused), Scheduler()
    gateway.connect(scheduler)
    yield gateway, scheduler, staging, refused
    staging.close()


def facts(**fields):
    return pickle.dumps(
        {"spec": SPEC, "frame_bytes": 64, "state": "active", "close_reason": "", "accepted": 0, **fields}
    )


async def known(gateway, scheduler, **fields):
    """Let the gateway know a stream."""
    asking = asyncio.ensure_future(gateway.learn("s", anew=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    _, number = wire.QUESTION.unpack_from(scheduler.of(wire.ASK)[-1])
    answer = b"" if fields.get("state") == "none" else facts(**fields)
    gateway.on_stream(memoryview(wire.QUESTION.pack(wire.STREAM, number) + answer))
    await asking


def descriptor(scheduler, index=-1):
    return wire.DESCRIPTOR.unpack_from(scheduler.of(wire.SUBMIT)[index])


def test_a_frame_is_put_down_described_taken_and_ended(parts):
    gateway, scheduler, staging, _ = parts

    async def run():
        await known(gateway, scheduler)
        [ticket] = gateway.submit("s", [FRAME[:10], memoryview(FRAME)[10:]], 2.5)
        assert scheduler.of(wire.SUBMIT) == [], "sent with all else of this turn"
        await asyncio.sleep(0)
        _, number, wanted, _, offset, size, labelled, label = descriptor(scheduler)
        assert (wanted, size, labelled, label) == (True, 64, True, 2.5)
        assert bytes(staging.view[offset : offset + size]) == FRAME
        gateway.on_taken(memoryview(wire.ACCEPTED.pack(wire.TAKEN, number, 41, 1)))
        assert (ticket.seq, staging.used_bytes) == (41, 0)
        gateway.cancel(ticket)
        await asyncio.sleep(0)
        assert wire.FRAME.unpack_from(scheduler.of(wire.CANCEL)[0]) == (wire.CANCEL, number, 0)
        ended = FrameResult("", 41, Outcome.MET, "", 1.0, 2.0, 1, 0.0, 1.0, False, (4, 4, 4), None)
        gateway.on_result(memoryview(b"".join(wire.result_parts(number, 0, ended)))[4:])
        assert (await ticket.result).stream_id == "s"
        await asyncio.wait_for(gateway.stop(), 1)  # nothing is left to wait for

    asyncio.run(run())


def test_what_is_refused_ends_all_its_frames_with_the_schedulers_words(parts):
    gateway, scheduler, staging, refused = parts

    async def run():
        await known(gateway, scheduler)
        tickets = gateway.submit("s", FRAME * 3)
        alone = asyncio.ensure_future(gateway.hand_over("s", FRAME, None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for index, error in ((0, StreamFinished("All came.", frames=3)), (1, EngineFailed())):
            number = descriptor(scheduler, index)[1]
            gateway.on_refused(memoryview(wire.QUESTION.pack(wire.REFUSED, number) + pickle.dumps(error)))
        for ticket in tickets:
            assert ticket.refused
            error = ticket.result.exception()
            assert (type(error), error.detail, error.members) == (StreamFinished, "All came.", {"frames": 3})
        with pytest.raises(EngineFailed):
            await alone
        assert staging.used_bytes == 0
        assert not refused, "the scheduler counts what it refuses"

    asyncio.run(run())


def test_without_room_a_frame_is_refused_here_until_the_scheduler_has_taken_another(parts):
    gateway, scheduler, _, refused = parts

    async def run():
        await known(gateway, scheduler)
        fitting = PAGE // 64
        for _ in range(fitting):
            gateway.submit("s", FRAME)
        with pytest.raises(ArenaFull) as full:
            gateway.submit("s", FRAME * 2)
        assert full.value.retry_after_s == 1
        assert refused == {"arena_full": 2}
        await asyncio.sleep(0)
        gateway.on_taken(memoryview(wire.ACCEPTED.pack(wire.TAKEN, descriptor(scheduler, 0)[1], 0, 1)))
        gateway.submit("s", FRAME)
        with pytest.raises(ArenaFull):
            gateway.submit("s", FRAME)

    asyncio.run(run())


def test_streams_are_asked_for_once_and_forgotten_when_they_are_over(parts):
    gateway, scheduler, _, _ = parts

    async def run():
        with pytest.raises(StreamNotFound):
            gateway.stream("s")
        await known(gateway, scheduler)
        record = gateway.stream("s")
        await gateway.learn("s")
        assert len(scheduler.of(wire.ASK)) == 1
        assert gateway.promised_body_bytes == 64
        await known(gateway, scheduler, state="closing", close_reason="idle", accepted=7)
        assert gateway.stream("s") is record, "whoever serves it sees it change"
        with pytest.raises(StreamClosed, match="no frame came for long"):
            record.check_frames(64, 1)
        gateway.on_over(memoryview(b"\x12" + b'{"stream_id":"s","state":"closed","close_reason":"idle"}'))
        assert record.over.is_set()
        assert (gateway.promised_body_bytes, gateway.stream("s").state) == (0, "closed")
        await known(gateway, scheduler, state="none")
        with pytest.raises(StreamNotFound):
            gateway.stream("s")

    asyncio.run(run())
