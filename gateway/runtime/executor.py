"""Runs jobs in Triton, one call each (`gateway.runtime.inference`), and tells the engine how they ended.

Most jobs need no task (`Inference.begin`); those that do, and all that Triton refused, have one.

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
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from gateway.core.events import Event, JobFailed, JobFinished
from gateway.core.types import Category, Job
from gateway.runtime.arena import Arena, Span
from gateway.runtime.direct_calls import Call
from gateway.runtime.ends import Ends
from gateway.runtime.inference import Inference
from gateway.runtime.injection import DelayInjection
from gateway.runtime.opaque import OPAQUE
from gateway.runtime.warm_ups import WarmUps
from gateway.triton.types import BackendError, Outputs

log = logging.getLogger(__name__)

_ENDED = "the gateway ended the call"


class Refusal(BackendError):
    """Triton works and so does the model: it is the frames that could not be digested, some of them at least."""


@dataclass(slots=True, eq=False)
class _Call:
    """One job in Triton's hands.

    Attributes:
        task: What runs it, if that takes a task.
        direct: What runs it otherwise.
        reported: The engine knows of its end.
    """

    job: Job
    task: asyncio.Task[Outputs] | None = None
    direct: Call | None = None
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
        self._calls: set[_Call] = set()
        #: Of the same, but for the one that waits behind another one.
        self._ends: Ends[_Call] = Ends(self._give_up)
        self._outputs: dict[int, Outputs] = {}
        self._refused: set[str] = set()
        #: Sent ahead of the end of another one.
        self._behind: _Call | None = None
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
        call = self._new_call(job)
        if job.warm_up:
            self._run_task(call, self._warm(job))
            return
        span = self._arena.start(job.id, len(job.frames))
        parameters = self.injection.take(job.category.model)
        call.direct = None if parameters else self._inference.begin(job, span, partial(self._answered, call))
        if call.direct is None:
            self._run_task(call, self._run(job, span, parameters))

    def _new_call(self, job: Job) -> _Call:
        call = _Call(job)
        self._calls.add(call)
        self._idle.clear()
        if job.ahead:
            self._behind = call
        else:
            self._limit(call)
        return call

    def _limit(self, call: _Call) -> None:
        """Let a job be given up if it is not answered in time, from now on: Triton begins with it."""
        self._ends.begin(call, self._inference.timeout_s)

    def _go_on(self, ended: _Call) -> None:
        """The running job is over, or given up: the one that was sent ahead, if that is another one, is running now."""
        call, self._behind = self._behind, None
        if call is not None and call is not ended:
            self._limit(call)

    def _run_task(self, call: _Call, work: Coroutine[Any, Any, Outputs]) -> None:
        call.task = asyncio.get_running_loop().create_task(work)
        call.task.add_done_callback(partial(self._task_ended, call))

    async def _warm(self, job: Job) -> Outputs:
        await self._warm_ups.run(job.category, job.warm_up)
        return Outputs({}, first=True)

    async def _run(self, job: Job, span: Span, parameters: Mapping[str, int]) -> Outputs:
        if job.category.dtype == OPAQUE:
            return await self._inference.pass_through(span, parameters)
        try:
            return await self._inference.run(job, span, parameters)
        except BackendError as error:
            return await self._refused_by(job, error)

    async def _refused_by(self, job: Job, error: BackendError) -> NoReturn:
        """Look into what Triton said of a job. Raises it, as a `Refusal` where it is about the job's frames."""
        if error.version_gone and any(named := self._inference.named(job)):
            if all(named):
                raise error
            raise Refusal(error.message, error.code)  # those that named none are answered on the new one
        if not error.unreachable and await self._is_to_blame(job, error):
            raise Refusal(error.message, error.code)
        raise error

    async def _is_to_blame(self, job: Job, error: BackendError) -> bool:
        """Whether an error may be the fault of the job's frames, as far as can be told; of its model otherwise."""
        model = job.category.model
        again = model in self._refused or error.code == "NOT_FOUND"
        self._refused.add(model)
        return (len(job.frames) > 1 and not again) or await self._examine(job.category, error.message)

    def take(self, job: int) -> Outputs:
        """Return the outputs of a finished job, once."""
        return self._outputs.pop(job)

    def _answered(self, call: _Call, answer: Outputs | BaseException) -> None:
        """A call without a task is over; what Triton refused may have to be looked into, which takes one."""
        if isinstance(answer, BackendError) and not call.reported:
            self._run_task(call, self._refused_by(call.job, answer))
        elif isinstance(answer, asyncio.CancelledError):
            self._ended(call, asyncio.CancelledError(_ENDED))
        else:
            self._ended(call, answer)

    def _task_ended(self, call: _Call, task: asyncio.Task[Outputs]) -> None:
        """As the task's callback this also sees one cancelled before it began."""
        if task.cancelled():
            self._ended(call, asyncio.CancelledError(_ENDED))
        else:
            self._ended(call, task.exception() or task.result())

    def _ended(self, call: _Call, answer: Outputs | BaseException) -> None:
        """The call is over, however."""
        job = call.job
        self._ends.end(call)
        call.task = call.direct = None  # a traceback would keep the arena's memory in use
        self._calls.discard(call)
        if not call.reported:
            self._go_on(call)
        if not self._calls:
            self._idle.set()
        if not job.warm_up:
            self._arena.call_ended(job.id)
        if isinstance(answer, BaseException):
            self._ended_badly(call, answer)
        elif call.reported:
            log.warning("job %d ended after it was given up: with an answer", job.id)
        else:
            self._refused.discard(job.category.model)
            self._outputs[job.id] = answer
            self._post(JobFinished(job.id, warm_up=answer.first))
            self._outputs.pop(job.id, None)  # not taken: the engine gave the job up when the worker was lost

    def _ended_badly(self, call: _Call, error: BaseException) -> None:
        if call.reported:
            log.warning("job %d ended after it was given up: %s", call.job.id, error)
            return
        unreachable = isinstance(error, BackendError) and (
            error.unreachable or (bool(call.job.warm_up) and error.forgot_region)
        )
        self._failed(call, str(error), unreachable=unreachable, retry=isinstance(error, Refusal))

    def _give_up(self, call: _Call) -> None:
        """A call's time is over, but it is not."""
        self._go_on(call)
        self._failed(call, f"no answer within {self._inference.timeout_s:g} s", unreachable=True)

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
        tasks = []
        for call in list(self._calls):
            if call.task is not None:
                call.task.cancel()
                tasks.append(call.task)
            elif call.direct is not None:
                call.direct.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if not self._calls:
            self._ends.stop()


def _not_connected(event: Event) -> object:
    raise RuntimeError(f"the executor is not connected to a driver: {event}")


def _no_trouble(reason: str) -> None:
    pass


async def _no_examination(category: Category, reason: str) -> bool:
    return False
