"""The camera agent behind ``framegate stream``: one video source, one stream, live figures."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console

from gateway.client.address import DEFAULT_URL
from gateway.client.camera import Camera
from gateway.client.client import FramegateClient
from gateway.client.comeback import GONE_CODES, register_again
from gateway.client.pacing import NS_PER_S, TOLERANCE
from gateway.client.problems import GatewayUnreachable, NotSchedulable, ProblemError
from gateway.client.reader import ReaderFeed
from gateway.client.screen import short_source, watch
from gateway.client.socket import SocketSender
from gateway.client.types import CounterOffer, Evidence, StreamHandle
from gateway.client.video import SourceError, VideoSource

#: How long a source may take to its first frame: an RTSP camera waits for a key frame.
FIRST_FRAME_S = 20.0


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
    http: bool = False
    name: str = ""
    burst: int = 1
    jitter_ms: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)


def explain_refusal(
    evidence: Evidence, offers: tuple[CounterOffer, ...], describe: Callable[[CounterOffer], str] = str
) -> list[str]:
    """Return the lines that tell a person why a stream does not fit and what would; `describe` words an offer."""
    lines = [f"reason {evidence.reason}"]
    if evidence.test and evidence.phase:  # phase 0: refused on its own figures, no test ran
        lines[0] += f"; utilisation with this stream {evidence.utilization:.2f}"
        seen = f", looked {evidence.horizon_ms:.0f} ms ahead at {evidence.frames_checked} frames"
        lines.append(f"{evidence.test} test, phase {evidence.phase}{seen if evidence.frames_checked else ''}")
    if (memory := evidence.memory) is not None:
        held = ", ".join(f"{name} {value}" for name, value in memory["held"].items()) or "nothing"
        lines.append(f"memory: needs {memory['needed']} of {memory['budget']} {memory['unit']}, {memory['free']} free")
        lines.append(f"  what has to stay: {held}")
    if evidence.reason == "swap" and (swap := evidence.swap) is not None:
        lines.append(f"turns in memory of {', '.join(swap['models'])}: up to {swap['longest_turn_ms']:.0f} ms each")
    if (miss := evidence.first_miss) is not None:
        shape = "x".join(map(str, miss.shape))
        names = ", ".join(name or stream for name, stream in zip(miss.names, miss.streams, strict=True))
        if evidence.test == "sporadic":
            lines.append("in the worst case of arrivals that the contracts allow:")
        lines += [
            f"first miss: {miss.frames} frame(s) of {miss.model} {shape}, released at {miss.release_ms:.1f} ms,",
            f"  due {miss.deadline_ms:.1f} ms, would end {miss.finish_ms:.1f} ms: "
            f"{miss.late_ms:.1f} ms late (of {names})",
        ]
    return lines + [f"would have been admitted at that moment: {describe(offer)}" for offer in offers]


def flag_of(offer: CounterOffer, burst: int = 1) -> str:
    """Return the option of ``framegate stream`` that takes up `offer`, rounded to the safe side."""
    if isinstance(offer.value, tuple):
        return f"--shape {offer.value[0]}x{offer.value[1]}"
    if offer.field == "swapping":
        return "--swapping"
    if offer.field == "period_ms":
        return f"--fps {math.floor(burst * 1e6 / offer.value) / 1e3:g}"
    return f"--deadline-ms {math.ceil(10 * offer.value) / 10:g}"


def explain_admission(evidence: Evidence, deadline_ms: float) -> list[str]:
    """Return the line that says what the test foresees for an admitted stream; none if it says nothing."""
    if evidence.worst_latency_ms is None:
        return []
    return [f"predicted worst latency {evidence.worst_latency_ms:.1f} ms of {deadline_ms:g} ms ({evidence.test} test)"]


async def run_agent(options: AgentOptions, console: Console) -> dict[str, Any]:
    """Register, send, and close the stream again; return the summary.

    The summary's ``error`` says in one line what went wrong while frames were sent; None when nothing did.

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
        async with FramegateClient(options.url) as client:
            agent = _Agent(client, options, (height, width), console)
            return await agent.run(feed)
    finally:
        feed.close()


