"""Runs jobs in Triton, one call each (`gateway.runtime.inference`), and tells the engine how they ended.

How a call may end::

    start ──> reply ───────────────> JobFinished      block free
          ├─> error ── examined ───> JobFailed        block free, or its frames' own
          └─> time is up ──────────> JobFailed        block held ...
                                       └─> reply or error at last: block free, result thrown away

A call is never cancelled because it is slow: that would not stop the device, and Triton would go on reading
its input. It is cancelled when its Triton is known to be gone, and when the gateway stops.

A job without frames is a warm-up: black ones are run in its place (`gateway.runtime.warm_ups`) and nobody gets results.

A single frame that Triton refused is still running for the engine while its model is examined
(`gateway.runtime.repairs`), so that nothing else is. A batch is not examined: the engine tries its frames one by one,
which tells more. Only when a model refuses one call after another, it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway.core.events import Event, JobFailed, JobFinished
from gateway.core.types import Category, Job
from gateway.runtime.arena import Arena, Span
from gateway.runtime.inference import Inference
from gateway.runtime.injection import DelayInjection
from gateway.runtime.opaque import OPAQUE
from gateway.runtime.warm_ups import WarmUps
from gateway.triton.types import BackendError, Outputs

log = logging.getLogger(__name__)


class Refusal(BackendError):
    """Triton works and so does the model: it is the frames that could not be digested, some of them at least."""


@dataclass(slots=True, eq=False)
class _Call:
    """One job in Triton's hands. `timer`: none while it waits there; `reported`: the engine knows of its end."""

    job: Job
    timer: asyncio.TimerHandle | None = None
    reported: bool = False


class TritonExecutor:
    """Implements `gateway.runtime.driver.Executor`.

    Attributes:
        injection: Delays of coming jobs.
    """

    def __init__(self, inference: Inference, arena: Arena, warm_ups: WarmUps) -> None:
        self.injection = DelayInjection()
        self._inference = inference
        self._warm_ups = warm_ups
        self._arena = arena
        self._calls: dict[asyncio.Task[Outputs], _Call] = {}
        self._outputs: dict[int, Outputs] = {}
        self._refused: set[str] = set()
        self._behind: asyncio.Task[Outputs] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
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

    # ------------------------------------------------------------ jobs

    def start(self, job: Job) -> None:
        """Send `job`; its frames lie in the arena, if it has some."""
        loop = asyncio.get_running_loop()
        if job.warm_up:
            task = loop.create_task(self._warm(job))
        else:
            span = self._arena.start(job.id, len(job.frames))
            parameters = self.injection.take(job.category.model)
            task = loop.create_task(self._run(job, span, parameters))
        self._calls[task] = _Call(job)
        if job.ahead:
            self._behind = task
        else:
            self._limit(task)
        self._idle.clear()
        task.add_done_callback(self._ended)

    def _limit(self, task: asyncio.Task[Outputs]) -> None:
        """Let a job be given up if it is not answered in time, from now on: Triton begins with it."""
        loop = asyncio.get_running_loop()
        self._calls[task].timer = loop.call_later(self._inference.timeout_s, self._time_is_up, task)

    async def _warm(self, job: Job) -> Outputs:
        await self._warm_ups.run(job.category, job.warm_up)
        return Outputs({}, first=True)

    async def _run(self, job: Job, span: Span, parameters: Mapping[str, int]) -> Outputs:
        if job.category.dtype == OPAQUE:
            return await self._inference.pass_through(span, parameters)
        try:
            return await self._inference.run(job, span, parameters)
        except BackendError as error:
            if error.version_gone and any(named := self._inference.named(job)):
                if all(named):
                    raise
                raise Refusal(error.message, error.code) from None  # those that named none are answered on the new one
            if not error.unreachable and await self._is_to_blame(job, error):
                raise Refusal(error.message, error.code) from None
            raise

    async def _is_to_blame(self, job: Job, error: BackendError) -> bool:
        """Whether an error may be the fault of the job's frames, as far as can be told; of its model otherwise."""
        model = job.category.model
        again = model in self._refused or error.code == "NOT_FOUND"
        self._refused.add(model)
        return (len(job.frames) > 1 and not again) or await self._examine(job.category, error.message)

    def take(self, job: int) -> Outputs:
        """Return the outputs of a finished job, once."""
        return self._outputs.pop(job)

    def _ended(self, task: asyncio.Task[Outputs]) -> None:
        """The call is over, however: as the task's callback this also sees one cancelled before it began."""
        call = self._calls.pop(task)
        if call.timer is not None:
            call.timer.cancel()
        if not call.reported:
            self._go_on(task)
        if not self._calls:
            self._idle.set()
        if not call.job.warm_up:
            self._arena.call_ended(call.job.id)
        error = asyncio.CancelledError("the gateway ended the call") if task.cancelled() else task.exception()
        if call.reported:
            log.warning("job %d ended after it was given up: %s", call.job.id, error or "with an answer")
        elif error is None:
            self._refused.discard(call.job.category.model)
            outputs = self._outputs[call.job.id] = task.result()
            self._post(JobFinished(call.job.id, warm_up=outputs.first))
            self._outputs.pop(call.job.id, None)  # not taken: the engine gave the job up when the worker was lost
        else:
            unreachable = isinstance(error, BackendError) and (
                error.unreachable or (bool(call.job.warm_up) and error.forgot_region)
            )
            self._failed(call, str(error), unreachable=unreachable, retry=isinstance(error, Refusal))

    def _go_on(self, ended: asyncio.Task[Outputs]) -> None:
        """The running job is over, or given up: the one that was sent ahead, if that is another one, is running now."""
        task, self._behind = self._behind, None
        if task is not None and task is not ended:
            self._limit(task)

    def _time_is_up(self, task: asyncio.Task[Outputs]) -> None:
        self._go_on(task)
        self._failed(self._calls[task], f"no answer within {self._inference.timeout_s:g} s", unreachable=True)

    def _failed(self, call: _Call, reason: str, *, unreachable: bool, retry: bool = False) -> None:
        """Tell the supervisor first, so that the engine does not start the next job into the void."""
        call.reported = True
        if unreachable:
            self._on_loss(reason)
        self._post(JobFailed(call.job.id, reason, retry))

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
