"""Runs the concurrency study: point by point, in one Triton, with the real perf_analyzer.

Two perf_analyzers neither start nor end together, and only one at a time can use shared memory. So of a pair one model
is timed while the other's perf_analyzer runs from before the first to after the last request that counts, with its
frames in messages; then the other way round. All latencies are thus of requests whose frames were in shared memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import FramegateError
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, InferenceCall
from profiler.interference_figures import Figures, figures
from profiler.interference_plan import Load, Point, StudyPlan
from profiler.interference_report import FailedPoint, MeasuredPoint, StudyReport
from profiler.interference_triton import StudiedModel, StudiedModels
from profiler.perf_analyzer import Outcome, PerfAnalyzerError, Request, Tool, run
from profiler.plan import noise_frame

#: perf_analyzer measures until three windows in a row agree, each a fifth longer than it is told.
_WINDOWS, _WINDOW_STRETCH = 3, 1.2
_LEAST_WINDOW_MS = 50
#: No difference between them makes it measure on: whether a point settled is decided here.
_ANY_DIFFERENCE_PERCENT = 1_000_000
_TRIES = 3
_POLL_S = 0.05
_MS_PER_S = 1_000
_MAX_MESSAGE_BYTES = 1 << 30
#: What can happen at one point while others are fine.
_POINT_FAULTS = (FramegateError, BackendError, PerfAnalyzerError, ValueError)

#: Called before each point with what it is and how many of how many are done, and once at the end.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Background(Request):
    """A run whose figures nobody reads. With frames in messages, the tool writes every byte of them to its file."""

    def arguments(self, json_file: Path, csv_file: Path) -> Sequence[str]:
        """Return the command line's arguments, without the file of single requests."""
        rest = iter(super().arguments(json_file, csv_file))
        return [word for word in rest if word != "--profile-export-file" or not next(rest)]


async def study(
    plan: StudyPlan,
    url: str,
    tool: Tool,
    on_progress: Progress = lambda _what, _done, _of: None,
    *,
    restore: bool = True,
) -> StudyReport:
    """Measure `plan` in the Triton at `url`; points that fail are noted and left out.

    Models come and go in that Triton meanwhile. With `restore` it has those that it had when this ends; a Triton that
    is about to be stopped needs no such care.

    Raises:
        BackendError: Triton did not answer in time.
    """
    client = TritonClient(url, max_message_bytes=_MAX_MESSAGE_BYTES)
    models = StudiedModels(client, plan)
    bench = _Bench(plan, client, models, tool)
    try:
        version = await models.connect()
        if models.others:
            bench.notes.append(f"Other models were loaded in that Triton: {', '.join(models.others)}.")
        points = plan.points()
        for done, point in enumerate(points):
            on_progress(str(point), done, len(points))
            await bench.measure(point)
        on_progress("", len(points), len(points))
    finally:
        if restore:
            bench.notes += await _restore(models)
        await client.close()
    return StudyReport(
        plan=plan,
        shapes=bench.shapes,
        points=tuple(bench.measured),
        failures=tuple(bench.failed),
        triton_version=version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(bench.notes),
    )


async def _restore(models: StudiedModels) -> list[str]:
    """Leave Triton as it was; return what did not work: it must not cost the figures."""
    try:
        await models.restore()
    except BackendError as error:
        return [f"Triton could not be left as it was: {error.message}"]
    return []


