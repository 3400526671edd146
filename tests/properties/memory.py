"""The frames of an engine in a real arena: what is sent must be what came, wherever the engine puts and moves it."""

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, RetryFrames, StartJob
from gateway.runtime.arena import Arena
from gateway.runtime.region import private_region

_FRAME = 64


def _bytes(frame):
    return f"{frame.stream_id}/{frame.seq}".encode().ljust(_FRAME)


class Memory:
    """Does with bytes what the live gateway does. The arena is so small that some batches find no room in it."""

    def __init__(self):
        self.arena = Arena(private_region(64 * _FRAME))

    def call_ended(self, job_id):
        self.arena.call_ended(job_id)

    def carry_out(self, actions, room):
        """`room`: the most frames of a batch, as the engine said before the event."""
        for action in actions:
            match action:
                case AcceptFrames():
                    self.arena.reserve(0, _FRAME, room)
                    for frame in action.frames:
                        self.arena.slot(frame.job)[:] = _bytes(frame)
                    self.arena.unreserve()
                case DropFrames():
                    for move in action.moved:
                        self.arena.move(*move)
                    for frame in action.frames:
                        self.arena.drop(frame.job)
                case RetryFrames():
                    moved = zip(action.frames, action.indices, strict=True)
                    self.arena.hand_over(action.job.id, [(frame.job, index) for frame, index in moved])
                case StartJob() if not action.job.warm_up:
                    frames = action.job.frames
                    span = self.arena.start(action.job.id, len(frames))
                    assert bytes(span.view) == b"".join(map(_bytes, frames))
                case DeliverFrames():
                    self.arena.finish(action.job.id)
