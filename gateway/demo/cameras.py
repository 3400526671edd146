"""The cameras while they run: frames from memory, results with their faces, a sample kept for the comparison.

Pictures are decoded before the cameras start: on a small machine, decoding 1280x720 video beside the model would
make the demo measure the decoder.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.client.boxes import Faces, faces_of_outputs
from gateway.client.camera import Camera, SentFrame
from gateway.client.client import FramegateClient
from gateway.client.reader import MemoryFeed
from gateway.client.socket import SocketSender
from gateway.client.types import StreamHandle
from gateway.client.video import VideoFrame, VideoSource
from gateway.demo.plan import CameraPlan

#: Frames of each camera whose outputs are kept, evenly spread: 80 in all, with 120 to 560 kB each.
KEPT_PER_CAMERA = 20
#: Least score of a face that is counted and drawn: below it the detector takes a leaf or a wheel for one.
SURE = 0.5
#: Rates on the screen are those of the last moments.
_RATE_OVER = 20


@dataclass(frozen=True)
class KeptFrame:
    """A frame whose outputs are compared with an independent run later.

    Attributes:
        camera, clip, shape, index: Which frame of which clip, at which size.
        batch: Frames of the job that it ran in.
        outputs: As they came through the gateway.
    """

    camera: str
    clip: str
    shape: tuple[int, int]
    index: int
    batch: int
    outputs: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class FrameRecord:
    """One answered frame, without its pixels; times in ms, `at_s` since the cameras started, `faces` sure ones."""

    at_s: float
    index: int
    outcome: str
    latency_ms: float | None
    batch: int | None
    faces: int | None
    best_score: float


@dataclass
class DemoCamera:
    """A camera and everything that is known of its frames.

    Attributes:
        plan, stream, camera, sender: What was asked for, what was admitted, what sends, and over what.
        start_ns: The cameras' common start, on the monotonic clock.
        keep_every: Every how manieth frame's outputs are kept.
        records: One per answered frame.
        kept: For the comparison.
        best: The answered frame with the surest face, and its faces in pixels of the frame sent.
    """

    plan: CameraPlan
    stream: StreamHandle
    start_ns: int
    keep_every: int
    camera: Camera = field(init=False)
    sender: SocketSender | None = None
    records: list[FrameRecord] = field(default_factory=list)
    kept: list[KeptFrame] = field(default_factory=list)
    best: tuple[int, Faces] | None = None
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RATE_OVER))

    def film(self, client: FramegateClient, frames: Sequence[VideoFrame]) -> None:
        """Make the camera that sends `frames` over a WebSocket; run it with `camera.run`, close `sender` at last."""
        self.sender = SocketSender(client.url, client.timeout_s)
        self.camera = Camera(self.sender, self.stream, MemoryFeed(frames), on_frame=self.on_frame)

    def on_frame(self, sent: SentFrame) -> None:
        """Record one answered frame."""
        at_s = (sent.sent_ns - self.start_ns) / 1e9
        result = sent.result
        height, width, *_ = result.shape or self.plan.shape
        faces = faces_of_outputs(result.outputs, (height, width)) if result.outputs else None
        self.recent.append(at_s)
        score = float(faces.scores[0]) if faces is not None and len(faces) else 0.0
        native = not result.degraded  # else its faces are places in a smaller picture than the one that was sent
        if faces is not None and native and score > self.best_score:
            self.best = (sent.frame.index, faces)
        self.records.append(
            FrameRecord(
                at_s=at_s,
                index=sent.frame.index,
                outcome=result.outcome,
                latency_ms=result.latency_ms,
                batch=result.batch,
                faces=None if faces is None else int((faces.scores >= SURE).sum()),
                best_score=score,
            )
        )
        if result.outputs and native and self._is_kept(result.batch or 0):
            self.kept.append(
                KeptFrame(
                    self.plan.name,
                    self.plan.clip,
                    self.plan.shape,
                    sent.frame.index,
                    result.batch or 0,
                    dict(result.outputs),
                )
            )

    def _is_kept(self, batch: int) -> bool:
        """Keep an even sample; and of the frames that shared a batch, which are rarer, all up to a limit."""
        shared = batch > 1 and len(self.kept) < 2 * KEPT_PER_CAMERA
        return shared or len(self.records) % self.keep_every == 1 % self.keep_every

    @property
    def first_ns(self) -> int:
        """When its first frame is due, on the monotonic clock."""
        return self.start_ns + round(self.plan.phase_ms * 1e6)

    @property
    def best_score(self) -> float:
        """Score of the surest face so far."""
        return float(self.best[1].scores[0]) if self.best is not None else 0.0

    @property
    def fps(self) -> float:
        """Rate at which frames were sent lately."""
        if len(self.recent) < 2:
            return 0.0
        return (len(self.recent) - 1) / (self.recent[-1] - self.recent[0] or math.inf)

    @property
    def frames_with_face(self) -> int:
        """Frames so far in which a sure face was found."""
        return sum(1 for record in self.records if record.faces)


@dataclass(frozen=True)
class ClipFrames:
    """A clip decoded once, at one size."""

    fps: Fraction
    frames: Sequence[VideoFrame]

    def filmed_at(self, fps: float) -> list[VideoFrame]:
        """Return what a camera of rate `fps` sees until the looped clip is back at its first frame.

        Frame k of the camera is frame ``floor(k * own rate / fps)`` of the endless loop.
        """
        step = self.fps / Fraction(fps).limit_denominator(1_000_000)
        # after `count` frames, count * step is a whole number of clips; cut where that takes too long
        cycle = Fraction(len(self.frames)) / step
        count = min(cycle.numerator, 10_000)
        return [self.frames[math.floor(k * step) % len(self.frames)] for k in range(count)]


def decode_clips(
    plans: Sequence[CameraPlan], clips: Mapping[str, Path]
) -> dict[tuple[str, tuple[int, int]], ClipFrames]:
    """Decode each clip once per size that is asked for."""
    decoded = {}
    for clip, shape in dict.fromkeys((plan.clip, plan.shape) for plan in plans):
        source = VideoSource(clips[clip], shape=shape)
        decoded[clip, shape] = ClipFrames(source.probe()[1], list(source))
    return decoded


def faces_found(cameras: Sequence[DemoCamera], clip: str) -> float:
    """Return the share of frames sent by cameras of `clip` in which a sure face was found."""
    of_clip = [camera for camera in cameras if camera.plan.clip == clip]
    found = sum(camera.frames_with_face for camera in of_clip)
    return found / max(1, sum(camera.camera.stats.sent for camera in of_clip))


def batches(cameras: Sequence[DemoCamera]) -> dict[int, int]:
    """Return the number of jobs by batch size, over all cameras."""
    frames = Counter(record.batch for camera in cameras for record in camera.records if record.batch)
    return {size: round(count / size) for size, count in sorted(frames.items()) if size}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile; None of nothing."""
    return float(np.percentile(values, percent)) if values else None
