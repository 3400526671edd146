"""The frames that are sent, and under which contract."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gateway.core.profile import Profile, ProfileEntry

#: A job's fixed part in the synthetic profile, and the share of the device that all frames of the contract take.
_FIXED_MS = 0.2
_SHARE = 0.2
#: A contract lets more frames be under way than there are connections: two windows' frames can come close together.
_SLACK = 3


@dataclass(frozen=True)
class Size:
    """One size of frames, UINT8.

    Attributes:
        name: As ``--sizes`` has it.
        connections: Of a closed loop that saturates a server.
        most_per_s: Frames per second of the stream's contract: more than any server here can take, so that what is
            measured is the server and not the contract. The policer is at work all the same.
        deadline_ms: Twice the window.
        batches: In the profile.
        early_dispatch: As the gateway is shipped. Without it a batch is what comes within a window, and large.
    """

    name: str
    shape: tuple[int, int, int]
    connections: int
    most_per_s: int
    deadline_ms: float
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    early_dispatch: bool = False

    @property
    def frame_bytes(self) -> int:
        """Of one frame."""
        return math.prod(self.shape)

    def frame(self) -> bytes:
        """A picture whose first three values tell it from an empty one."""
        return bytes((7, 8, 9)) + bytes(self.frame_bytes - 3)

    def execution_ms(self, batch: int) -> float:
        """What the profile says of a batch. Nothing is promised here; it only has to let the contract in."""
        return round(_FIXED_MS + 1e3 * _SHARE * batch / self.most_per_s, 3)

    def profile(self, *models: str) -> Profile:
        """A profile of `models` at this shape, so that frames never run small."""
        return Profile(
            tuple(
                ProfileEntry(model, "1", self.shape, "UINT8", batch, 1_000, ms, ms, ms)
                for model in models
                for batch in self.batches
                for ms in (self.execution_ms(batch),)
            ),
            device="synthetic: nothing was measured",
            engine="synthetic",
        )

    def stream(self, model: str) -> dict[str, object]:
        """The body of `POST /v1/streams`."""
        burst = _SLACK * self.connections
        return {
            "model": model,
            "shape": list(self.shape),
            "period_ms": round(1e3 * burst / self.most_per_s, 3),
            "burst": burst,
            "jitter_ms": 0.0,
            "deadline_ms": self.deadline_ms,
            "on_late": "serve",
            # After a pause of the machine a closed loop comes back faster than its contract says, for an instant.
            "on_excess": "best_effort",
        }


SIZES = (
    Size("1kB", (19, 18, 3), 32, 20_000, 10.0, early_dispatch=True),  # no window that is admitted is short enough
    Size("150kB", (224, 224, 3), 32, 12_000, 8.0),
    Size("1.2MB", (640, 640, 3), 32, 2_000, 32.0),
    Size("6.2MB", (1080, 1920, 3), 16, 400, 80.0, (1, 2, 4, 8)),
)
#: The one for which there are budgets.
MAIN = SIZES[1]
#: The same frames where a job is one frame.
SINGLE = replace(MAIN, most_per_s=3_000, deadline_ms=300.0, batches=(1,), early_dispatch=True)
#: At so many frames per second, fewer than Triton takes one by one, jobs of one frame are compared with the raw route
#: at the same rate. As fast as they are taken, the route never rests, while the gateway waits for Triton between two
#: frames: each wakes it, and finds its caches cold, which costs the raw route half as much again, too.
PACED_PER_S = 400.0
#: And with the settings as they are shipped.
EARLY = replace(MAIN, early_dispatch=True)
#: How long jobs of the part that keeps the device busy take.
SLEEP_MS = 10.0
NAP_MS = 1.0


def by_name(name: str) -> Size:
    """Return one of `SIZES`."""
    return next(size for size in SIZES if size.name == name)


def slow_profile(model: str, sleep_ms: float) -> Profile:
    """A model that sleeps: one frame a job, with the way there and back."""
    usual_ms, ms = sleep_ms + 0.4, sleep_ms + 1.0
    return Profile((ProfileEntry(model, "1", MAIN.shape, "UINT8", 1, 1_000, usual_ms, ms, ms),), engine="synthetic")
