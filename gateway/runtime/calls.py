"""Inference calls that belong to no camera: tensors in, tensors out, each by its own deadline.

::

    one input, of fixed size and profiled ──┬─ no deadline ──> frames of one hidden best-effort stream per category
                                            └─ deadline_ns ──> a real-time stream of its own, admitted or refused
    anything else ────────────────────────────────────────────> opaque (`gateway.runtime.opaque`), best effort

Rows of a call are ordinary frames, so calls share batches with each other. Hidden streams are not listed and are not
kept after their end, but their frames are in the books of their model.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from gateway.core.actions import Admitted
from gateway.core.profile import Profile
from gateway.core.types import MAX_BURST, MIN_INTERVAL_NS, NS_PER_MS, Category, ServiceClass, StreamSpec
from gateway.errors import BodyTooLarge, FramegateError, NotProfiled
from gateway.runtime.call import Answer, Call, CallRefused
from gateway.runtime.call_answers import check_answered, failure, join
from gateway.runtime.call_tensors import check_inputs, wanted_outputs
from gateway.runtime.hidden import HiddenStreams
from gateway.runtime.holds import Holds
from gateway.runtime.models import DTYPE_BYTES, frame_bytes
from gateway.runtime.parts import Parts
from gateway.runtime.results import FrameResult, Registration, StreamRecord
from gateway.runtime.tickets import FrameTicket, all_ended, results_of
from gateway.settings import Settings
from gateway.triton.types import ModelMetadata, RawCall, Tensor

#: Of the caller's own words, in an answer.
_SHOWN, _SHOWN_CHARS = 5, 80


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call that has been looked at and may be sent. `joined` makes its answer, once its frames were answered."""

    record: StreamRecord
    data: bytes | memoryview
    joined: Callable[[Sequence[FrameResult]], tuple[Tensor, ...]]


