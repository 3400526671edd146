"""What the turns of the swap region ask of the device: a finding of `gateway.core.swap_test`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gateway.core.arrival_curve import Curve
from gateway.core.busy_period import Line
from gateway.core.types import Category
from gateway.core.verdict import Reason, SwapEvidence

_Ints = npt.NDArray[np.int64]

#: Later than any instant that is looked at.
FAR_NS = 2**61


@dataclass(frozen=True)
class TurnDemand:
    """What the turns ask of the device, and what they can bear.

    Attributes:
        reason: Why they do not come round in time; None: they do. The rest means something only then.
        evidence: The same for people.
        local_ns, largest: See `gateway.core.plan.SwapPlan`.
        warm_ns: By category, the warm-ups of one turn.
        longest_warm_up_ns: The longest single one.
        warm_up_rate: The share of the device's time that warm-ups can take in the long run.
        longest_ns: The longest load or unload of another model that may hold up a turn.
        slack_ns: By how much turns of the candidate's category are in time at least.
        under_way: ``(due, work)`` on the device of turns that have not got so far, relative to the state's instant.
        left_over: Those of them that may be larger than what their categories' windows will hold from now on.
    """

    reason: Reason | None
    evidence: SwapEvidence
    local_ns: dict[Category, int] = field(default_factory=dict)
    largest: dict[Category, int] = field(default_factory=dict)
    warm_ns: dict[Category, int] = field(default_factory=dict)
    longest_warm_up_ns: int = 0
    warm_up_rate: float = 0.0
    longest_ns: int = 0
    slack_ns: int = FAR_NS
    under_way: tuple[tuple[int, int], ...] = ()
    left_over: tuple[tuple[int, int], ...] = ()

    def steady(self, curve: Curve) -> Line:
        """Return the device's work for a category in any busy period to come."""
        window_ns, d_ns, warm_ns = curve.window_ns, self.local_ns[curve.category], self.warm_ns[curve.category]

        def work(count: int) -> _Ints:
            return curve.transient(count) + curve.turns(count) * warm_ns

        return Line(curve, d_ns - window_ns, d_ns, work, due_offset_ns=2 * (d_ns - window_ns))

    def present(self, curve: Curve) -> Line:
        """Return the same in the busy period of now."""
        d_ns, warm_ns = self.local_ns[curve.category], self.warm_ns[curve.category]

        def work(count: int) -> _Ints:
            return curve.carried(count) + curve.turns_from_now(count) * warm_ns

        due_ns = curve.joint_ns + d_ns
        return Line(curve, curve.joint_ns, due_ns, work, due_offset_ns=due_ns - curve.window_ns)
