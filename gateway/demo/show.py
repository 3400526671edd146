"""The demo's main part: cameras are admitted and send, one more is refused, and everything is counted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.client.client import FramegateClient
from gateway.client.pacing import NS_PER_S
from gateway.client.problems import GatewayUnreachable, NotSchedulable, ProblemError
from gateway.client.stats import OUTCOMES, Stats
from gateway.client.types import Admission, StreamHandle
from gateway.demo.books import Samples, imbalances, jobs_of, outcomes_of, parse_metrics
from gateway.demo.cameras import KEPT_PER_CAMERA, ClipFrames, DemoCamera
from gateway.demo.child import GatewayProcess
from gateway.demo.plan import MODEL, CameraPlan
from gateway.demo.progress import DemoError

NS_PER_MS = 1_000_000
#: Embedded Triton, model load and warm-up take two to five seconds.
READY_S = 60.0
#: From registration to the first frame: all cameras are registered before the first one sends.
LEAD_S = 1.0
#: The fifth camera asks when this share of the time is over.
FIFTH_AT = 0.3
#: Counters follow the last answer at once; the margin is for a stalled machine.
_BOOKS_S = 5.0


@dataclass(frozen=True)
class Refusal:
    """A camera that would have had an empty device to itself, and was refused this one."""

    plan: CameraPlan
    alone: Admission
    problem: NotSchedulable


@dataclass
class Show:
    """What was shown.

    Attributes:
        cameras: The admitted ones.
        refusal: The one that was not; None until then.
        imbalances: What does not add up, one line each; empty once all is well.
        seconds: From the first frame to the last answer.
        jobs, jobs_over: Jobs that ran, and those that took longer than their profiled time.
    """

    cameras: list[DemoCamera] = field(default_factory=list)
    refusal: Refusal | None = None
    imbalances: list[str] = field(default_factory=list)
    seconds: float = 0.0
    jobs: int = 0
    jobs_over: int = 0

    @property
    def stats(self) -> Stats:
        """All cameras together."""
        return Stats.together(camera.camera.stats for camera in self.cameras)


async def wait_ready(gateway: GatewayProcess) -> str:
    """Wait until the gateway takes frames, and return its base URL.

    Raises:
        DemoError: It ended, or takes too long.
    """
    deadline = time.monotonic() + READY_S
    while (url := gateway.url) is None:
        gateway.check()
        if time.monotonic() > deadline:
            raise DemoError(f"the gateway is not ready after {READY_S:.0f} s; its log is {gateway.log}")
        await asyncio.sleep(0.05)
    return url


async def admissible_alone(
    client: FramegateClient, candidates: Sequence[CameraPlan]
) -> list[tuple[CameraPlan, Admission]]:
    """Ask an idle gateway which of the candidates it would admit.

    Raises:
        DemoError: It has streams already, or admits none.
    """
    if any(stream.state == "active" for stream in await client.streams()):
        raise DemoError("the gateway is not empty")
    answers = [(plan, await _check(client, plan)) for plan in candidates]
    fitting = [(plan, answer) for plan, answer in answers if answer.admitted]
    if not fitting:
        raise DemoError(f"an empty gateway admits none of {[(plan.fps, plan.deadline_ms) for plan in candidates]}")
    return fitting


async def run_show(
    client: FramegateClient,
    plans: Sequence[CameraPlan],
    fitting_alone: Sequence[tuple[CameraPlan, Admission]],
    clips: Mapping[tuple[str, tuple[int, int]], ClipFrames],
    *,
    seconds: float,
    say: Callable[[str], None],
    show: Show,
) -> None:
    """Register the cameras, let them send for `seconds`, and have one more refused meanwhile; fills `show`.

    Raises:
        DemoError: One of `plans` is refused.
        ProblemError, GatewayUnreachable: Something is wrong with the gateway.
    """
    before = parse_metrics(await client.metrics())
    start_ns = time.monotonic_ns() + round(LEAD_S * NS_PER_S)
    for plan in plans:
        show.cameras.append(await _admit(client, plan, start_ns, seconds))
    for camera in show.cameras:
        camera.film(client, clips[camera.plan.clip, camera.plan.shape].filmed_at(camera.plan.fps))
    say(f"{len(show.cameras)} cameras admitted")
    until_ns = start_ns + round(seconds * NS_PER_S)
    try:
        sending = [
            asyncio.create_task(camera.camera.run(start_ns=camera.first_ns, until_ns=until_ns))
            for camera in show.cameras
        ]
        try:
            await asyncio.sleep(LEAD_S + FIFTH_AT * seconds)
            show.refusal = await refuse_one(client, fitting_alone)
            if show.refusal is not None:
                say(f"{show.refusal.plan.name} refused: {show.refusal.problem.detail}")
            await asyncio.gather(*sending)
        finally:
            for task in sending:
                task.cancel()
        await asyncio.gather(*(camera.camera.drain() for camera in show.cameras))
        show.seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
    finally:
        for camera in show.cameras:
            if camera.sender is not None:
                await camera.sender.aclose()
            with contextlib.suppress(ProblemError, GatewayUnreachable):  # the first error is the one to tell
                await client.close(camera.stream)
    after = await _settled(client)
    show.imbalances = imbalances(show.stats, outcomes_of(before, MODEL), outcomes_of(after, MODEL))
    ran, ran_before = jobs_of(after, MODEL), jobs_of(before, MODEL)
    show.jobs, show.jobs_over = ran[0] - ran_before[0], ran[1] - ran_before[1]


async def refuse_one(client: FramegateClient, fitting_alone: Sequence[tuple[CameraPlan, Admission]]) -> Refusal | None:
    """Register the first candidate that is refused for a deadline that can be named; None if all would fit."""
    for plan, alone in fitting_alone:
        now = await _check(client, plan)
        if now.admitted or now.evidence.first_miss is None:
            continue
        try:
            stream = await _register(client, plan)
        except NotSchedulable as refused:
            if refused.evidence.first_miss is not None:
                return Refusal(plan, alone, refused)
        else:
            await client.close(stream)  # the device's state changed between the two calls
    return None


async def _admit(client: FramegateClient, plan: CameraPlan, start_ns: int, seconds: float) -> DemoCamera:
    try:
        to_start_ms = (start_ns - time.monotonic_ns()) / NS_PER_MS
        stream = await _register(client, plan, start_in_ms=max(0.0, to_start_ms + plan.phase_ms))
    except NotSchedulable as refused:
        raise DemoError(f"{plan.name} was refused, which the demo did not expect: {refused.detail}") from refused
    keep_every = max(1, int(plan.fps * seconds) // KEPT_PER_CAMERA)
    return DemoCamera(plan, stream, start_ns, keep_every)


async def _register(client: FramegateClient, plan: CameraPlan, start_in_ms: float = 0.0) -> StreamHandle:
    return await client.register(
        MODEL,
        plan.frame_shape,
        fps=plan.fps,
        deadline_ms=plan.deadline_ms,
        jitter_ms=plan.jitter_ms,
        name=plan.name,
        start_in_ms=start_in_ms,
    )


async def _check(client: FramegateClient, plan: CameraPlan) -> Admission:
    return await client.check(
        MODEL,
        plan.frame_shape,
        fps=plan.fps,
        deadline_ms=plan.deadline_ms,
        jitter_ms=plan.jitter_ms,
        name=plan.name,
    )


async def _settled(client: FramegateClient) -> Samples:
    """Return the gateway's counters once they stand still."""
    deadline = time.monotonic() + _BOOKS_S
    while True:
        samples = parse_metrics(await client.metrics())
        counts = outcomes_of(samples, MODEL)
        if counts["accepted"] == sum(counts[name] for name in OUTCOMES) or time.monotonic() > deadline:
            return samples
        await asyncio.sleep(0.1)
