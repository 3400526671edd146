"""A Triton to measure in, and single jobs through the gateway's own dispatch path.

Executor, arena, shared memory (or messages) and connection are those of the gateway, so what `Bench.sample` measures
is what the engine will see between `StartJob` and `JobFinished`. The engine itself is not involved.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.core.events import Event, JobFailed, JobFinished
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, Category, Frame, Job, StreamSpec
from gateway.errors import FramegateError, TritonUnavailable
from gateway.runtime.parts import Parts
from gateway.runtime.region import PREFIX
from gateway.settings import Settings
from gateway.triton.types import BackendError, ModelMetadata, ServerInfo
from profiler.pace import Pace
from profiler.plan import NO_SUCH_MODEL, Failure, Plan, Point, Progress, fill, noise_frame

_POLL_S = 0.02
_HOUR_NS = 3_600_000 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Warmth:
    """What is known of a point once it ran.

    Attributes:
        frame: One frame's bytes, to go on with.
        execution_ms: How long the last execution took.
        output_bytes: Of the largest output, per frame.
    """

    frame: memoryview
    execution_ms: float
    output_bytes: int


class Bench:
    """One Triton, its models loaded, with nothing else at work in it.

    Make it on a running event loop, `connect`, and `close` it whatever happens.

    Args:
        plan: What is to be measured.
        settings: Where Triton is, and the size of the arena.
        on_progress: Told what takes time.
        pace: Told how long executions take.

    Attributes:
        failures: Models and points that cannot be measured, in the order in which that was found.
        parts: The gateway's parts under it.
    """

    def __init__(self, plan: Plan, settings: Settings, on_progress: Progress, pace: Pace | None = None) -> None:
        self.failures: list[Failure] = []
        self.plan = plan
        self.url = settings.triton.url
        self.on_progress = on_progress
        self.pace = pace or Pace(plan)
        self.parts = Parts(settings.model_copy(update={"models": list(plan.models)}), Profile())
        self._jobs = 0
        self._ended: asyncio.Future[Event] | None = None
        self._output_bytes = 0
        self._repository: list[str] = []

    async def connect(self) -> None:
        """Wait until Triton is up and the models are loaded.

        Raises:
            TritonUnavailable: It did not answer in time, or did not load the models in time.
        """
        supervisor, plan = self.parts.supervisor, self.plan
        self.parts.executor.connect(self._on_event, supervisor.trouble)
        supervisor.start(self._on_event)
        self.on_progress(f"waiting for Triton at {self.url}", 0)
        if not await _in_time(lambda: supervisor.up or supervisor.server is not None, plan.connect_limit_s):
            raise TritonUnavailable(
                f"Triton did not come up at {self.url} within {plan.connect_limit_s:g} s: {supervisor.reason}. "
                "Name it with --triton, or start one with --embedded."
            )
        if not supervisor.up:
            self.on_progress(f"loading {', '.join(plan.models)}", 0)
            if not await _in_time(lambda: supervisor.up, plan.load_limit_s):
                raise TritonUnavailable(
                    f"Triton did not load the models within {plan.load_limit_s:g} s: {supervisor.reason}"
                )
        await self._take_over()
        with contextlib.suppress(BackendError):  # the reasons of failures are then as Triton gives them
            self._repository = sorted({state.name for state in await self.parts.client.index()})

    async def _take_over(self) -> None:
        """Stop the supervisor: it would load again what is unloaded on purpose."""
        catalogue = self.parts.catalogue
        served = [catalogue.served(model, version) for model, version in catalogue.serving]
        await self.parts.supervisor.stop()
        for metadata in served:
            catalogue.serve(metadata)

    async def close(self) -> None:
        """Give everything back to Triton and the system."""
        await self.parts.close()

    @property
    def server(self) -> ServerInfo:
        """Triton's own metadata; after `connect`."""
        server = self.parts.supervisor.server
        if server is None:
            raise TritonUnavailable("Triton is not connected yet")
        return server

    # ------------------------------------------------------------ what to measure

    def points(self) -> Iterator[Point]:
        """Yield all points that can be measured; the others are among the `failures`."""
        for model in self.plan.models:
            try:
                shapes = self._shapes(self.parts.catalogue.served(model))
            except FramegateError as error:
                self.fail(
                    model,
                    (),
                    0,
                    self._unknown(model) or str(error),
                    len(self.plan.batches) * max(1, len(self.plan.shapes)),
                )
                continue
            for shape in shapes:
                for batch in self.plan.batches:
                    try:
                        yield self._point(model, shape, batch)
                    except FramegateError as error:
                        self.fail(model, shape, batch, str(error))

    def _unknown(self, model: str) -> str:
        """Return that `model` is not in the repository, and which are; empty if it is, or nothing is known."""
        if not self._repository or model in self._repository:
            return ""
        return f"{NO_SUCH_MODEL}; it has {', '.join(self._repository)}."

    def _shapes(self, metadata: ModelMetadata) -> list[tuple[int, ...]]:
        tensor = metadata.inputs[0]
        if -1 not in tensor.shape:
            return [tensor.shape]
        if not self.plan.shapes:
            raise FramegateError(
                f"Input {tensor.name} of {metadata.name} has free axes {list(tensor.shape)}: give --shape HxW."
            )
        return [fill(tensor, shape) for shape in self.plan.shapes]

    def _point(self, model: str, shape: tuple[int, ...], batch: int) -> Point:
        catalogue = self.parts.catalogue
        tensor = catalogue.served(model).inputs[0]
        spec = catalogue.resolve(StreamSpec(model, "", shape, _HOUR_NS, _HOUR_NS, dtype=tensor.datatype), Profile())
        allowed = max(1, catalogue.served(model, spec.version).max_batch_size)
        if batch > allowed:
            raise FramegateError(f"{model} takes at most {allowed} frames in a batch.")
        self.parts.inference.check_carries(spec.category(), batch)
        return Point(spec.category(), batch, tensor.name)

    def fail(self, model: str, shape: tuple[int, ...], batch: int, reason: str, points: int = 1) -> None:
        """Note that `points` points cannot be measured."""
        self.failures.append(Failure(model, shape, batch, reason))
        self.on_progress("", self.plan.samples * points)

    # ------------------------------------------------------------ one job

    async def share(self) -> None:
        """Have Triton open our region again if it was made to forget it. Raises `BackendError`."""
        region = self.parts.arena.region
        if self.parts.inference.shared and region.name not in await self.parts.client.region_names():
            await self.parts.client.register_region(region.name, region.key, region.size)

    async def others_regions(self) -> list[str]:
        """Return what other Framegates have Triton hold open. Raises `BackendError`."""
        own = self.parts.arena.region.name
        return sorted(n for n in await self.parts.client.region_names() if n.startswith(PREFIX) and n != own)

    async def sample(self, category: Category, batch: int, frame: memoryview) -> float:
        """Run one job and return its time in ms, from start to reported end. Raises `BackendError`."""
        arena, job_id = self.parts.arena, self._jobs
        self._jobs += 1
        arena.reserve(batch, len(frame), batch)
        for _ in range(batch):
            arena.slot(job_id)[:] = frame
        arena.unreserve()
        now_ns = time.monotonic_ns()
        frames = tuple(Frame("profile", seq, now_ns, now_ns + _HOUR_NS, job_id) for seq in range(batch))
        job = Job(job_id, category, frames, now_ns, now_ns + _HOUR_NS, 1)
        self._ended = asyncio.get_running_loop().create_future()
        start_ns = time.monotonic_ns()
        self.parts.executor.start(job)
        event = await self._ended
        arena.finish(job_id)
        if isinstance(event, JobFailed):
            raise BackendError(event.reason)
        return (time.monotonic_ns() - start_ns) / NS_PER_MS

    async def warm_up(self, point: Point, executions: int) -> Warmth:
        """Run a point a few times, of which nothing is kept but how long the last took. Raises `BackendError`."""
        await self.share()
        frame = memoryview(noise_frame(point.category.shape, point.category.dtype))
        last_ms = 0.0
        for _ in range(executions):
            last_ms = await self.sample(point.category, point.batch, frame)
        self.pace.warmed(last_ms)
        return Warmth(frame, last_ms, -(-self._output_bytes // point.batch))

    def _on_event(self, event: Event) -> None:
        """Take the end of a job; what else the supervisor reports is seen in its state."""
        if not isinstance(event, JobFinished | JobFailed) or self._ended is None or self._ended.done():
            return
        if isinstance(event, JobFinished):
            outputs = self.parts.executor.take(event.job_id)
            self._output_bytes = max((array.nbytes for array in outputs.values()), default=0)
        self._ended.set_result(event)


async def _in_time(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait until `condition` holds; return False when time is up before."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True
