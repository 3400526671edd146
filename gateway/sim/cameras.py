"""How the cameras of a trace use the freedom that their contracts leave them: late groups, missing frames."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.types import StreamSpec
from gateway.sim.draws import share

_DELAY, _DROP = 0, 1


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Draws for every group of every camera. A group's draw depends on the seed, its camera and its number alone.

    Attributes:
        jitter: Groups come up to `StreamSpec.jitter_ns` late, evenly; else all of them at the earliest instant.
        drop: Share of frames that never come.
        seed: Of both.

    Raises:
        ValueError: `drop` is not in [0, 1).
    """

    jitter: bool = False
    drop: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not 0 <= self.drop < 1:
            raise ValueError(f"drop must lie in [0, 1), not {self.drop}")

    def delay_ns(self, spec: StreamSpec, place: int, group: int) -> int:
        """Return by how much the group comes later than its contract's earliest instant."""
        if not self.jitter or not spec.jitter_ns:
            return 0
        return min(spec.jitter_ns, int(share(self.seed, _DELAY, place, group) * (spec.jitter_ns + 1)))

    def sent(self, place: int, group: int, count: int) -> int:
        """Return how many of the `count` frames of a group come."""
        if not self.drop:
            return count
        return sum(share(self.seed, _DROP, place, group, n) >= self.drop for n in range(count))


#: Every frame comes, at the earliest instant.
PUNCTUAL = Behaviour()
