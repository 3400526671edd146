"""A camera: sends the frames of one stream open-loop, at their true rate, whatever the answers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway import errors
from gateway.client.contact import Contact
from gateway.client.pacing import NS_PER_S, Schedule
from gateway.client.problems import GatewayUnreachable, ProblemError
from gateway.client.reader import FrameFeed
from gateway.client.stats import IN_FLIGHT, LATE, NO_PICTURE, Stats
from gateway.client.types import FrameResult, StreamHandle
from gateway.client.video import VideoFrame
from gateway.client.wire import Frame

#: After one of these no further frame of the stream can be accepted.
ENDED_CODES = frozenset({errors.StreamClosed.code, errors.StreamNotFound.code, errors.StreamFinished.code})


@dataclass(frozen=True)
class SentFrame:
    """One frame that was answered.

    Attributes:
        tick: Its place in the camera's schedule.
        frame: As it was sent.
        sent_ns: When, on the camera's monotonic clock.
        result: The gateway's answer.
    """

    tick: int
    frame: VideoFrame
    sent_ns: int
    result: FrameResult


class FrameSender(Protocol):
    """Takes frames to the gateway: `FramegateClient`, by calls, or `gateway.client.socket.SocketSender`."""

    async def post_frames(self, stream: StreamHandle, frames: Sequence[Frame]) -> list[FrameResult]:
        """Send frames and wait for their results, in order. Raises `ProblemError`, `GatewayUnreachable`."""


class Camera:
    """Sends one stream's frames.

    Each frame, or each group of as many as the stream's `burst` says, is sent on its own, and its results waited for.
    A slow gateway does not slow the camera: up to `max_in_flight` groups are under way at a time, and what would be
    sent beyond that is skipped and counted.

    Args:
        sender: Takes the frames to the gateway.
        stream: As it was admitted.
        feed: Where frames come from.
        max_in_flight: None: two deadlines' worth of groups, and at least two.
        on_frame: Called with each answered frame, on the event loop.
        now_ns: The monotonic clock; for tests.
        sleep: Waits a number of seconds on that clock; for tests.

    Attributes:
        stream: As it was admitted; another one after `resume`.
        stats: Running figures, over all its streams.
        contact: Whether the gateway answers.
        ended_by: The problem that ended the stream from the gateway's side, if one did.
    """

    def __init__(
        self,
        sender: FrameSender,
        stream: StreamHandle,
        feed: FrameFeed,
        *,
        max_in_flight: int | None = None,
        on_frame: Callable[[SentFrame], None] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.stream = stream
        self.stats = Stats()
        self.contact = Contact()
        self.ended_by: ProblemError | None = None
        self._sender = sender
        self._feed = feed
        self._max_in_flight = max_in_flight or max(2, round(2 * stream.deadline_ms / stream.period_ms))
        self._on_frame = on_frame
        self._now_ns = now_ns
        self._sleep = sleep
        self._schedule: Schedule | None = None
        self._group: list[tuple[int, VideoFrame]] = []
        self._next_group = 0  # the tick of its last frame, at the earliest
        self._in_flight: dict[asyncio.Task[None], int] = {}

    @property
    def in_flight(self) -> int:
        """Frames sent and not answered yet."""
        return sum(self._in_flight.values())

    async def run(self, *, start_ns: int | None = None, until_ns: int | None = None, frames: int | None = None) -> None:
        """Send until the feed ends, `frames` periods or the time `until_ns` are over, or the stream is gone.

        What is skipped uses up its period: made up for later, it would come when no frame is registered any more.
        Cancel it to stop the camera; call `drain` after it in either case. After `resume`, run it again: the first
        run's schedule goes on, and what lies between is skipped.
        """
        if self._schedule is None:
            rate = self.stream.burst * 1e3 / self.stream.period_ms
            self._schedule = Schedule(self._now_ns() if start_ns is None else start_ns, rate)
        schedule = self._schedule
        while self.ended_by is None and not self._feed.ended:
            tick = schedule.upcoming(self._now_ns())
            if frames is not None and tick >= frames:
                self.stats.skips[LATE] += schedule.pass_over(frames)
                break
            if until_ns is not None and schedule.at_ns(tick) >= until_ns:
                break
            if (wait_ns := schedule.at_ns(tick) - self._now_ns()) > 0:
                await self._sleep(wait_ns / NS_PER_S)
                continue  # look again: the wait may have taken too long
            self.stats.skips[LATE] += schedule.use(tick)
            self._tick(tick)
        await self._send_rest(schedule)

    async def _send_rest(self, schedule: Schedule) -> None:
        """Send the last group, which need not be full: no sooner than its period lets it come, or it were surplus."""
        while self._group and (wait_ns := schedule.at_ns(self._next_group) - self._now_ns()) > 0:
            if self.ended_by is not None:
                break
            await self._sleep(wait_ns / NS_PER_S)
        if self.ended_by is None:
            self._send_group()

    def resume(self, stream: StreamHandle) -> None:
        """Take `stream`, with the contract of the one that ended, in its place."""
        self.stream, self.ended_by = stream, None

    def left(self, frames: int) -> int:
        """Return how many of `frames` periods are still to come."""
        return frames if self._schedule is None else max(0, frames - self._schedule.upcoming(self._now_ns()))

    async def drain(self, timeout_s: float = 10.0) -> None:
        """Wait for the frames in flight; those without an answer in time are lost."""
        if not self._in_flight:
            return
        _, late = await asyncio.wait(self._in_flight, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _tick(self, tick: int) -> None:
        # taken also when it cannot be sent: the picture of a skipped tick is gone, as a camera's would be
        frame = self._feed.take()
        if frame is None:
            self.stats.skips[NO_PICTURE] += 0 if self._feed.ended else 1
            return
        self._group.append((tick, frame))
        if len(self._group) >= self.stream.burst:
            self._send_group()

    def _send_group(self) -> None:
        group, self._group = self._group, []
        if not group:
            return
        self._next_group = max(self._next_group, group[-1][0]) + self.stream.burst
        if len(self._in_flight) >= self._max_in_flight:
            self.stats.skips[IN_FLIGHT] += len(group)
            return
        self.stats.sent += len(group)
        task = asyncio.create_task(self._send(group, self._now_ns()))
        self._in_flight[task] = len(group)
        task.add_done_callback(self._in_flight.pop)

    async def _send(self, group: list[tuple[int, VideoFrame]], sent_ns: int) -> None:
        stream, answered = self.stream, False
        try:
            results = await self._sender.post_frames(stream, [frame.image for _, frame in group])
            answered = True
        except ProblemError as error:
            answered = True
            self.stats.refusals[error.code] += len(group)
            self.contact.answered(sent_ns, str(error))
            if error.code in ENDED_CODES and stream is self.stream:
                self.ended_by = error
            return
        except GatewayUnreachable as error:
            self.contact.failed(sent_ns, str(error))
            return
        finally:
            self.stats.lost += 0 if answered else len(group)
        self.contact.answered(sent_ns)
        for (tick, frame), result in zip(group, results, strict=True):
            self.stats.add(result)
            if self._on_frame is not None:
                self._on_frame(SentFrame(tick, frame, sent_ns, result))
