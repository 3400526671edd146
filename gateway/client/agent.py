"""The camera agent behind ``framegate stream``: one video source, one stream, live figures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gateway.client.camera import Camera
from gateway.client.client import DEFAULT_URL, FramegateClient
from gateway.client.pacing import NS_PER_S
from gateway.client.problems import GatewayUnreachable, ProblemError
from gateway.client.reader import ReaderFeed
from gateway.client.types import CounterOffer, Evidence, StreamHandle
from gateway.client.video import SourceError, VideoSource

#: How long a source may take to its first frame: an RTSP camera waits for a key frame.
FIRST_FRAME_S = 20.0
#: Between two plain lines when the output is no terminal.
PLAIN_EVERY_S = 5.0


@dataclass(frozen=True)
class AgentOptions:
    """What ``framegate stream`` was asked for; see its help."""

    source: str
    model: str
    fps: float
    deadline_ms: float
    shape: tuple[int, int] | None = None
    frames: int | None = None
    duration_s: float | None = None
    loop: bool = False
    url: str = DEFAULT_URL
    name: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def explain_refusal(evidence: Evidence, offers: tuple[CounterOffer, ...]) -> list[str]:
    """Return the lines that tell a person why a stream does not fit and what would."""
    lines = [f"reason {evidence.reason}; utilisation with this stream {evidence.utilization:.2f}"]
    if evidence.test:
        seen = f", looked {evidence.horizon_ms:.0f} ms ahead at {evidence.frames_checked} frames"
        lines[0] += f"; {evidence.test} test, phase {evidence.phase}{seen if evidence.frames_checked else ''}"
    if (miss := evidence.first_miss) is not None:
        shape = "x".join(map(str, miss.shape))
        lines.append(
            f"first miss: {miss.frames} frame(s) of {miss.model} {shape}, released at {miss.release_ms:.1f} ms, "
            f"due {miss.deadline_ms:.1f} ms, would end {miss.finish_ms:.1f} ms: {miss.late_ms:.1f} ms late "
            f"(of {', '.join(name or stream for name, stream in zip(miss.names, miss.streams, strict=True))})"
        )
    lines += [f"would be admitted now: {offer}" for offer in offers]
    return lines


async def run_agent(options: AgentOptions, console: Console) -> dict[str, Any]:
    """Register, send, and close the stream again; return the summary.

    Raises:
        SourceError: The video cannot be read.
        NotSchedulable: The stream was refused.
        ProblemError, GatewayUnreachable: The gateway did not take it.
    """
    source = VideoSource(options.source, shape=options.shape, loop=options.loop)
    (height, width), _ = await asyncio.to_thread(source.probe)
    feed = ReaderFeed(source, options.fps)
    try:
        if not await asyncio.to_thread(feed.wait_first, FIRST_FRAME_S):
            raise SourceError(f"{options.source} gave no frame within {FIRST_FRAME_S:.0f} s")
        async with FramegateClient(options.url) as client, _registered(client, options, (height, width)) as stream:
            console.print(f"stream {stream.stream_id} admitted: {options.model} {height}x{width} at {options.fps} fps")
            camera = Camera(client, stream, feed)
            stopped = await _send(camera, options, console)
            return {
                "stream_id": stream.stream_id,
                "name": options.name,
                "stopped_by": stopped,
                **camera.stats.as_dict(),
            }
    finally:
        feed.close()


@contextlib.asynccontextmanager
async def _registered(
    client: FramegateClient, options: AgentOptions, shape: tuple[int, int]
) -> AsyncIterator[StreamHandle]:
    fields = {**options.fields, **({"frames": options.frames} if options.frames else {})}
    if options.name:
        fields["name"] = options.name
    stream = await client.register(
        options.model, (*shape, 3), deadline_ms=options.deadline_ms, fps=options.fps, **fields
    )
    try:
        yield stream
    finally:
        # it may have ended by itself, and a gateway that is gone has no stream to close
        with contextlib.suppress(ProblemError, GatewayUnreachable):
            await client.close(stream)


async def _send(camera: Camera, options: AgentOptions, console: Console) -> str:
    """Run the camera under a live table until it ends or is interrupted; return what stopped it."""
    start_ns = time.monotonic_ns()
    until_ns = None if options.duration_s is None else start_ns + round(options.duration_s * NS_PER_S)
    watch = asyncio.create_task(_watch(camera, options, console))
    stopped = "end"
    try:
        await camera.run(start_ns=start_ns, until_ns=until_ns, frames=options.frames)
        await camera.drain()
    except asyncio.CancelledError:
        # Ctrl-C is the ordinary way to end a camera: take the answers that are under way and finish
        stopped = "interrupt"
        _uncancel()
        await camera.drain(timeout_s=max(1.0, 2 * options.deadline_ms / 1e3))
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
    if camera.ended_by is not None:
        stopped = camera.ended_by.code
    return stopped


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _watch(camera: Camera, options: AgentOptions, console: Console) -> None:
    """Show running figures: a table on a terminal, a line now and then elsewhere."""
    if not console.is_terminal:
        while True:
            await asyncio.sleep(PLAIN_EVERY_S)
            console.print(_line(camera))
    with Live(_table(camera, options), console=console, refresh_per_second=4) as live:
        try:
            while True:
                await asyncio.sleep(0.25)
                live.update(_table(camera, options))
        finally:
            live.update(_table(camera, options), refresh=True)


def _line(camera: Camera) -> str:
    figures = camera.stats.as_dict()
    return " ".join(f"{name}={value}" for name, value in figures.items() if value is not None)


def _table(camera: Camera, options: AgentOptions) -> Table:
    table = Table(title=f"{options.source} -> {options.model} at {options.fps} fps, deadline {options.deadline_ms} ms")
    figures = {**camera.stats.as_dict(), "in_flight": camera.in_flight}
    for name in figures:
        table.add_column(name, justify="right")
    table.add_row(*("-" if value is None else str(value) for value in figures.values()))
    return table