class _Bench:
    """Measures points and keeps what came of them."""

    def __init__(self, plan: StudyPlan, client: TritonClient, models: StudiedModels, tool: Tool) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.measured: list[MeasuredPoint] = []
        self.failed: list[FailedPoint] = []
        self.notes: list[str] = []
        self._plan = plan
        self._client = client
        self._models = models
        self._tool = tool
        self._output_bytes: dict[str, int] = {}

    async def measure(self, point: Point) -> None:
        """Measure one point, or note why not."""
        try:
            served = await self._models.serve({load.model: load.instances for load in point.loads})
            for load in point.loads:
                await self._try(served[load.model], load)
            found = await self._time(point, served)
        except _POINT_FAULTS as error:
            self.failed.append(FailedPoint(point, " ".join(str(error).split())))
        else:
            self.measured.append(MeasuredPoint(point, found))

    async def _try(self, model: StudiedModel, load: Load) -> None:
        """Run one request on each instance: they are warm then, and what does not fit is told in Triton's words."""
        metadata = model.metadata
        if load.batch > max(1, metadata.max_batch_size):
            raise FramegateError(f"{load.model} takes at most {max(1, metadata.max_batch_size)} frames in a batch.")
        frames = memoryview(noise_frame(model.shape, model.input.datatype) * load.batch)
        axes = (load.batch, *model.shape) if metadata.max_batch_size else model.shape
        call = InferenceCall(load.model, metadata.version, model.input.name, model.input.datatype, axes, frames)
        try:
            async with asyncio.timeout(self._plan.point_limit_s):
                outputs, *_ = await asyncio.gather(*(self._client.infer(call) for _ in range(load.instances)))
        except TimeoutError:
            raise FramegateError(f"{load.model} did not answer within {self._plan.point_limit_s:g} s.") from None
        self.shapes[load.model] = model.shape
        self._output_bytes[load.model] = max(-(-array.nbytes // load.batch) for array in outputs.values())

    async def _time(self, point: Point, served: dict[str, StudiedModel]) -> Figures:
        timed = self._request(point.load, served[point.load.model])
        if point.beside is None:
            outcome = await self._timed(timed)
        else:
            async with self._running(point.beside, served[point.beside.model]):
                outcome = await self._timed(timed)
        return figures(outcome.started_ns, outcome.ended_ns, point.load)

    async def _timed(self, request: Request) -> Outcome:
        """Run `request`, and again where it ended well with an empty file, as once in some 60 runs."""
        for _ in range(_TRIES - 1):
            try:
                return await run(self._tool, request)
            except PerfAnalyzerError as error:
                if not error.unreadable:
                    raise
        return await run(self._tool, request)

    @contextlib.asynccontextmanager
    async def _running(self, load: Load, model: StudiedModel) -> AsyncIterator[None]:
        """Keep `load` running inside the context.

        Raises:
            PerfAnalyzerError: It did not start, or ended before the context did.
        """
        limit_s = self._plan.point_limit_s
        request = replace(
            self._request(load, model, _Background),
            shared_memory=False,
            window_ms=round(_MS_PER_S * limit_s),  # three of them: it does not end by itself
            limit_s=_WINDOWS * limit_s,
        )
        before = await self._client.executed(load.model)
        task = asyncio.create_task(run(self._tool, request))
        try:
            deadline = time.monotonic() + limit_s
            while not task.done() and await self._client.executed(load.model) <= before + load.instances * load.batch:
                if time.monotonic() > deadline:
                    raise PerfAnalyzerError(f"perf_analyzer sent nothing to {load.model} within {limit_s:g} s")
                await asyncio.sleep(_POLL_S)
            if not task.done():
                yield
            if task.done():
                await task  # says why
                raise PerfAnalyzerError(f"the perf_analyzer of {load.model} ended before the measurement did")
        finally:
            task.cancel()
            await asyncio.wait([task])

    def _request(self, load: Load, model: StudiedModel, kind: type[Request] = Request) -> Request:
        window_ms = self._plan.seconds * _MS_PER_S / (_WINDOWS * _WINDOW_STRETCH)
        return kind(
            url=self._client.url,
            model=load.model,
            version=model.metadata.version,
            input_name=model.input.name,
            shape=model.shape,
            batch=load.batch,
            concurrency=load.instances,
            output_bytes=self._output_bytes[load.model],
            agree_percent=_ANY_DIFFERENCE_PERCENT,
            window_ms=max(_LEAST_WINDOW_MS, round(window_ms)),
            limit_s=self._plan.point_limit_s,
        )
