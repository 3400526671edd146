"""One batch in Triton: how its frames get there, and what has to come back.

They travel in shared memory when Triton has our region open, else inside the message; outputs likewise, where that is
possible (`gateway.runtime.output_rooms`). A warm-up, which the engine does not know of, takes turns with the jobs
(`gateway.runtime.call_turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np

from gateway.core.types import Category, Job
from gateway.errors import ArenaFull, BodyTooLarge
from gateway.runtime.arena import Arena, Span
from gateway.runtime.call_turns import CallTurns
from gateway.runtime.direct_calls import Call, DirectCalls, Done, uneven
from gateway.runtime.models import Catalogue, check_takes, frame_bytes
from gateway.runtime.opaque import OPAQUE, OpaqueCalls
from gateway.runtime.output_rooms import OutputRooms
from gateway.runtime.resize import scale_in_thread
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import NO_PARAMETERS, BackendError, InferenceCall, InSharedMemory, ModelMetadata, Outputs

#: What a request holds besides the tensor: names, shape, ids.
_MESSAGE_HEAD_BYTES = 4096


class Inference:
    """See the module's docstring.

    Attributes:
        shared: Whether Triton has our region open. Set by the supervisor.
        warmth: What has run since its model was loaded.
        opaque: Calls that are run as they came.
        rooms: For outputs.
        timeout_s: How long a batch may take; whoever waits for one sees to it.
        named: Which frames of a job are of streams that have named their version; the others run on whichever version
            Triton serves.
    """

    def __init__(
        self,
        client: TritonClient,
        arena: Arena,
        catalogue: Catalogue,
        *,
        timeout_s: float,
        max_message_bytes: int,
        opaque: OpaqueCalls,
    ) -> None:
        self.shared = False
        self.warmth = Warmth()
        self.opaque = opaque
        self.rooms = OutputRooms(arena)
        self.timeout_s = timeout_s
        self.named: Callable[[Job], list[bool]] = lambda job: [True] * len(job.frames)
        self._client = client
        self._arena = arena
        self._catalogue = catalogue
        self._max_message_bytes = max_message_bytes
        self._turns = CallTurns()
        self._direct = DirectCalls(client, catalogue, self._turns, self.warmth, self.rooms)

    def check_carries(self, category: Category, frames: int) -> None:
        """Raise when a batch of `frames` is too large to be brought to Triton.

        Raises:
            ArenaTooSmall: It does not fit into the arena.
            BodyTooLarge: Without shared memory, it does not fit into a message.
        """
        size = frame_bytes(category.shape, category.dtype)
        self._arena.check_fits(size, frames)
        if not self.shared and size * frames + _MESSAGE_HEAD_BYTES > self._max_message_bytes:
            raise BodyTooLarge(
                f"A batch of {frames} frames of {category} has {size * frames} bytes; without shared memory a message "
                f"to Triton holds {self._max_message_bytes} (FRAMEGATE_TRITON__MAX_MESSAGE_BYTES).",
                limit_bytes=self._max_message_bytes,
            )

    # ------------------------------------------------------------ jobs

    async def run(self, job: Job, span: Span, parameters: Mapping[str, int]) -> Outputs:
        """Run a job whose frames lie in `span`, scaled if it is to run small.

        Raises:
            BackendError: Triton's, or ours when the reply has not one row per frame.
            UnknownModel, ModelNotLoaded: Its model is not served any more.
            ShapeMismatch, DtypeMismatch: Its model takes other frames than when its stream was registered.
        """
        model = self._catalogue.current(job.category.model, job.category.version)
        check_takes(model, job.category)
        version = job.category.version if any(self.named(job)) else ""
        with ExitStack() as stack:
            data = self._bytes(span) if job.small is None else await self._scaled(job, job.small, span, stack)
            async with self._turns.take():
                return await self._infer(model, job.runs_as, len(job.frames), data, parameters, version=version)

    def begin(self, job: Job, span: Span, done: Done) -> Call | None:
        """Begin a job as `run` does, but without a task; None where that cannot be: then `run` has to do it.

        Args:
            job: Its frames lie in `span`.
            span: In the arena.
            done: Called once, later, with its outputs, or with what went wrong.
        """
        place = self._bytes(span)
        if not isinstance(place, InSharedMemory) or job.small is not None or job.category.dtype == OPAQUE:
            return None
        return self._direct.begin(job, place, named=any(self.named(job)), done=done)

    async def pass_through(self, span: Span, parameters: Mapping[str, int]) -> Outputs:
        """Run the opaque call whose handle lies in `span`; its outputs are left with the call, and not returned.

        Raises:
            BackendError: Triton's, or nobody waits for it any more.
        """
        call = self.opaque.find(bytes(span.view))
        if call is None:
            raise BackendError("whoever called has gone")
        try:
            async with self._turns.take():
                raw = replace(call.raw, parameters={**call.raw.parameters, **parameters})
                version, outputs = await self._client.pass_through(raw)
        except BackendError as error:
            call.error = BackendError(error.message, error.code)  # a traceback would keep the arena's memory in use
            raise
        call.outputs = tuple(outputs)
        return Outputs({}, version, first=True)

    async def _scaled(self, job: Job, small: Category, span: Span, stack: ExitStack) -> InSharedMemory | memoryview:
        """Return the job's frames at the shape of `small`; where they lie is theirs until `stack` is closed."""
        size = len(job.frames) * frame_bytes(small.shape, small.dtype)
        target = memoryview(bytearray(size))
        data: InSharedMemory | memoryview = target
        if self.shared:
            with suppress(ArenaFull):  # then they go in the message
                lent = stack.enter_context(self._arena.lend(size, clear=False))
                data, target = self._bytes(lent), lent.view
        await scale_in_thread(span.view, job.category.shape, target, small.shape, small.dtype)
        return data

    def _bytes(self, span: Span) -> InSharedMemory | memoryview:
        if self.shared and span.shared:
            return InSharedMemory(self._arena.region.name, span.offset, span.size)
        return span.view

    # ------------------------------------------------------------ warm-ups

    async def warm(
        self, category: Category, frames: int, timeout_s: float | None = None, model: ModelMetadata | None = None
    ) -> None:
        """Run one batch of black frames, outside of the engine: first executions of a shape are slow.

        Args:
            category: What to run.
            frames: Size of the batch.
            timeout_s: Limit, from when nothing else runs; None: wait as long as Triton takes.
            model: The category's model, if it is not served yet.

        Raises:
            BackendError: Triton's, or there was no answer in time. The model may still be at it.
            ShapeMismatch, DtypeMismatch: The model does not take such frames.
        """
        size = frames * frame_bytes(category.shape, category.dtype)
        model = model or self._catalogue.current(category.model, category.version)
        check_takes(model, category)
        with ExitStack() as stack:
            try:
                data = self._bytes(stack.enter_context(self._arena.lend(size)))
            except ArenaFull:  # waiting frames hold it all; the model can be warmed all the same
                data = memoryview(bytes(size))
            async with self._turns.take(alone=True):
                try:
                    async with asyncio.timeout(timeout_s):
                        await self._infer(model, category, frames, data, version=model.version)
                except TimeoutError:
                    raise BackendError(f"no answer within {timeout_s:g} s", "DEADLINE_EXCEEDED") from None

    # ------------------------------------------------------------ the call itself

    async def _infer(
        self,
        model: ModelMetadata,
        category: Category,
        frames: int,
        data: InSharedMemory | memoryview,
        parameters: Mapping[str, int] = NO_PARAMETERS,
        *,
        version: str,
    ) -> Outputs:
        """Run `frames` frames that lie back to back in `data` and check that each has its answer.

        Whoever calls this has the turn. With an empty `version`, on whichever Triton serves.

        Raises:
            BackendError: Triton's, or ours when the reply has not one row per frame.
        """
        batched = model.max_batch_size > 0
        if not batched and frames != 1:
            raise BackendError(f"{model.name} has no batch axis, but {frames} frames were batched")
        call = InferenceCall(
            model=category.model,
            version=version,
            input_name=model.inputs[0].name,
            datatype=category.dtype,
            shape=(frames, *category.shape) if batched else category.shape,
            data=data,
            parameters=parameters,
        )
        outputs = await self._send(call, model, frames)
        ran = replace(category, version=outputs.version)
        outputs.first = not self.warmth.knows(ran, frames)
        self.warmth.note(ran, frames)
        if not batched:
            arrays = {name: array[np.newaxis] for name, array in outputs.items()}
            return Outputs(arrays, outputs.version, first=outputs.first)
        if (error := uneven(outputs, frames)) is not None:
            raise error
        return outputs

    async def _send(self, call: InferenceCall, model: ModelMetadata, frames: int) -> Outputs:
        """Send a call, with room for its outputs if that is of use."""
        if not (self._client.over_http and isinstance(call.data, InSharedMemory)):
            return await self._client.infer(call)
        try:
            with self.rooms.lend(model, frames) as room:
                return await self._client.infer(call if room is None else replace(call, room=room))
        except BackendError as error:
            if not error.unfit_room:
                raise
        # It is over, and has told us that its outputs are others than its configuration says: seen in a warm-up.
        self.rooms.refuse(model)
        return await self._client.infer(call)
