"""Execution times through the gateway's own dispatch path.

For each model, shape and batch size: frames are placed in the arena, a job is started, and the time until its
end is reported is one sample. Executor, arena, shared memory (or messages) and connection are those of the
gateway, so what is measured is what the engine will see between `StartJob` and `JobFinished`. One job at a
time, some after a pause (see `profiler.pauses`), after warm-up that is not counted. The engine itself is not involved.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from gateway.core.events import Event, JobFailed, JobFinished
from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.types import NS_PER_MS, Category, Frame, Job, StreamSpec
from gateway.errors import FramegateError, TritonUnavailable
from gateway.runtime.parts import Parts
from gateway.settings import Settings
from gateway.triton.types import BackendError, ModelMetadata
from profiler.memory import family_pss_bytes
from profiler.pauses import Pauses
from profiler.plan import Failure, Plan, Progress, Report, fill, noise_frame
from profiler.samples import entry

__all__ = ["Failure", "Plan", "Progress", "Report", "measure"]

#: Not counted: the first executions of a shape, and what the processor needs to reach its speed.
_WARM_UP = 5
#: A point that takes longer keeps what samples it has.
_POINT_LIMIT_S = 120.0
_POLL_S = 0.02
_UNLOAD_LIMIT_S = 30.0
_HOUR_NS = 3_600_000 * NS_PER_MS


async def measure(
    plan: Plan, settings: Settings, device: str, on_progress: Progress = lambda _what, _n: None
) -> Report:
    """Measure `plan` in the Triton of `settings`. Loads the models that are not loaded.

    Raises:
        TritonUnavailable: Triton did not come up in time.
        ArenaTooSmall: No room for the arena.
    """
    settings = settings.model_copy(update={"models": list(plan.models)})
    parts = Parts(settings, Profile())
    bench = _Bench(parts, plan, settings.triton.url, on_progress)
    parts.executor.connect(bench.on_event, parts.supervisor.trouble)
    parts.supervisor.start(bench.on_event)
    try:
        await bench.connect()
        entries = await bench.execution_times()
        models = await bench.swap_times(entries)
    finally:
        await parts.close()
    server = parts.supervisor.server
    return Report(
        Profile(
            entries=tuple(entries),
            models=tuple(models),
            device=device,
            triton_version=server.version if server else "",
            engine="native",
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        ),
        tuple(bench.failures),
    )


class _Bench:
    """Runs single jobs through the executor."""

    def __init__(self, parts: Parts, plan: Plan, url: str, on_progress: Progress) -> None:
        self.failures: list[Failure] = []
        self._parts = parts
        self._plan = plan
        self._url = url
        self._on_progress = on_progress
        self._jobs = 0
        self._ended: asyncio.Future[Event] | None = None

    def on_event(self, event: Event) -> None:
        """Take the end of a job; what else the supervisor reports is seen in its state."""
        if isinstance(event, JobFinished | JobFailed) and self._ended is not None and not self._ended.done():
            self._ended.set_result(event)

    async def connect(self) -> None:
        """Wait until Triton is up and the models are loaded.

        Raises:
            TritonUnavailable: It did not answer in time, or did not load the models in time.
        """
        supervisor, plan = self._parts.supervisor, self._plan
        self._on_progress(f"waiting for Triton at {self._url}", 0)
        if not await _in_time(lambda: supervisor.up or supervisor.server is not None, plan.connect_limit_s):
            raise TritonUnavailable(
                f"Triton did not come up at {self._url} within {plan.connect_limit_s:g} s: {supervisor.reason}. "
                "Name it with --triton, or start one with --embedded."
            )
        if supervisor.up:
            return
        self._on_progress(f"loading {', '.join(plan.models)}", 0)
        if not await _in_time(lambda: supervisor.up, plan.load_limit_s):
            raise TritonUnavailable(
                f"Triton did not load the models within {plan.load_limit_s:g} s: {supervisor.reason}"
            )

    # ------------------------------------------------------------ execution times

    async def execution_times(self) -> list[ProfileEntry]:
        """Measure all points; those that fail are noted and left out."""
        entries = []
        for model, shape, batch in self._points():
            self._on_progress(f"{model} {'x'.join(map(str, shape))} batch {batch}", 0)
            try:
                entries.append(await self._point(model, shape, batch))
            except (FramegateError, BackendError) as error:
                self.failures.append(Failure(model, shape, batch, str(error)))
                self._on_progress("", self._plan.samples)
        return entries

    def _points(self) -> Iterator[tuple[str, tuple[int, ...], int]]:
        for model in self._plan.models:
            try:
                shapes = self._shapes(self._parts.catalogue.served(model))
            except FramegateError as error:
                self.failures.append(Failure(model, (), 0, str(error)))
                self._on_progress("", self._plan.samples * len(self._plan.batches) * max(1, len(self._plan.shapes)))
                continue
            for shape in shapes:
                for batch in self._plan.batches:
                    yield model, shape, batch

    def _shapes(self, metadata: ModelMetadata) -> list[tuple[int, ...]]:
        tensor = metadata.inputs[0]
        if -1 not in tensor.shape:
            return [tensor.shape]
        if not self._plan.shapes:
            raise FramegateError(
                f"Input {tensor.name} of {metadata.name} has free axes {list(tensor.shape)}: give --shape HxW."
            )
        return [fill(tensor, shape) for shape in self._plan.shapes]

    async def _point(self, model: str, shape: tuple[int, ...], batch: int) -> ProfileEntry:
        catalogue = self._parts.catalogue
        dtype = catalogue.served(model).inputs[0].datatype
        spec = catalogue.resolve(StreamSpec(model, "", shape, _HOUR_NS, _HOUR_NS, dtype=dtype), Profile())
        allowed = max(1, catalogue.served(model, spec.version).max_batch_size)
        if batch > allowed:
            raise FramegateError(f"{model} takes at most {allowed} frames in a batch.")
        category = spec.category()
        self._parts.executor.check_carries(category, batch)
        frame = memoryview(noise_frame(shape, dtype))
        samples: list[float] = []
        started = time.monotonic()
        for _ in range(_WARM_UP):
            await self._sample(category, batch, frame)
        pauses = Pauses()
        while len(samples) < self._plan.samples:
            if pause_s := pauses.next_s(samples[-1] / 1e3 if samples else 0.0):
                await asyncio.sleep(pause_s)
            samples.append(await self._sample(category, batch, frame))
            self._on_progress("", 1)
            if time.monotonic() - started > _POINT_LIMIT_S:
                self._on_progress("", self._plan.samples - len(samples))
                break
        return entry(category, batch, samples)

    async def _sample(self, category: Category, batch: int, frame: memoryview) -> float:
        """Run one job and return its time in ms, from start to reported end."""
        arena, job_id = self._parts.arena, self._jobs
        self._jobs += 1
        arena.reserve(batch, len(frame), batch)
        for _ in range(batch):
            arena.place(job_id, frame)
        now_ns = time.monotonic_ns()
        frames = tuple(Frame("profile", seq, now_ns, now_ns + _HOUR_NS, job_id) for seq in range(batch))
        job = Job(job_id, category, frames, now_ns, now_ns + _HOUR_NS, 1)
        self._ended = asyncio.get_running_loop().create_future()
        start_ns = time.monotonic_ns()
        self._parts.executor.start(job)
        event = await self._ended
        arena.finish(job_id)
        if isinstance(event, JobFailed):
            raise BackendError(event.reason)
        return (time.monotonic_ns() - start_ns) / NS_PER_MS

    # ------------------------------------------------------------ swap times

    async def swap_times(self, entries: Sequence[ProfileEntry]) -> list[ModelEntry]:
        """Unload and load each measured model of a local Triton once: times, and memory once warm."""
        if self._plan.server_pid is None:
            return []
        await self._parts.supervisor.stop()  # it would load again what is unloaded here
        models = []
        for model in dict.fromkeys(e.model for e in entries):
            self._on_progress(f"{model} unload, load", 0)
            largest = max((e for e in entries if e.model == model), key=lambda e: e.batch * math.prod(e.shape))
            try:
                models.append(await self._swap(largest, self._plan.server_pid))
            except BackendError as error:
                self.failures.append(Failure(model, (), 0, f"Unloading and loading it again: {error}"))
        return models

    async def _swap(self, largest: ProfileEntry, pid: int) -> ModelEntry:
        client, model = self._parts.client, largest.model
        start_ns = time.monotonic_ns()
        await client.unload(model)
        while any(state.name == model and state.state in {"ready", "unloading"} for state in await client.index()):
            if time.monotonic_ns() - start_ns > _UNLOAD_LIMIT_S * 1_000 * NS_PER_MS:
                raise BackendError(f"it was still there after {_UNLOAD_LIMIT_S:g} s")
            await asyncio.sleep(_POLL_S)
        unloaded_ns = time.monotonic_ns()
        before = await asyncio.to_thread(family_pss_bytes, pid)
        load_ns = time.monotonic_ns()
        await client.load(model, self._plan.load_limit_s)
        loaded_ns = time.monotonic_ns()
        self._parts.catalogue.serve(await client.metadata(model, largest.version))
        category = Category(model, largest.version, largest.shape, largest.dtype)
        await self._parts.executor.warm(category, largest.batch)
        after = await asyncio.to_thread(family_pss_bytes, pid)
        return ModelEntry(
            model=model,
            version=largest.version,
            load_ms=round((loaded_ns - load_ns) / NS_PER_MS, 1),
            unload_ms=round((unloaded_ns - start_ns) / NS_PER_MS, 1),
            bytes=max(1, after - before),
        )


async def _in_time(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait until `condition` holds; return False when time is up before."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True