class _Agent:
    """One run: a camera, and the streams that it has one after the other."""

    def __init__(
        self, client: FramegateClient, options: AgentOptions, shape: tuple[int, int], console: Console
    ) -> None:
        self._client = client
        self._options = options
        self._shape = shape
        self._console = console
        self._ended_by: ProblemError | None = None

    async def run(self, feed: ReaderFeed) -> dict[str, Any]:
        """See `run_agent`."""
        options = self._options
        height, width = self._shape
        try:
            stream = await self._register(options.frames)
        except GatewayUnreachable as error:
            raise GatewayUnreachable(f"is `framegate serve` running at {options.url}? {error}") from error
        self._say(f"stream {stream.stream_id} admitted: {options.model} {height}x{width} at {options.fps:g} fps")
        for line in explain_admission(stream.evidence, options.deadline_ms):
            self._say(f"  {line}")
        socket = None if options.http else SocketSender(options.url, self._client.timeout_s)
        camera = Camera(socket or self._client, stream, feed)
        try:
            stopped = await self._send(camera)
        finally:
            if socket is not None:
                await socket.aclose()
            # it may have ended by itself, and a gateway that is gone has no stream to close
            with contextlib.suppress(ProblemError, GatewayUnreachable):
                await self._client.close(camera.stream)
        return {
            "stream_id": camera.stream.stream_id,
            "name": options.name,
            "stopped_by": stopped,
            **camera.stats.as_dict(),
            "error": self._what_went_wrong(camera),
        }

    async def _register(self, frames: int | None) -> StreamHandle:
        options = self._options
        asked: dict[str, Any] = {"frames": frames, "name": options.name, "jitter_ms": options.jitter_ms}
        if options.jitter_ms is None:  # a tick may be late by so much, and is still sent
            asked["jitter_ms"] = TOLERANCE * 1e3 / options.fps
        fields = {**options.fields, **{name: value for name, value in asked.items() if value not in (None, "")}}
        rate: dict[str, Any] = {"fps": options.fps}
        if options.burst > 1:
            rate = {"burst": options.burst, "period_ms": options.burst * 1e3 / options.fps}
        return await self._client.register(
            options.model, (*self._shape, 3), deadline_ms=options.deadline_ms, **rate, **fields
        )

    async def _send(self, camera: Camera) -> str:
        """Run the camera under live figures until it ends or is interrupted; return what stopped it."""
        options = self._options
        start_ns = time.monotonic_ns()
        frames_s = None if options.frames is None else options.frames / options.fps
        limits_s = [seconds for seconds in (options.duration_s, frames_s) if seconds is not None]
        until_ns = start_ns + round(min(limits_s) * NS_PER_S) if limits_s else None
        headline = (
            f"{short_source(options.source)} -> {options.model} at {options.fps:g} fps, "
            f"deadline {options.deadline_ms:g} ms; p50, p99 in ms"
        )
        watching = asyncio.create_task(watch(camera, headline, self._console))
        try:
            while True:
                await camera.run(start_ns=start_ns, until_ns=until_ns, frames=options.frames)
                if camera.ended_by is None or not await self._come_back(camera, camera.ended_by, until_ns):
                    break
            await camera.drain()
        except asyncio.CancelledError:
            # Ctrl-C is the ordinary way to end a camera: take the answers that are under way and finish
            _uncancel()
            await camera.drain(timeout_s=max(1.0, 2 * options.deadline_ms / 1e3))
            return "interrupt"
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        return self._ended_by.code if self._ended_by is not None else "end"

    async def _come_back(self, camera: Camera, ended_by: ProblemError, until_ns: int | None) -> bool:
        """Give the camera another stream in place of the one that ended, if that makes sense; else note why not."""
        frames = self._options.frames
        stream = None
        self._ended_by = ended_by

        def again() -> Awaitable[StreamHandle]:
            return self._register(None if frames is None else max(1, camera.left(frames)))

        if ended_by.code in GONE_CODES and (frames is None or camera.left(frames) > 0):
            self._say(f"the gateway has no such stream any more ({ended_by.code}); registering again")
            try:
                stream = await register_again(self._client, camera.stream, again, until_ns=until_ns, say=self._say)
            except ProblemError as error:
                self._ended_by = error
                if isinstance(error, NotSchedulable):
                    flag = partial(flag_of, burst=self._options.burst)
                    for line in explain_refusal(error.evidence, error.counter_offers, flag):
                        self._say(f"  {line}")
        if stream is None:
            return False
        self._ended_by = None
        self._say(f"registered again as stream {stream.stream_id}")
        camera.resume(stream)
        return True

    def _what_went_wrong(self, camera: Camera) -> str | None:
        found = []
        if self._ended_by is not None:
            found.append(f"stopped by {self._ended_by}")
        if camera.stats.lost:
            reason = camera.contact.last_error or "no answer came in time"
            found.append(f"{camera.stats.lost} frames were lost; the last reason: {reason}")
        return "; ".join(found) or None

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
