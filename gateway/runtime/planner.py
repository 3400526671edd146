"""Admission tests in another process, so that no frame waits for them.

A test follows up to 10^5 frames, and a search for counter-offers repeats it a few dozen times. On the event loop that
would hold up frames for as long; in a thread it would share the interpreter with them, which is hardly better. So a
long-lived process does it, on a record of the engine's state, one request at a time.

The gateway has two of them: one for plans and one for counter-offers, so that a search never delays a registration.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, cast

from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import Profile
from gateway.core.types import StreamSpec
from gateway.core.verdict import CounterOffer, Verdict
from gateway.runtime import planner_wire as wire
from gateway.runtime.child import Child, Exchange

log = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-m", "gateway.runtime.planner_process")
#: Nothing is asked for so long after a failure: a caller has waited long enough for it.
_REST_S = 30.0

#: Takes the engine's state at the moment the process is free for it: the later, the longer the answer holds.
Record = Callable[[], AdmissionState]

#: Processor seconds, and what the test returned.
_Answer = tuple[float, object]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what it cost: `cpu_s`, processor time, whoever else uses the machine."""

    plan: Plan
    cpu_s: float


class Planner:
    """One process, asked in turn.

    Args:
        name: For the log.
        limit_s: How long one request may take; then the process is ended.
        tries: How often a request is made, each time of a new process, before it goes without an answer.
        rest_s: How long nothing is asked after that.
        command: The process; another one in tests.
    """

    def __init__(
        self,
        name: str,
        *,
        limit_s: float,
        tries: int = 2,
        rest_s: float = _REST_S,
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        self._name = name
        self._tries = tries
        self._rest_s = rest_s
        self.child = Child(name, command, limit_s)
        self._sent: Profile | None = None
        self._turn = asyncio.Lock()
        self._requests: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._rests_until_s = 0.0

    def start(self) -> None:
        """Start the process now, so that the first request does not wait for its imports."""
        self.child.start()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._turn.locked()

    async def plan(self, record: Record, candidate: StreamSpec, stream_id: str) -> Planned | None:
        """Return ``admission.plan`` of the state that `record` gives; None when the process cannot be had."""
        answer = await self._request("plan", record, candidate, stream_id)
        return None if answer is None else Planned(cast("Plan", answer[1]), answer[0])

    async def check(self, record: Record, candidate: StreamSpec, stream_id: str) -> Verdict | None:
        """Return ``admission.evaluate``, which is a plan's verdict alone; otherwise as `plan`."""
        answer = await self._request("check", record, candidate, stream_id)
        return None if answer is None else cast("Verdict", answer[1])

    async def widen(self, record: Record) -> Planned | None:
        """Return ``admission.widen``; otherwise as `plan`."""
        answer = await self._request("widen", record)
        return None if answer is None else Planned(cast("Plan", answer[1]), answer[0])

    async def offers(self, record: Record, candidate: StreamSpec) -> tuple[CounterOffer, ...] | None:
        """Return ``admission.counter_offers``; otherwise as `plan`."""
        answer = await self._request("offers", record, candidate)
        return None if answer is None else cast("tuple[CounterOffer, ...]", answer[1])

    async def close(self) -> None:
        """End the process and the thread; requests end without an answer. May be called again."""
        if self._closed:
            return
        self._closed = True
        self.child.close()
        if self._requests:
            await asyncio.wait(self._requests)

    async def _request(self, kind: str, record: Record, *arguments: object) -> _Answer | None:
        """Ask. Whoever asks may give up waiting; the process is asked all the same, so that it is never asked twice."""
        request = asyncio.get_running_loop().create_task(self._in_turn(kind, record, arguments))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        return await asyncio.shield(request)

    async def _in_turn(self, kind: str, record: Record, arguments: tuple[object, ...]) -> _Answer | None:
        async with self._turn:
            if time.monotonic() < self._rests_until_s:
                return None
            for _ in range(self._tries):
                if self._closed:
                    return None
                if (answer := await self.child.ask(self._request_of(kind, record(), arguments))) is not None:
                    return answer
            if not self._closed:
                log.warning("the process for %s does not answer; it is left alone for %g s", self._name, self._rest_s)
                self._rests_until_s = time.monotonic() + self._rest_s
            return None

    def _request_of(self, kind: str, state: AdmissionState, arguments: tuple[object, ...]) -> Exchange[_Answer]:
        """Return how a request is sent and answered, in the child's thread."""

        def exchange(stdin: IO[bytes], stdout: IO[bytes], new: bool) -> _Answer:
            profile = None if not new and state.profile is self._sent else state.profile
            wire.write((kind, profile, wire.without_profile(state), arguments), stdin)
            answer: _Answer = wire.read(stdout)
            self._sent = state.profile
            return answer

        return exchange
