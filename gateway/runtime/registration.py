"""Registrations: what is checked before the engine is asked, its answer, and what is kept of it."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial

from gateway.clock import Clock
from gateway.core.actions import Admitted
from gateway.core.types import NS_PER_S, StreamSpec
from gateway.errors import TooManyStreams
from gateway.runtime.condition import RETRY_AFTER_S, Condition
from gateway.runtime.holds import Holds
from gateway.runtime.models import frame_bytes
from gateway.runtime.results import Registration


class Registrations:
    """See the module's docstring.

    Args:
        condition: Of the gateway.
        clock: Time.
        holds: Have models in memory that are needed there.
        max_streams: How many may be registered.
    """

    def __init__(self, condition: Condition, clock: Clock, holds: Holds, max_streams: int) -> None:
        self._condition = condition
        self._clock = clock
        self._holds = holds
        self._max_streams = max_streams

    async def register(self, spec: StreamSpec) -> Registration:
        """See `Gateway.register`."""
        self._check_known(spec)
        async with self._holds.for_stream(spec):
            return await self._decided(spec)

    async def _decided(self, spec: StreamSpec) -> Registration:
        began_ns = self._clock.now_ns()
        follows = not spec.version
        spec = self._checked(spec)
        stream_id = secrets.token_hex(8)
        parts = self._condition.parts
        answer = await parts.registrar.register(stream_id, spec, partial(self.permit, spec))
        # No await from the engine's decision to here: nothing can come between it and the record.
        decided_ns = self._clock.now_ns()
        test_s = (decided_ns - began_ns) / NS_PER_S
        if isinstance(answer, Admitted):
            size = frame_bytes(spec.shape, spec.dtype)
            record = parts.delivery.add(answer, spec, size, decided_ns, follows=follows)
            return Registration(spec, answer.verdict, stream_id, test_s, record)
        return await self._with_offers(Registration(spec, answer.verdict, stream_id, test_s))

    async def check(self, spec: StreamSpec) -> Registration:
        """See `Gateway.check`."""
        self._condition.require_triton()
        await self._holds.for_check(spec)
        began_ns = self._clock.now_ns()
        spec = self._checked(spec)
        verdict = await self._condition.parts.registrar.check(spec, partial(self._checked, spec))
        test_s = (self._clock.now_ns() - began_ns) / NS_PER_S
        return await self._with_offers(Registration(spec, verdict, test_s=test_s))

    def permit(self, spec: StreamSpec) -> None:
        """Raise if a stream could not be taken in at this instant.

        Those of calls with a deadline are bounded as well, and apart: neither takes the other's places.
        """
        self._checked(spec)
        records = self._condition.parts.delivery.streams.values()
        streams = sum(r.spec.internal == spec.internal and r.spec.service_class == spec.service_class for r in records)
        if streams >= self._max_streams:
            what = "calls with a deadline are under way" if spec.internal else "streams are registered"
            raise TooManyStreams(
                f"{streams} {what}, as many as may be (FRAMEGATE_LIMITS__MAX_STREAMS).", retry_after_s=RETRY_AFTER_S
            )

    def _check_known(self, spec: StreamSpec) -> None:
        """Raise what can be raised without having the model."""
        self._condition.require_triton()
        if self._condition.parts.catalogue.knows(spec.model) or self._condition.parts.expects(spec.model):
            self.permit(spec)

    def _checked(self, spec: StreamSpec) -> StreamSpec:
        """Return `spec` with its version filled in, once it is sure that its frames could be carried."""
        self._condition.require_triton()
        return self._condition.parts.fitted(spec)

    async def _with_offers(self, answered: Registration) -> Registration:
        if not answered.rejected:
            return answered
        offers = await self._condition.parts.registrar.search_offers(answered.spec)
        return answered if offers is None else replace(answered, offers=offers, searched=True)
