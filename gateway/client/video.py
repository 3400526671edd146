"""Frames of a video file, a camera device or a network stream, decoded by PyAV.

A file is a deterministic source: frame `index` has the same pixels each time it is decoded, so a result can
be checked against an independent run on the same frame. Devices and network streams are live: their frames
are numbered in the order of arrival and cannot be had again.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

#: Rate that is assumed for a source that does not state one.
DEFAULT_FPS = Fraction(25)


class SourceError(Exception):
    """The video cannot be opened or holds no picture."""


class SourceKind(StrEnum):
    """Where frames come from."""

    FILE = "file"
    DEVICE = "device"
    URL = "url"


@dataclass(frozen=True)
class VideoFrame:
    """One decoded frame.

    Attributes:
        index: Position in the source, from 0; in a looped file, the position in the clip.
        image: ``[H, W, 3]`` uint8, RGB.
    """

    index: int
    image: Pixels


def kind_of(source: str) -> SourceKind:
    """Return what `source` names: a URL has a scheme, a V4L2 device is a character device."""
    if "://" in source:
        return SourceKind.URL
    path = Path(source)
    if path.exists() and stat.S_ISCHR(path.stat().st_mode):
        return SourceKind.DEVICE
    return SourceKind.FILE


def resize(image: Pixels, shape: tuple[int, int] | None) -> Pixels:
    """Return `image` at `shape` (height, width): area averages when it shrinks, bilinear when it grows."""
    if shape is None or image.shape[:2] == shape:
        return image
    shrinks = shape[0] * shape[1] < image.shape[0] * image.shape[1]
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    resized: Pixels = cv2.resize(image, (shape[1], shape[0]), interpolation=interpolation)
    return resized


class VideoSource:
    """A source that can be iterated for `VideoFrame`; each iteration opens it anew.

    Decoding blocks: iterate in a thread of its own (`gateway.client.reader`), not on an event loop.

    Args:
        source: A path, a V4L2 device such as ``/dev/video0``, or a URL (``rtsp://``, ``http://``).
        shape: (height, width) to resize to; None keeps the source's.
        loop: Start a file again at its end. Ignored for live sources.
        options: Passed to FFmpeg's demuxer, for example ``{"video_size": "1280x720"}``.

    Raises:
        SourceError: On iteration or `probe`, when it cannot be opened or has no picture.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        shape: tuple[int, int] | None = None,
        loop: bool = False,
        options: dict[str, str] | None = None,
    ) -> None:
        self.source = str(source)
        self.kind = kind_of(self.source)
        self.shape = shape
        self.loop = loop and self.kind is SourceKind.FILE
        self.options = {**self._default_options(), **(options or {})}

    @property
    def live(self) -> bool:
        """Whether frames come when the camera likes, rather than when they are asked for."""
        return self.kind is not SourceKind.FILE

    def probe(self) -> tuple[tuple[int, int], Fraction]:
        """Return (height, width) of the frames that an iteration yields, and the source's own rate."""
        with self._open() as container:
            stream = _video_stream(container, self.source)
            shape = self.shape or (int(stream.height), int(stream.width))
            return shape, Fraction(stream.average_rate or DEFAULT_FPS)

    def __iter__(self) -> Iterator[VideoFrame]:
        while True:
            empty = True
            for frame in self._decode_once():
                empty = False
                yield VideoFrame(frame.index, resize(frame.image, self.shape))
            if empty:
                raise SourceError(f"{self.source} holds no picture")
            if not self.loop:
                return

    def sampled(self, fps: float) -> Iterator[VideoFrame]:
        """Yield what a camera of rate `fps` would have seen of a file: frame ``floor(k * own rate / fps)``.

        A looped file goes on without a seam. Live sources yield every frame.
        """
        if self.live:
            yield from self
            return
        step = self.probe()[1] / Fraction(fps).limit_denominator(1_000_000)
        wanted = Fraction(0)
        for position, frame in enumerate(self):
            while position == wanted // 1:
                yield frame
                wanted += step

    def pick(self, indices: Sequence[int]) -> dict[int, Pixels]:
        """Decode a file again and return the frames at `indices`.

        Raises:
            SourceError: The clip ends before one of them.
        """
        missing = set(indices)
        found: dict[int, Pixels] = {}
        for frame in self._decode_once():
            if frame.index in missing:
                found[frame.index] = resize(frame.image, self.shape)
                missing.discard(frame.index)
            if not missing:
                return found
        raise SourceError(f"{self.source} has no frame {min(missing)}" if missing else f"{self.source} is empty")

    def _decode_once(self) -> Iterator[VideoFrame]:
        with self._open() as container:
            stream = _video_stream(container, self.source)
            try:
                for index, frame in enumerate(container.decode(stream)):
                    yield VideoFrame(index, frame.to_ndarray(format="rgb24"))
            except av.error.FFmpegError as error:
                raise SourceError(f"{self.source}: {error}") from error

    def _open(self) -> Any:  # noqa: ANN401 - the container's type differs between PyAV's versions
        if self.kind is SourceKind.FILE and not Path(self.source).is_file():
            raise SourceError(f"there is no file {self.source}")
        try:
            if self.kind is SourceKind.DEVICE:
                return av.open(self.source, format="v4l2", options=self.options)
            return av.open(self.source, options=self.options)
        except (av.error.FFmpegError, OSError) as error:
            raise SourceError(f"{self.source} cannot be opened: {error}") from error

    def _default_options(self) -> dict[str, str]:
        # UDP loses packets of large pictures on most networks; FFmpeg would wait for ever on a dead camera
        return {"rtsp_transport": "tcp", "timeout": "10000000"} if self.source.startswith("rtsp") else {}


def _video_stream(container: Any, source: str) -> Any:  # noqa: ANN401
    if not container.streams.video:
        raise SourceError(f"{source} has no video in it")
    return container.streams.video[0]
