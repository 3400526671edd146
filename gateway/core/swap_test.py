"""Do models that share one region of memory come round in time? For any phase, drift and jitter.

Each window that holds frames gets one *turn*: unload what is in the region, load its own model, warm it up, run its
jobs. Two resources are tested one after the other (proof: ``docs/decisions/0019-swap-region.md``).

*The region* serves turns without preemption, the earliest deadline first, never idle while one waits. Its model loaded,
a turn of category g has ``d_g`` for its jobs, so it occupies the region for no longer than

    C_g = longest unload of another model of the region + load of its own + d_g

and is due W_g after its joint. Of k windows at most ``min(k, N_g(k))`` hold frames. So all turns are in time if their
long-run use is below 1 and, for all ``t = k W`` up to the end of the longest busy period,

    sum over g of min(k, N_g(k)) C_g + B(t) - 1 ns <= t        with k = floor(t / W_g).

B(t) is the longest that can hold up a turn due after t: a turn of a category with ``W > t``, a single load or unload
that began while the region was idle (a prefetch, or another model's), or a job of the model that is to go.

*The device* gets a turn's warm-ups and jobs when its model is loaded, due ``d_g`` later. That is between the joint and
``W_g - d_g`` after it, so for the sporadic test of the device a category of the region is a line with release jitter
``W_g - d_g`` and relative deadline ``d_g``: in any interval of length t at most ``floor((t + W_g - 2 d_g) / W_g) + 1``
of its windows are released and due, if ``t >= d_g``. Each window is all its jobs and one warm-up.

The longer ``d_g``, the easier the device's test and the harder the region's: ``d_g`` is the largest share of W_g, the
same for all categories, with which the region's test holds. That is tried first with a B(t) that allows for the load of
any profiled model elsewhere, and if not everything holds then, for those alone that are used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gateway.core.arrival_curve import Curve
from gateway.core.busy_period import Line, Look, look
from gateway.core.plan_state import AdmissionState, MemoryState, TurnState
from gateway.core.profile import Profile
from gateway.core.turn_demand import FAR_NS, TurnDemand
from gateway.core.types import Category
from gateway.core.verdict import Reason, SwapEvidence
from gateway.core.warm_ups import sizes_to_warm

_Ints = npt.NDArray[np.int64]

#: `d_g` is searched in steps of this share of W.
_SHARES = 64
#: How often the longest operation of others is halved on in the search for what turns can bear.
_HALVINGS = 6


def turns_of(
    planned: AdmissionState, curves: list[Curve], blocking_ns: int, mine: int | None = None, *, generous: bool = False
) -> TurnDemand:
    """Test the region of ``planned.memory``.

    Args:
        planned: The state with all changes that are asked for; its region is not empty.
        curves: Of all its categories.
        blocking_ns: The longest job that anything out of order may be.
        mine: Index of the candidate's curve.
        generous: Allow for the load of any profiled model elsewhere.
    """
    assert planned.memory is not None, "turns are tested without a budget"
    region = _Region(planned, planned.memory, curves, blocking_ns, generous=generous)
    if region.unknown:
        return TurnDemand(Reason.SWAP, region.evidence())
    late_ns = region.late_ns(0)
    if late_ns is not None:
        return TurnDemand(Reason.SWAP, region.evidence(late_ns))
    low, high = 0, _SHARES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if region.late_ns(middle) is None else (low, middle)
    local_ns = region.local_ns(low)
    slack_ns = FAR_NS
    if mine is not None and curves[mine] in region.curves:
        own = region.curves.index(curves[mine])
        slack_ns = min(region.look(low, own).slack_ns, region.look_now(local_ns, own).slack_ns)
    return TurnDemand(
        reason=None,
        evidence=region.evidence(),
        local_ns=local_ns,
        largest={curve.category: curve.largest_job() for curve in region.curves},
        warm_ns=region.warm_ns,
        longest_warm_up_ns=region.longest_warm_up_ns,
        warm_up_rate=sum(curve.turn_rate() * region.warm_ns[curve.category] for curve in region.curves),
        longest_ns=region.bearable_ns(low),
        slack_ns=slack_ns,
        under_way=tuple(region.on_device(turn, local_ns) for turn in region.under_way if turn.sizes),
        left_over=tuple(region.on_device(turn, local_ns) for turn in region.under_way if region.changed(turn)),
    )


class _Region:
    """The figures of one test."""

    def __init__(
        self,
        planned: AdmissionState,
        memory: MemoryState,
        curves: list[Curve],
        blocking_ns: int,
        *,
        generous: bool,
    ) -> None:
        self.memory = memory
        self.under_way = ((memory.turn,) if memory.turn else ()) + memory.waiting
        self.curves = [curve for curve in curves if curve.category.model in memory.region]
        known = {curve.category for curve in self.curves}
        # Some have no frames to come, but a turn.
        last = {turn.category for turn in self.under_way} - known
        self.curves += [Curve(planned, window, []) for window in planned.windows if window.category in last]
        self._planned = planned
        profile, factor = planned.profile, planned.config.residency.warm_up_factor
        self._load_ns = {model: profile.load_ns(model) or 0 for model in memory.region}
        self._unload_ns = {model: profile.unload_ns(model) or 0 for model in memory.region}
        self.unknown = any(profile.load_ns(model) is None for model in memory.region)
        warm_ups = {model: self._warm_ups(model, profile, factor) for model in memory.region}
        self.warm_ns = {c.category: sum(warm_ups[c.category.model]) for c in self.curves}
        self.longest_warm_up_ns = max(max(times, default=0) for times in warm_ups.values())
        longest_ns = max(blocking_ns, self.longest_warm_up_ns)
        self._least_ns = {c.category: longest_ns + self.warm_ns[c.category] + self._work_ns(c) for c in self.curves}
        operations = [*self._load_ns.values(), *self._unload_ns.values()]
        others = {entry.model for entry in profile.models} if generous else memory.used
        operations += [ns for model in others for ns in (profile.load_ns(model), profile.unload_ns(model)) if ns]
        self._coming_ns = sum(profile.load_ns(model) or 0 for model in self._staying() if model not in memory.resident)
        self._idle_ns = max([longest_ns, self._coming_ns, *operations])

    def _warm_ups(self, model: str, profile: Profile, factor: float) -> list[int]:
        """Return the times of all first executions that a load of a model brings."""
        own = [curve for curve in self.curves if curve.category.model == model]
        return [
            profile.warm_up_ns(curve.category, n, factor) for curve in own for n in sizes_to_warm(curve.largest_job())
        ]

    def _work_ns(self, curve: Curve) -> int:
        """Return the most work of one turn of a category, of one that is under way too."""
        own = [sum(curve.table[n] for n in turn.sizes) for turn in self.under_way if turn.category == curve.category]
        return max([int(curve.transient(1)[1]), *own])

    def local_ns(self, share: int) -> dict[Category, int]:
        """Return d of each category: so many parts of `_SHARES` of W, and no less than its jobs need."""
        return {c.category: max(self._least_ns[c.category], c.window_ns * share // _SHARES) for c in self.curves}

    def cost_ns(self, category: Category, local_ns: int) -> int:
        """Return C."""
        others = [ns for model, ns in self._unload_ns.items() if model != category.model]
        return max(others, default=0) + self._load_ns[category.model] + local_ns

    def late_ns(self, share: int) -> int | None:
        """Return how late a turn would be with so long a d, now or later; None: none would be."""
        seen = self.look(share)
        if seen.reason is None:
            seen = self.look_now(self.local_ns(share))
        return None if seen.reason is None else seen.demand_ns - seen.step_ns

    def look(self, share: int, mine: int | None = None, idle_ns: int | None = None) -> Look:
        """Look at any busy period to come, if the region can be held up by `idle_ns` that began while it was idle."""
        costs = {category: self.cost_ns(category, ns) for category, ns in self.local_ns(share).items()}
        used = sum(curve.turn_rate() * costs[curve.category] for curve in self.curves)
        widest = max(self.curves, key=lambda curve: curve.window_ns).window_ns
        if used >= 1:
            return Look(Reason.UTILIZATION, 0, 0, widest, round(used * widest))
        lines = [self._line(curve, 0, costs[curve.category]) for curve in self.curves]
        blocking = [(curve.window_ns, costs[curve.category] - 1) for curve in self.curves]
        return look(lines, (self._idle_ns if idle_ns is None else idle_ns) - 1, (), mine, early=blocking)

    def _line(self, curve: Curve, first: int, cost_ns: int) -> Line:
        return Line(curve, first, curve.first_due_ns - curve.joint_ns, lambda count: curve.turns(count) * cost_ns)

    def look_now(self, local_ns: dict[Category, int], mine: int | None = None) -> Look:
        """Look at the busy period of now."""
        now_ns = self._planned.now_ns
        costs = {category: self.cost_ns(category, ns) for category, ns in local_ns.items()}
        lines = [self._present(curve, costs[curve.category]) for curve in self.curves]
        held = [(turn.due_ns - now_ns, costs[turn.category]) for turn in self.memory.waiting]
        first_ns = max(0, self.memory.free_ns - now_ns)
        turn = self.memory.turn
        if turn is not None:
            first_ns += local_ns[turn.category] if turn.sizes else 0
            held.append((turn.due_ns - now_ns, 0))
        return look(lines, first_ns + self._clearing_ns(first_ns), held, mine)

    @staticmethod
    def _present(curve: Curve, cost_ns: int) -> Line:
        def work(count: int) -> _Ints:
            return curve.turns_from_now(count) * cost_ns

        return Line(curve, curve.joint_ns, curve.first_due_ns, work)

    def _clearing_ns(self, first_ns: int) -> int:
        """How long after `first_ns` other calls may hold up the first turn.

        Models that have to stay may have to be loaded. If the region is not as it was, models that join it have their
        ready jobs run first, and then all that need not stay may have to go.
        """
        planned, memory = self._planned, self.memory
        if not memory.moved:
            return self._coming_ns
        ready = [job.deadline_ns for job in planned.ready if job.category.model in memory.joined]
        wait_ns = max([0, *(due_ns - planned.now_ns - first_ns for due_ns in ready)])
        stay = self._staying() | set(memory.fixed)
        going = [model for model in memory.resident if model not in stay]
        return self._coming_ns + wait_ns + sum(planned.profile.unload_ns(model) or 0 for model in going)

    def _staying(self) -> set[str]:
        """Models of real-time streams outside of the region."""
        return {window.category.model for window in self._planned.windows} - set(self.memory.region)

    # ------------------------------------------------------------ results

    def bearable_ns(self, share: int) -> int:
        """Return the longest operation of others that turns can bear: at least what was tested."""
        least_ns = self._idle_ns
        most_ns = least_ns + min(self.look(share).spare_ns, FAR_NS)
        for _ in range(_HALVINGS):
            if self.look(share, idle_ns=most_ns).reason is None:
                return most_ns
            most_ns = (least_ns + most_ns) // 2
        return least_ns

    def on_device(self, turn: TurnState, local_ns: dict[Category, int]) -> tuple[int, int]:
        """Return deadline and work on the device of a turn that has not got there, if its model were loaded now."""
        table = self._planned.profile.table(turn.category)
        work_ns = sum(table[size] for size in turn.sizes)
        return local_ns[turn.category], work_ns + self.warm_ns[turn.category]

    def changed(self, turn: TurnState) -> bool:
        """Whether the window of a turn that has not reached the device was wider than those of its category will be."""
        mine = next(curve for curve in self.curves if curve.category == turn.category)
        return bool(turn.sizes) and (turn.window_ns > mine.window_ns or not mine.n1)

    def evidence(self, late_ns: int | None = None) -> SwapEvidence:
        """Say how the turns do. What they need counts, not what they are given beyond it by a longer d."""
        costs = {category: self.cost_ns(category, ns) for category, ns in self.local_ns(0).items()}
        return SwapEvidence(
            models=tuple(sorted(self.memory.region)),
            region=self.memory.weight,
            utilization=sum(curve.turn_rate() * costs[curve.category] for curve in self.curves),
            longest_turn_ns=max(costs.values(), default=0),
            late_ns=late_ns,
        )
