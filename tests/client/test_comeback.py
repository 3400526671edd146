"""Registering again after a restart of the gateway; on a clock that only moves when somebody waits."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.responses import Response
from stub_gateway import StubGateway, problem

from gateway.client.client import FramegateClient
from gateway.client.comeback import LONGEST_PAUSE_S, register_again
from gateway.client.contact import Contact
from gateway.client.problems import NotSchedulable, ProblemError

S = 1_000_000_000


class Restarted(StubGateway):
    """Knows no earlier stream; registrations are answered with `answers` first."""

    def __init__(self, *answers, ready=True):
        super().__init__()
        self.answers, self.is_ready = list(answers), ready

    async def register(self, request):
        answer = self.answers.pop(0) if self.answers else None
        if answer == "away":
            raise httpx.ConnectError("connection refused")
        return answer or await super().register(request)

    async def ready(self, _request):
        return Response(status_code=200 if self.is_ready else 503)


def come_back(stub, *, until_ns=None, closed_by=None, close_reason=""):
    """Return the new stream or None, the pauses, and what was said."""
    pauses, said = [], []

    async def sleep(seconds):
        pauses.append(seconds)

    async def main():
        async with FramegateClient("http://stub", transport=httpx.ASGITransport(stub.app())) as client:

            async def register():
                return await client.register("m", (4, 6, 3), fps=10, deadline_ms=200)

            old = await FramegateClient(
                "http://old", transport=httpx.ASGITransport(StubGateway(prefix="old").app())
            ).register("m", (4, 6, 3), fps=10, deadline_ms=200)
            if closed_by is not None:
                stub.streams[old.stream_id] = {**old.raw, "state": closed_by, "close_reason": close_reason}
            now_ns = lambda: round(sum(pauses) * S)  # noqa: E731
            return await register_again(
                client, old, register, until_ns=until_ns, say=said.append, now_ns=now_ns, sleep=sleep
            )

    return asyncio.run(main()), pauses, said


def test_a_gateway_that_is_back_is_asked_at_once():
    stream, pauses, said = come_back(Restarted())
    assert (stream.stream_id, pauses, said) == ("s0", [], [])


def test_pauses_grow_to_a_bound_and_each_reason_is_said_once():
    loading = problem(503, "triton_unavailable", "not up yet")
    stream, pauses, said = come_back(Restarted(*["away"] * 4, *[loading] * 4))
    assert stream.stream_id == "s0"
    assert pauses == [0.25, 0.5, 1, 2, 4, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert len(said) == 2
    assert "connection refused" in said[0]
    assert "not up yet" in said[1]


def test_it_gives_up_when_the_cameras_time_is_over():
    stream, pauses, _ = come_back(Restarted(*["away"] * 99), until_ns=3 * S)
    assert stream is None
    assert sum(pauses) < 3


def test_a_refusal_that_will_not_pass_is_told():
    stub = Restarted()
    stub.refuse = True
    with pytest.raises(NotSchedulable):
        come_back(stub)
    with pytest.raises(ProblemError, match="unknown_model"):
        come_back(Restarted(problem(404, "unknown_model", "there is no such model")))


def test_a_stream_closed_at_a_gateway_that_runs_on_stays_closed():
    assert come_back(Restarted(), closed_by="closed")[0] is None


def test_a_camera_that_was_taken_for_gone_registers_again():
    stream, pauses, _ = come_back(Restarted(), closed_by="closed", close_reason="idle")
    assert stream is not None
    assert pauses == []


def test_a_gateway_that_is_stopping_is_waited_for():
    stream, pauses, said = come_back(Restarted(ready=False), closed_by="closing", until_ns=2 * S)
    assert stream is None
    assert len(pauses) > 1
    assert said == ["not registered again yet: the gateway is stopping"]


def test_an_outage_lasts_until_a_frame_sent_later_is_answered():
    contact = Contact(wall_s=lambda: 0.0)
    contact.answered(10)
    contact.failed(5, "an old one")
    assert (contact.outage, contact.last_error) == (None, "an old one")
    contact.failed(20, "refused")
    contact.failed(30, "refused again")
    assert contact.outage.error == "refused"
    assert str(contact.outage).startswith("gateway unreachable since ")
    contact.answered(40, "429 surplus")
    assert (contact.outage, contact.last_error, contact.last_refusal) == (None, "refused again", "429 surplus")
