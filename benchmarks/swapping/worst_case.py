"""The worst case: two models alternate, with room for one, while a third is resident and has deadlines to keep."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.swapping.models import CLASSES, EXTRA, FACES, TestModel
from benchmarks.swapping.reference import Swap, alternate, means
from benchmarks.swapping.serving import Feed, SwapLog, make_settings, quiet, serving
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome, StreamSpec
from gateway.errors import FrameSurplus
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import FrameResult

#: They load in 0.2 and in over half a second.
PAIR = (CLASSES, EXTRA)
THIRD = FACES
#: Of the third model's camera. It shares a processor with the gateway and with loads, so it is not exact.
PERIOD_NS, DEADLINE_NS, JITTER_NS = NS_PER_S // 10, 600 * NS_PER_MS, 40 * NS_PER_MS
#: Largest batch of all that swaps here: a camera may have to wait for one, and for a first execution.
MOST_FRAMES = 2
#: And of the others.
MOST = 8
#: What best effort is allowed, by its longest first execution.
_ALLOWED = 1.25
Say = Callable[[str], object]


@dataclass
class Camera:
    """A real-time stream that sends by its contract."""

    gateway: Gateway
    stream_id: str
    spec: StreamSpec
    frame: bytes
    phase_s: float = 0.0
    results: list[asyncio.Future[FrameResult]] = field(default_factory=list)
    refused: int = 0

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + self.phase_s
        while True:
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            try:
                self.results += [ticket.result for ticket in self.gateway.submit(self.stream_id, self.frame)]
            except FrameSurplus:
                self.refused += 1  # the loop was so late with the one before
            at_s += self.spec.period_ns / NS_PER_S

    async def outcomes(self) -> Counter[str]:
        """How its frames ended, as soon as all have; those that were not taken are among them."""
        ended = Counter(result.outcome.value for result in await asyncio.gather(*self.results))
        return ended + Counter(refused=self.refused)

    def clear(self) -> None:
        """Forget them."""
        self.results.clear()
        self.refused = 0


@asynccontextmanager
async def sending(*cameras: Camera) -> AsyncIterator[None]:
    """Meanwhile, the cameras send; one that fails ends it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(camera.run()) for camera in cameras]
        yield
        for task in tasks:
            task.cancel()


def camera_spec(model: TestModel, period_ns: int, deadline_ns: int) -> StreamSpec:
    """Of a camera without an end."""
    return StreamSpec(model.name, "1", model.shape, period_ns, deadline_ns, jitter_ns=JITTER_NS)


def known(profile: Profile, swapping: Sequence[TestModel], resident: Sequence[TestModel] = ()) -> Profile:
    """What a gateway of these models knows: of those that swap, batches of up to `MOST_FRAMES`."""
    most = {model.name: MOST_FRAMES for model in swapping} | {model.name: MOST for model in resident}
    return Profile(
        entries=tuple(e for e in profile.entries if e.batch <= most.get(e.model, 0)),
        models=tuple(m for m in profile.models if m.model in most),
        device=profile.device,
    )


def blocking_ms(profile: Profile, *models: TestModel) -> float:
    """Return for how long best effort on `models` may hold up cameras: less, and they would never be warmed."""
    names = {model.name for model in models}
    return _ALLOWED * max(entry.warm_up_ms or 0.0 for entry in profile.models if entry.model in names)


async def through_the_gateway(url: str, profile: Profile, *, headroom: int, swaps: int) -> dict[str, Any]:
    """Alternate blocking calls to the pair, so that each has to swap; return how long swaps took, and the camera."""
    log = SwapLog()
    allowed_ms = blocking_ms(profile, *PAIR)
    settings = make_settings(url, (THIRD, *PAIR), blocking_ms=allowed_ms, max_models=2, headroom_models=headroom)
    async with serving(settings, known(profile, PAIR, [THIRD]), log) as gateway:
        spec = camera_spec(THIRD, PERIOD_NS, DEADLINE_NS)
        registration = await gateway.register(spec)
        if registration.stream is None:
            raise SystemExit(f"the camera of {THIRD.name} was refused: {registration.verdict}")
        camera = Camera(gateway, registration.stream.stream_id, spec, THIRD.frame())
        feeds = [await Feed.open(gateway, model) for model in PAIR]
        found = []
        async with sending(camera):
            for feed in feeds:  # the first load is no swap
                await feed.call()
            await quiet(gateway)
            for n in range(swaps):
                log.clear()
                result = await feeds[n % 2].call()
                assert result.outcome is Outcome.MET, result.reason
                await quiet(gateway)
                found.append(log.swap().ms)
        outcomes = await camera.outcomes()
    return {
        "swap_ms": [round(ms, 1) for ms in found],
        "mean_ms": round(fmean(found), 1),
        "third": dict(outcomes),
    }


async def measure_worst_case(url: str, profile: Profile, say: Say, *, swaps: int) -> dict[str, Any]:
    """The plain client before and after, and the gateway with a strict budget and with one that leaves room."""
    plain = await _plain(url, swaps // 2)
    strict = await through_the_gateway(url, profile, headroom=0, swaps=swaps)
    say(f"worst case, strict: {strict}")
    overlap = await through_the_gateway(url, profile, headroom=1, swaps=swaps)
    say(f"worst case, with room to overlap: {overlap}")
    reference = means(plain + await _plain(url, swaps // 2))
    say(f"worst case, plain client: {reference}")
    third = Counter(strict["third"]) + Counter(overlap["third"])
    return {
        "plain": {name: round(value, 4) for name, value in asdict(reference).items()},
        "strict": strict,
        "overlap": overlap,
        "swap_strict_ratio": round(strict["mean_ms"] / 1e3 / reference.sum_s, 3),
        "swap_overlap_ratio": round(overlap["mean_ms"] / 1e3 / reference.larger_s, 3),
        "third_model_met": round(third["met"] / third.total(), 4),
    }


async def _plain(url: str, swaps: int) -> list[Swap]:
    sizes = (1, MOST_FRAMES)
    alternating = partial(alternate, beside=THIRD, period_s=PERIOD_NS / NS_PER_S, batches=sizes, swaps=swaps)
    return await asyncio.to_thread(alternating, url, PAIR)
