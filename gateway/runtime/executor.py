"""Runs batches in Triton: one call per job, its input in shared memory or in the message.

How a call may end::

    start ──> reply ───────────────> JobFinished      block free
          ├─> error ── examined ───> JobFailed        block free, or its frames' own
          └─> time is up ──────────> JobFailed        block held ...
                                       └─> reply or error at last: block free, result thrown away

A call is never cancelled because it is slow: that would not stop the device, and Triton would go on reading
its input. It is cancelled when its Triton is known to be gone, and when the gateway stops.

A single frame that Triton refused is still running for the engine while its model is examined
(`gateway.runtime.repairs`), so that nothing else is. A batch is not examined: the engine tries its frames one by one,
which tells more. Only when a model refuses one call after another, it is. A warm-up, which the engine does not know of,
takes turns with the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.events import Event, JobFailed, JobFinished
from gateway.core.types import Category, Job
from gateway.errors import ArenaFull, BodyTooLarge
from gateway.runtime.arena import Arena, Span
from gateway.runtime.injection import DelayInjection
from gateway.runtime.models import Catalogue, frame_bytes
from gateway.runtime.opaque import OPAQUE, OpaqueCalls
from gateway.runtime.resize import scale_in_thread
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import NO_PARAMETERS, BackendError, InferenceCall, InSharedMemory, ModelMetadata

log = logging.getLogger(__name__)

Outputs = dict[str, NDArray[Any]]

#: What a request holds besides the tensor: names, shape, ids.
_MESSAGE_HEAD_BYTES = 4096


class Refusal(BackendError):
    """Triton works and so does the model: it is the frames that could not be digested, some of them at least."""


@dataclass(slots=True, eq=False)
class _Call:
    """One job in Triton's hands. `first`: nothing like it has run yet; `reported`: the engine knows of its end."""

    job: Job
    timer: asyncio.TimerHandle
    first: bool
    reported: bool = False


