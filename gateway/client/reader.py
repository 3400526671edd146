"""Where a camera's next frame comes from: decoded ahead in a thread, or kept in memory.

The event loop that sends frames never decodes: one 1280x720 picture takes longer to decode than the gateway
needs to answer.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from gateway.client.video import SourceError, VideoFrame, VideoSource

#: How long the thread waits on a full queue before it looks whether it is to stop.
_POLL_S = 0.1


class FrameFeed(Protocol):
    """What a camera takes its frames from; never blocks."""

    def take(self) -> VideoFrame | None:
        """Return the next frame, or None when there is none at this moment."""

    @property
    def ended(self) -> bool:
        """Whether there will be no further frame."""

    def close(self) -> None:
        """Let go of the source."""


class MemoryFeed:
    """Frames that were decoded before; they repeat for ever.

    Raises:
        SourceError: There is none.
    """

    ended = False

    def __init__(self, frames: Sequence[VideoFrame]) -> None:
        if not frames:
            raise SourceError("a feed needs at least one frame")
        self._frames = frames
        self._next = 0

    def take(self) -> VideoFrame:
        """Return the next frame."""
        frame = self._frames[self._next % len(self._frames)]
        self._next += 1
        return frame

    def close(self) -> None:
        """Do nothing: memory needs no closing."""


class ReaderFeed:
    """Decodes in a thread: a few frames ahead from a file, only the newest from a live source.

    Args:
        source: What to decode.
        fps: Rate of the camera; a file's frames are sampled to it.
        depth: How many frames of a file are decoded ahead.
    """

    def __init__(self, source: VideoSource, fps: float, *, depth: int = 4) -> None:
        self._live = source.live
        self._frames: queue.Queue[VideoFrame] = queue.Queue(maxsize=1 if self._live else depth)
        self._stop = threading.Event()
        self._started = threading.Event()
        self._done = threading.Event()
        self._error: SourceError | None = None
        self._thread = threading.Thread(
            target=self._run, args=(source.sampled(fps),), name=f"decode {source.source}", daemon=True
        )
        self._thread.start()

    def take(self) -> VideoFrame | None:
        """Return the next decoded frame, or None.

        Raises:
            SourceError: Decoding failed, once the frames before the failure are taken.
        """
        try:
            return self._frames.get_nowait()
        except queue.Empty:
            if self._done.is_set() and self._frames.empty() and self._error is not None:
                raise self._error from None
            return None

    @property
    def ended(self) -> bool:
        """Whether the source is at its end and every decoded frame was taken."""
        return self._done.is_set() and self._frames.empty() and self._error is None

    def wait_first(self, timeout_s: float) -> bool:
        """Block until a frame is decoded or decoding ended; return False when time is up before that."""
        return self._started.wait(timeout_s)

    def close(self) -> None:
        """Stop the thread; waits for at most one frame's decoding."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self, frames: Iterator[VideoFrame]) -> None:
        try:
            for frame in frames:
                self._hand_over(frame)
                self._started.set()
                if self._stop.is_set():
                    return
        except SourceError as error:
            self._error = error
        finally:
            self._done.set()
            self._started.set()

    def _hand_over(self, frame: VideoFrame) -> None:
        while not self._stop.is_set():
            try:
                self._frames.put(frame, block=not self._live, timeout=_POLL_S)
            except queue.Full:
                if self._live:
                    self._drop_oldest()
                continue
            return

    def _drop_oldest(self) -> None:
        with contextlib.suppress(queue.Empty):  # taken in the meantime
            self._frames.get_nowait()