class Calls:
    """See the module's docstring.

    Args:
        parts: Of the running gateway.
        profile: Execution times.
        settings: Of the gateway.
        hidden: The streams that calls become.
        holds: Have models in memory that are needed there.
        submit: `Gateway.submit`: stream, bytes, relative deadline. It counts what it refuses itself.
        permit: Raises if a stream of this spec could not be taken in at this instant.
        refused: Calls that were not taken in are counted here, by reason.
        may_block_ns: How long a best-effort job may be now; None: as long as it likes.
    """

    def __init__(
        self,
        parts: Parts,
        profile: Profile,
        settings: Settings,
        *,
        hidden: HiddenStreams,
        holds: Holds,
        submit: Callable[[str, bytes | memoryview, int | None], list[FrameTicket]],
        permit: Callable[[StreamSpec], object],
        refused: Counter[str],
        may_block_ns: Callable[[], int | None],
    ) -> None:
        self._parts = parts
        self._profile = profile
        self._hidden = hidden
        self._holds = holds
        self._submit = submit
        self._permit = permit
        self._refused = refused
        self._may_block_ns = may_block_ns
        self._settings = settings
        self._unprofiled_ns = round(settings.best_effort.unprofiled_ms * NS_PER_MS)
        self._jitter_ns = round(settings.scheduling.default_jitter_ms * NS_PER_MS)

    async def infer(self, call: Call) -> Answer:
        """Run a call. Cancelled, its rows leave the queue.

        Raises:
            UnknownModel, ModelNotLoaded, NoRoomForModel, ModelLoadFailed, BadInference, BodyTooLarge: It cannot be run.
            CallRefused, NotProfiled: It cannot be run in time, or not beside what is promised.
            ArenaFull, BestEffortFull, FrameExpired, FrameFailed, FrameCancelled: It was not answered.
        """
        with ExitStack() as stack:
            try:
                model = await self._holds.metadata(call.model, call.version)
                check_inputs(model, call.inputs)
                wanted = wanted_outputs(model, call.outputs)
                category = self._category(model, call)
                if category is None:
                    ready = self._opaque(model, call, stack)
                else:
                    ready = await self._frames(model, category, call, wanted)
            except (FramegateError, CallRefused) as error:
                self._refused[error.code] += 1
                raise
            try:
                tickets = self._submit(ready.record.stream_id, ready.data, call.timeout_ns)
            except FramegateError:
                if call.deadline_ns is not None:
                    self._hidden.close(ready.record)
                raise
            call.inputs, joined = (), ready.joined
            del ready
            results = await _ended(tickets)
            return Answer(results[-1].version, joined(results), results)

    # ------------------------------------------------------------ calls whose rows are frames

    def _category(self, model: ModelMetadata, call: Call) -> Category | None:
        """Return the category of the call's rows; None: they cannot be frames."""
        tensor = call.inputs[0]
        if len(call.inputs) != 1 or len(model.inputs) != 1 or call.parameters or tensor.datatype not in DTYPE_BYTES:
            return None
        shape = tensor.shape[1:] if model.max_batch_size else tensor.shape
        if not shape or 0 in tensor.shape:
            return None
        category = Category(model.name, model.version, shape, tensor.datatype, ServiceClass.BEST_EFFORT)
        most = max(1, model.max_batch_size)
        return category if self._profile.has(category) and self._profile.max_batch(category) <= most else None

    async def _frames(
        self, model: ModelMetadata, category: Category, call: Call, wanted: Sequence[tuple[str, str]]
    ) -> _Ready:
        rows = call.inputs[0].shape[0] if model.max_batch_size else 1
        self._check_fits(category, rows)
        if call.deadline_ns is None:
            record = self._hidden.best_effort(category, follows=not call.version)
        else:
            record = await self._admitted(category, rows, call.deadline_ns, follows=not call.version)

        def joined(results: Sequence[FrameResult]) -> tuple[Tensor, ...]:
            check_answered(results)
            batched = model.max_batch_size > 0
            return tuple(join(name, datatype, results, batched=batched) for name, datatype in wanted)

        return _Ready(record, call.inputs[0].data, joined)

    def _check_fits(self, category: Category, rows: int) -> None:
        """Raise `BodyTooLarge` when the rows would not fit even into an empty arena."""
        batch, size = self._profile.max_batch(category), self._parts.arena.region.size
        needed = -(-rows // batch) * batch * frame_bytes(category.shape, category.dtype)
        most = self._settings.limits.max_frames_per_post
        if needed > size or rows > most:
            raise BodyTooLarge(
                f"A call may have up to {most} rows here, and no more than fit, in batches of {batch}, into the frame "
                f"arena of {size} bytes; this one has {rows}.",
                limit_bytes=size,
            )

    # ------------------------------------------------------------ real time

    async def _admitted(self, category: Category, rows: int, deadline_ns: int, *, follows: bool) -> StreamRecord:
        """Return the stream of a call with a deadline: its rows are all of its frames."""
        spec = StreamSpec(
            model=category.model,
            version=category.version,
            shape=category.shape,
            dtype=category.dtype,
            period_ns=max(deadline_ns, MIN_INTERVAL_NS),
            deadline_ns=deadline_ns,
            frames=rows,
            burst=min(rows, MAX_BURST),
            jitter_ns=min(self._jitter_ns, deadline_ns // 4),
            name="/v2",
            internal=True,
        )
        stream_id = secrets.token_hex(8)
        async with self._holds.resident(spec.model):
            answer = await self._parts.registrar.register(stream_id, spec, partial(self._permit, spec))
            if not isinstance(answer, Admitted):
                raise CallRefused(Registration(spec, answer.verdict, stream_id))
            return self._hidden.keep(answer, spec, follows=follows)

    # ------------------------------------------------------------ opaque calls

    def _opaque(self, model: ModelMetadata, call: Call, stack: ExitStack) -> _Ready:
        """Keep the call until `stack` is left."""
        self._check_opaque(model, call)
        record = self._hidden.opaque(model.name, model.version)
        opaque = self._parts.inference.opaque
        handle, kept = opaque.put(RawCall(model.name, call.version, call.inputs, call.outputs, call.parameters))
        stack.callback(opaque.discard, handle)

        def joined(results: Sequence[FrameResult]) -> tuple[Tensor, ...]:
            if kept.error is not None:
                raise failure(kept.error)
            check_answered(results)
            return kept.outputs or ()

        return _Ready(record, handle, joined)

    def _check_opaque(self, model: ModelMetadata, call: Call) -> None:
        """Raise when a call that nothing is known of has to be refused now."""
        how = self._how_to_know(model, call)
        if call.deadline_ns is not None:
            raise NotProfiled(f"No deadline can be promised to a call whose execution time is not known. {how}")
        size = sum(len(tensor.data) for tensor in call.inputs)
        limit = self._settings.triton.max_message_bytes
        if size > limit:
            raise BodyTooLarge(f"The inputs have {size} bytes; a message to Triton holds {limit}.", limit_bytes=limit)
        may_block_ns = self._may_block_ns()
        if may_block_ns is not None and self._unprofiled_ns > may_block_ns:
            raise NotProfiled(
                f"The execution time of this call to {model.name!r} is not known. {self._unprofiled_ns / NS_PER_MS:g} "
                "ms are assumed (FRAMEGATE_BEST_EFFORT__UNPROFILED_MS), and work that is promised now can wait for "
                f"{may_block_ns / NS_PER_MS:.1f} ms at most. {how}",
                may_block_ms=may_block_ns / NS_PER_MS,
            )

    def _how_to_know(self, model: ModelMetadata, call: Call) -> str:
        """Return what to change about an opaque call, or about the profile, so that its execution time is known."""
        if call.parameters and self._category(model, replace(call, parameters={})) is not None:
            named = ", ".join(repr(name[:_SHOWN_CHARS]) for name in list(call.parameters)[:_SHOWN])
            return (
                f"The cause is what it says in 'parameters': {named}. The gateway does not know that, so it goes to "
                "the model's backend, which may do anything with it. Without it the shape of the call is profiled."
            )
        return "Measure the model at this shape with `framegate profile`: one input, of a type of fixed size."


async def _ended(tickets: Sequence[FrameTicket]) -> list[FrameResult]:
    """Return all results. Cancelled, it cancels the frames: one that has been sent to Triton runs to its end."""
    try:
        await all_ended(tickets)
    except asyncio.CancelledError:
        for ticket in tickets:
            ticket.result.cancel()
        raise
    return results_of(tickets)