class TritonExecutor:
    """Implements `gateway.runtime.driver.Executor`.

    Attributes:
        shared: Whether Triton has our region open. Set by the supervisor.
        calls_started: Number of jobs sent, ever.
        warmth: What has run since its model was loaded.
        injection: Delays of coming jobs.
        opaque: Calls that are run as they came.
        timeout_s: How long a job may take.
    """

    def __init__(
        self,
        client: TritonClient,
        arena: Arena,
        catalogue: Catalogue,
        *,
        timeout_s: float,
        max_message_bytes: int,
        opaque: OpaqueCalls | None = None,
    ) -> None:
        self.shared = False
        self.calls_started = 0
        self.warmth = Warmth()
        self.injection = DelayInjection()
        self.opaque = OpaqueCalls(0) if opaque is None else opaque
        self._client = client
        self._arena = arena
        self._catalogue = catalogue
        self.timeout_s = timeout_s
        self._max_message_bytes = max_message_bytes
        self._calls: dict[asyncio.Task[Outputs], _Call] = {}
        self._outputs: dict[int, Outputs] = {}
        self._refused: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._turn = asyncio.Lock()
        self._post: Callable[[Event], object] = _not_connected
        self._on_loss: Callable[[str], None] = _no_trouble
        self._examine: Callable[[Category, str], Awaitable[bool]] = _no_examination

    def connect(
        self,
        post: Callable[[Event], object],
        on_loss: Callable[[str], None],
        examine: Callable[[Category, str], Awaitable[bool]] | None = None,
    ) -> None:
        """Say where ends of jobs go.

        Args:
            post: Takes the event.
            on_loss: Told the reason, before the event is posted, when Triton did not answer at all.
            examine: Awaited with a reason that Triton gave, before the event is posted. Says whether the model works.
        """
        self._post = post
        self._on_loss = on_loss
        self._examine = examine or _no_examination

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

    def start(self, job: Job) -> None:
        """Send `job`; its frames lie in the arena."""
        span = self._arena.start(job.id, len(job.frames))
        loop = asyncio.get_running_loop()
        parameters = self.injection.take(job.category.model)
        task = loop.create_task(self._run(job, span, parameters))
        first = not self.warmth.knows(job.small or job.category, len(job.frames))
        call = _Call(job, loop.call_later(self.timeout_s, self._time_is_up, task), first)
        self._calls[task] = call
        self._idle.clear()
        self.calls_started += 1
        task.add_done_callback(self._ended)

    async def _run(self, job: Job, span: Span, parameters: Mapping[str, int]) -> Outputs:
        if job.category.dtype == OPAQUE:
            return await self._pass_through(span, parameters)
        model = self._catalogue.served(job.category.model, job.category.version)
        try:
            with ExitStack() as stack:
                data = self._bytes(span) if job.small is None else await self._scaled(job, job.small, span, stack)
                return await self._infer(model, job.small or job.category, len(job.frames), data, parameters)
        except BackendError as error:
            if not error.unreachable and await self._is_to_blame(job, error):
                raise Refusal(error.message, error.code) from None
            raise

    async def _is_to_blame(self, job: Job, error: BackendError) -> bool:
        """Whether an error may be the fault of the job's frames, as far as can be told; of its model otherwise."""
        model = job.category.model
        again = model in self._refused or error.code == "NOT_FOUND"
        self._refused.add(model)
        return (len(job.frames) > 1 and not again) or await self._examine(job.category, error.message)

    async def _pass_through(self, span: Span, parameters: Mapping[str, int]) -> Outputs:
        """Run the opaque call whose handle lies in `span`; what comes of it is left with the call."""
        call = self.opaque.find(bytes(self._arena.region.view[span.offset : span.offset + span.size]))
        if call is None:
            raise BackendError("whoever called has gone")
        try:
            async with self._turn:
                raw = replace(call.raw, parameters={**call.raw.parameters, **parameters})
                call.outputs = tuple(await self._client.pass_through(raw))
        except BackendError as error:
            call.error = error
            raise
        return {}

    async def _scaled(self, job: Job, small: Category, span: Span, stack: ExitStack) -> InSharedMemory | memoryview:
        """Return the job's frames at the shape of `small`; where they lie is theirs until `stack` is closed."""
        size = len(job.frames) * frame_bytes(small.shape, small.dtype)
        view = self._arena.region.view
        target = memoryview(bytearray(size))
        data: InSharedMemory | memoryview = target
        if self.shared:
            with suppress(ArenaFull):  # then they go in the message
                lent = stack.enter_context(self._arena.lend(size, clear=False))
                data, target = self._bytes(lent), view[lent.offset : lent.offset + size]
        source = view[span.offset : span.offset + span.size]
        await scale_in_thread(source, job.category.shape, target, small.shape, small.dtype)
        return data

    def take(self, job: int) -> Outputs:
        """Return the outputs of a finished job, once."""
        return self._outputs.pop(job)

    def _ended(self, task: asyncio.Task[Outputs]) -> None:
        """The call is over, however: as the task's callback this also sees one cancelled before it began."""
        call = self._calls.pop(task)
        call.timer.cancel()
        if not self._calls:
            self._idle.set()
        self._arena.call_ended(call.job.id)
        error = asyncio.CancelledError("the gateway ended the call") if task.cancelled() else task.exception()
        if call.reported:
            log.warning("job %d ended after it was given up: %s", call.job.id, error or "with an answer")
        elif error is None:
            self._refused.discard(call.job.category.model)
            self._outputs[call.job.id] = task.result()
            self._post(JobFinished(call.job.id, warm_up=call.first))
            self._outputs.pop(call.job.id, None)  # not taken: the engine gave the job up when the worker was lost
        else:
            unreachable = isinstance(error, BackendError) and error.unreachable
            self._failed(call, str(error), unreachable=unreachable, retry=isinstance(error, Refusal))

    def _time_is_up(self, task: asyncio.Task[Outputs]) -> None:
        self._failed(self._calls[task], f"no answer within {self.timeout_s:g} s", unreachable=True)

    def _failed(self, call: _Call, reason: str, *, unreachable: bool, retry: bool = False) -> None:
        """Tell the supervisor first, so that the engine does not start the next job into the void."""
        call.reported = True
        if unreachable:
            self._on_loss(reason)
        self._post(JobFailed(call.job.id, reason, retry))

    # ------------------------------------------------------------ the call itself

    def _bytes(self, span: Span) -> InSharedMemory | memoryview:
        if self.shared:
            return InSharedMemory(self._arena.region.name, span.offset, span.size)
        return self._arena.region.view[span.offset : span.offset + span.size]

    async def warm(
        self, category: Category, frames: int, timeout_s: float | None = None, model: ModelMetadata | None = None
    ) -> None:
        """Run one batch of black frames, outside of the engine: first executions of a shape are slow.

        Args:
            category: What to run.
            frames: Size of the batch.
            timeout_s: Limit, the wait for a running job included; None: wait as long as Triton takes.
            model: The category's model, if it is not served yet.

        Raises:
            BackendError: Triton's, or there was no answer in time. The model may still be at it.
        """
        size = frames * frame_bytes(category.shape, category.dtype)
        model = model or self._catalogue.served(category.model, category.version)
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    with self._arena.lend(size) as span:
                        await self._infer(model, category, frames, self._bytes(span))
                except ArenaFull:  # waiting frames hold it all; the model can be warmed all the same
                    await self._infer(model, category, frames, memoryview(bytes(size)))
        except TimeoutError:
            raise BackendError(f"no answer within {timeout_s:g} s", "DEADLINE_EXCEEDED") from None

    async def _infer(
        self,
        model: ModelMetadata,
        category: Category,
        frames: int,
        data: InSharedMemory | memoryview,
        parameters: Mapping[str, int] = NO_PARAMETERS,
    ) -> Outputs:
        """Run `frames` frames that lie back to back in `data` and check that each has its answer.

        Raises:
            BackendError: Triton's, or ours when the reply has not one row per frame.
        """
        batched = model.max_batch_size > 0
        if not batched and frames != 1:
            raise BackendError(f"{model.name} has no batch axis, but {frames} frames were batched")
        call = InferenceCall(
            model=category.model,
            version=category.version,
            input_name=model.inputs[0].name,
            datatype=category.dtype,
            shape=(frames, *category.shape) if batched else category.shape,
            data=data,
            parameters=parameters,
        )
        async with self._turn:
            outputs = await self._client.infer(call)
        self.warmth.note(category, frames)
        if not batched:
            return {name: array[np.newaxis] for name, array in outputs.items()}
        for name, array in outputs.items():
            if array.ndim == 0 or array.shape[0] != frames:
                raise BackendError(f"output {name} has shape {list(array.shape)} for a batch of {frames} frames")
        return outputs

    # ------------------------------------------------------------ ends

    async def idle(self) -> None:
        """Return when no call is in Triton's hands, given-up ones included."""
        await self._idle.wait()

    async def abandon(self) -> None:
        """End every call here and now: its Triton is gone, or the gateway is going."""
        tasks = list(self._calls)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _not_connected(event: Event) -> object:
    raise RuntimeError(f"the executor is not connected to a driver: {event}")


def _no_trouble(reason: str) -> None:
    pass


async def _no_examination(category: Category, reason: str) -> bool:
    return False
