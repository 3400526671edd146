"""Decides on streams: one registration after the other, each tested in the planner's process.

::

    register ── its turn ──> record the state ──> plan in the process ──> RegisterStream(plan) ──> Admitted, Rejected
                                   ^                                               │
                                   └────── PlanStale: something was committed ─────┘

What the engine commits while a plan is made (another stream's end, a window that shrinks) makes the plan void, and so
does a joint that it would have moved and that has come; the engine says so and nothing has changed. Registrations do
not make each other's plans void, for each has its turn. Checks change nothing and need none. Windows that may grow when
a stream has ended go the same way as registrations.

The tighter a deadline, the nearer the joint: on a busy machine a plan can be late every time. A test that is known to
be short is therefore made on the loop, after `_TRIES_ELSEWHERE` plans that were void. There nothing comes between. And
if it is a long best-effort job that made a plan void, the next one is made when that job has ended; the engine lets no
other one start meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from gateway.clock import Clock
from gateway.core.actions import Action, Admitted, PlanStale, Rejected
from gateway.core.engine import Engine
from gateway.core.events import Event, RegisterStream, WidenWindows
from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.types import NS_PER_S, StreamSpec
from gateway.core.verdict import CounterOffer, Verdict
from gateway.errors import AdmissionBusy, EngineFailed
from gateway.runtime.planner import Planner

log = logging.getLogger(__name__)

#: Then the caller is told to come back.
_TRIES = 4
#: So many plans of the other process may be void before a short test is made here.
_TRIES_ELSEWHERE = 2
#: What a short test costs at most: frames would wait for it. A test of 40 streams under the sporadic test takes 2 ms.
_SHORT_S = 0.005
_RETRY_AFTER_S = 1.0
#: A registration waits no longer for a job to end: others wait for their turn.
_PATIENCE_NS = NS_PER_S // 2
#: A plan of 10^5 frames takes 0.1 s. One that takes this long will not come.
_PLAN_LIMIT_S = 5.0
#: A refusal is worth little to a caller who has given up waiting for it.
_OFFERS_LIMIT_S = 2.0
#: Checks that may wait: they are answered one after another, each in up to 0.1 s.
_MOST_CHECKS = 64

_NO_ANSWER = "no answer from the planner's process: %s is tested on the event loop"

Post = Callable[[Event], list[Action]]


class Registrar:
    """See the module's docstring.

    Args:
        engine: For reading.
        clock: The engine's.
        post: Where events go.
        most_waiting: Registrations that may wait for their turn.
        plans, offers: The processes; others in tests.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        post: Post,
        *,
        most_waiting: int,
        plans: Planner | None = None,
        offers: Planner | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._post = post
        self._most_waiting = most_waiting
        self._plans = plans or Planner("plans", limit_s=_PLAN_LIMIT_S)
        self._offers = offers or Planner("counter-offers", limit_s=_OFFERS_LIMIT_S, tries=1, rest_s=0.0)
        self._turn = asyncio.Lock()
        self._waiting = 0
        # One at a time, so that a registration waits for one check at most.
        self._check_turn = asyncio.Lock()
        self._checking = 0
        self._widening: asyncio.Task[None] | None = None
        self._may_widen = False

    def start(self) -> None:
        """Start the processes."""
        self._plans.start()
        self._offers.start()

    async def close(self) -> None:
        """End the processes; whoever waits for one goes on without it."""
        if self._widening is not None:
            self._widening.cancel()
            await asyncio.wait((self._widening,))
        await self._plans.close()
        await self._offers.close()

    async def register(self, stream_id: str, spec: StreamSpec, permit: Callable[[], object]) -> Admitted | Rejected:
        """Have the engine decide. Cancelled while it waits, it leaves nothing behind.

        Args:
            stream_id: A new one.
            spec: With its version.
            permit: Called when everything is ready to be committed; raises if it may not be any more.

        Raises:
            AdmissionBusy: Too many wait, or the streams change faster than a plan can be made.
            EngineFailed: The engine does not answer.
        """
        if self._waiting >= self._most_waiting:
            raise AdmissionBusy(f"{self._waiting} registrations wait for their turn.", retry_after_s=_RETRY_AFTER_S)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._decide(stream_id, spec, permit)
        finally:
            self._waiting -= 1

    async def _decide(self, stream_id: str, spec: StreamSpec, permit: Callable[[], object]) -> Admitted | Rejected:
        cost_s = math.inf
        for tried in range(_TRIES):
            permit()
            plan = None
            if tried < _TRIES_ELSEWHERE or cost_s > _SHORT_S:
                plan, cost_s = await self._planned(spec, stream_id, permit)
            for action in self._post(RegisterStream(stream_id, spec, plan)):
                if isinstance(action, Admitted | Rejected):
                    return action
                if isinstance(action, PlanStale):
                    await self._let_pass(action)
                    break
            else:
                raise EngineFailed("The engine did not answer a registration.")
        raise AdmissionBusy(
            f"The streams changed {_TRIES} times while this one was tested.", retry_after_s=_RETRY_AFTER_S
        )

    async def check(self, spec: StreamSpec, permit: Callable[[], object]) -> Verdict:
        """Return the verdict that `register` would come to now; nothing changes. Raises as `register`."""
        if self._checking >= _MOST_CHECKS:
            raise AdmissionBusy(f"{self._checking} checks wait for their turn.", retry_after_s=_RETRY_AFTER_S)
        self._checking += 1
        try:
            async with self._check_turn:
                verdict = await self._plans.check(self._record, spec, "")
                permit()
                if verdict is not None:
                    return verdict
                log.warning(_NO_ANSWER, spec.name or spec.model)
                return self._engine.check(spec, self._clock.now_ns())
        finally:
            self._checking -= 1

    async def search_offers(self, spec: StreamSpec) -> tuple[CounterOffer, ...] | None:
        """Return what would be admitted instead of `spec`; None if the search takes long, or another one runs."""
        if self._offers.busy:
            return None
        return await self._offers.offers(self._record, spec)

    def widen(self) -> None:
        """Windows could grow: see to it that they do, if a plan with the larger ones holds."""
        self._may_widen = True
        if self._widening is None or self._widening.done():
            self._widening = asyncio.get_running_loop().create_task(self._widen(), name="widen windows")

    async def _widen(self) -> None:
        while self._may_widen:
            self._may_widen = False
            async with self._turn:
                await self._widen_in_turn()

    async def _widen_in_turn(self) -> None:
        for tried in range(_TRIES):
            planned = await self._plans.widen(self._record) if self._engine.can_widen() else None
            if planned is None or not planned.plan.verdict.admitted:
                return  # narrow windows keep every promise too; the next stream that ends is a new chance
            here = tried >= _TRIES_ELSEWHERE and planned.cpu_s <= _SHORT_S
            event = WidenWindows(None if here else planned.plan)
            stale = next((action for action in self._post(event) if isinstance(action, PlanStale)), None)
            if stale is None:
                return
            await self._let_pass(stale)

    async def _planned(self, spec: StreamSpec, stream_id: str, permit: Callable[[], object]) -> tuple[Plan, float]:
        """Return the plan with `spec`, and its cost in processor seconds; `permit` has been given at this instant."""
        planned = await self._plans.plan(self._record, spec, stream_id)
        permit()
        if planned is not None:
            return planned.plan, planned.cpu_s
        log.warning(_NO_ANSWER, spec.name or spec.model)
        return self._engine.plan(spec, self._clock.now_ns(), stream_id), math.inf

    async def _let_pass(self, stale: PlanStale) -> None:
        """Wait for the job that was in the way of a plan."""
        if stale.after_ns is None:
            return
        ended = asyncio.get_running_loop().create_future()
        t_ns = min(stale.after_ns, self._clock.now_ns() + _PATIENCE_NS)
        timer = self._clock.call_at(t_ns, lambda: None if ended.done() else ended.set_result(None))
        try:
            await ended
        finally:
            timer.cancel()

    def _record(self) -> AdmissionState:
        return self._engine.admission_state(self._clock.now_ns())
