"""What the engine has promised, and how that changes: only by a plan that holds at the instant at which it is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.core.actions import Action, Admitted, PlanStale, Rejected, WindowWidened
from gateway.core.batch import NEVER_NS, Standing
from gateway.core.batcher import Batcher
from gateway.core.books import Ledger
from gateway.core.config import EngineConfig
from gateway.core.course import Course
from gateway.core.device import Device
from gateway.core.events import RegisterStream, WidenWindows
from gateway.core.guard import Guard
from gateway.core.installation import Installation, Places, joint_after
from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import Profile
from gateway.core.recording import record_state
from gateway.core.reservation import Journal
from gateway.core.types import NS_PER_S, Category, OnExcess, ServiceClass, StreamSpec
from gateway.core.verdict import Reason, Verdict
from gateway.core.waiting import Waiting

if TYPE_CHECKING:
    from gateway.core.swap_region import SwapRegion

#: Best effort waits no longer than this for a plan that is made again.
_LONGEST_HOLD_NS = NS_PER_S


class Promises:
    """Installs plans.

    Attributes:
        generation: Counts what was committed: admissions, ends of streams, changes of windows.
        course: What jobs were started.
        journal: The latest frames.
        profile: Execution times that what is promised rests on; another one comes by `renew`.
        broken: Why what was promised does not hold any more; None while it does.
        region: Models that take turns in memory; None without a budget.
    """

    def __init__(
        self, ledger: Ledger, waiting: Waiting, device: Device, *, profile: Profile, config: EngineConfig
    ) -> None:
        self.generation = 0
        self.course = Course()
        self.journal = Journal()
        self._ledger = ledger
        self._waiting = waiting
        self._device = device
        self.profile = profile
        self._config = config
        self._widening = (-1, False)
        self.broken: Verdict | None = None
        self.region: SwapRegion | None = None

    def state(self, now_ns: int, profile: Profile | None = None) -> AdmissionState:
        """Return what an admission test at `now_ns` starts from, by other execution times if `profile` is given."""
        return record_state(
            self._ledger,
            self._waiting,
            self._device,
            profile=self.profile if profile is None else profile,
            config=self._config,
            now_ns=now_ns,
            generation=self.generation,
            started=self.course.started,
            memory=None if self.region is None else self.region.record(self._ledger, now_ns),
        )

    # ------------------------------------------------------------ streams

    def register(self, event: RegisterStream, plan: Plan, now_ns: int) -> Admitted | Rejected | PlanStale:
        """Answer a registration by `plan`: its own, or one that was made from the state of this very moment."""
        if event.plan is not None and plan.generation != self.generation:
            return PlanStale(event.stream_id)
        if not plan.verdict.admitted:
            self._waiting.release()
            return Rejected(event.stream_id, plan.verdict)
        category = self._admit(event.stream_id, event.spec, plan, now_ns, inline=event.plan is None)
        if category is None:
            return PlanStale(event.stream_id, self._in_the_way_ns(plan, now_ns))
        self._waiting.release()
        return Admitted(event.stream_id, category, plan.verdict, event.spec.name)

    def _admit(self, stream_id: str, spec: StreamSpec, plan: Plan, now_ns: int, *, inline: bool) -> Category | None:
        """Make a stream part of the promise; None: the plan does not hold, nothing has changed."""
        category = spec.category(self._device.worker)
        anchor_ns = now_ns + spec.start_in_ns
        if plan.streams and category.service_class is ServiceClass.REAL_TIME:
            candidate = plan.streams[-1]
            assert candidate.stream_id == stream_id, f"the plan of {candidate.stream_id!r} cannot admit {stream_id!r}"
            anchor_ns = candidate.next_ns
        # A best-effort stream that was admitted without a test leaves everything else as it is.
        if plan.windows and plan.verdict.test != "none" and not self._install(plan, now_ns, inline=inline):
            return None
        batcher, excess = self._open(category, spec, now_ns), None
        self._waiting.join(batcher, spec.deadline_ns)
        if spec.on_excess is OnExcess.BEST_EFFORT and category.service_class is ServiceClass.REAL_TIME:
            excess = self._open(replace(category, service_class=ServiceClass.BEST_EFFORT), spec, now_ns)
            self._waiting.join(excess, spec.deadline_ns)
        self._waiting.hush()
        self._ledger.open(stream_id, spec, batcher, now_ns, anchor_ns=anchor_ns, excess=excess)
        self.generation += 1
        return category

    def _open(self, category: Category, spec: StreamSpec, now_ns: int) -> Batcher:
        """Return the candidate's windows, opened or shrunk here if the plan has not done it."""
        real_time = category.service_class is ServiceClass.REAL_TIME
        window_ns = spec.deadline_ns // 2 if real_time else self._config.best_effort_window_ns
        known = spec.assumed_ns is None or self.profile.has(category)
        table = self.profile.table(category) if known else (0, spec.assumed_ns or 0)
        batcher = self._waiting.batcher(category, table, window_ns, now_ns + window_ns)
        if window_ns < batcher.window_ns:
            joint_ns = min(batcher.next_joint_ns(now_ns), now_ns + window_ns)
            self._waiting.rule(batcher, window_ns, joint_ns, now_ns)
        return batcher

    # ------------------------------------------------------------ windows

    def can_widen(self) -> bool:
        """Whether some W could grow, by the streams that are here, and that was not refused since the last change.

        Or whether a promise is broken, which those that are left may allow to be given again.
        """
        if self._widening[0] != self.generation:
            batchers = self._waiting.batchers.values()
            wider = any(b.standing is Standing.PROMISED and b.widest_ns > b.window_ns for b in batchers)
            self._widening = (self.generation, wider or self.broken is not None)
        return self._widening[1]

    def widen(self, event: WidenWindows, plan: Plan, now_ns: int) -> list[Action]:
        """Let windows grow by `plan`: the event's own, or one that was made from the state of this very moment."""
        before = {category: batcher.window_ns for category, batcher in self._waiting.batchers.items()}
        if event.plan is not None and plan.generation != self.generation:
            return [PlanStale("")]
        if plan.verdict.admitted:
            if not self._install(plan, now_ns, inline=event.plan is None):
                return [PlanStale("", self._in_the_way_ns(plan, now_ns))]
            self._waiting.hush()
            self.generation += 1
        self._widening = (self.generation, False)
        batchers = self._waiting.batchers
        return [
            WindowWidened(c, batchers[c].window_ns) for c, was_ns in before.items() if batchers[c].window_ns > was_ns
        ]

    # ------------------------------------------------------------ another profile

    def renew(self, profile: Profile, plan: Plan, now_ns: int) -> Verdict:
        """Rest on other execution times from now on: by `plan`, made of this very moment, or, failing that, by none."""
        self.profile = profile
        self.generation += 1
        verdict = plan.verdict
        if verdict.admitted and plan.windows and not self._install(plan, now_ns, inline=True):
            verdict = replace(verdict, admitted=False, reason=Reason.DEADLINE_MISS)
        if not verdict.admitted:
            self._waiting.follow(None, (), self._waiting.blocking_ns)
            self.broken = verdict
        self._waiting.hush()
        return verdict

    # ------------------------------------------------------------ plans

    def _install(self, plan: Plan, now_ns: int, *, inline: bool) -> bool:
        """Put `plan` in force if it holds now."""
        if any(window.changed and window.joint_ns <= now_ns for window in plan.windows):
            return False
        if self.region is not None and not inline and not self.region.agrees(plan.swap):
            return False
        guard: Guard | None = None
        places: Places = []
        if plan.slots is not None and self._config.guard:
            installation = self._prepare(plan, now_ns, inline=inline)
            if installation is None:
                return False
            guard, places = installation.guard, installation.places
        elif not inline and not (
            self._followed_edf(plan, now_ns)
            and self.course.comes_first(plan.started, _tightest_ns(plan), self._device, self._waiting, now_ns)
        ):
            return False
        self._rule(plan, now_ns)
        self._waiting.follow(guard, places, self._blocking_ns(plan))
        if self.region is not None:
            self.region.follow(plan.swap)
        self.broken = None
        return True

    def _prepare(self, plan: Plan, now_ns: int, *, inline: bool) -> Installation | None:
        """Return the plan as of now, ready to be put in force; None: it does not hold."""
        assert plan.slots is not None
        tables = [self.profile.table(window.category) for window in plan.windows]
        installation = Installation(plan, plan.slots, tables, now_ns)
        batches = self._waiting.batches
        promised = (batch for batch in batches.values() if batch.standing is Standing.PROMISED)
        if not installation.take_up(promised, self._device.free_ns(now_ns)):
            return None
        if not inline:
            frames = self.journal.since(plan.at_ns)
            streams = self._ledger.streams
            categories = {stream_id: stream.batcher.category for stream_id, stream in streams.items()}
            if frames is None or not installation.use(frames, batches, categories):
                return None
        return installation

    def _followed_edf(self, plan: Plan, now_ns: int) -> bool:
        """Whether `plan`, which is about plain EDF, holds for all that was started since its record."""
        first = self._waiting.first_ready()
        return self.course.follows_edf(plan.started, self._blocking_ns(plan), self._device, first, now_ns)

    def _in_the_way_ns(self, plan: Plan, now_ns: int) -> int | None:
        """Return until when the running job is in the way of `plan`, which was not taken; None: something else is.

        No other one like it may start before that, and while another plan is made, which may take as long again. (Else
        best effort that never ends could make every plan void.)
        """
        running, most_ns = self._device.running, self._blocking_ns(plan)
        if running is None:
            return None
        if self._device.next is not None and plan.started != self.course.started:
            # What was sent ahead may be in its way. It runs when the other one has ended; until a plan from a record of
            # then can be here, nothing else is sent ahead.
            end_ns = self._device.end_ns(now_ns)
            self.course.calm_ns = end_ns + min(2 * (now_ns - plan.at_ns), _LONGEST_HOLD_NS)
            return end_ns
        if self._followed_edf(plan, now_ns) if plan.slots is None else running.execution_ns <= most_ns:
            return None
        after_ns = self._device.free_ns(now_ns)
        self._waiting.hold(most_ns, after_ns + min(2 * (now_ns - plan.at_ns), _LONGEST_HOLD_NS))
        return after_ns

    def _rule(self, plan: Plan, now_ns: int) -> None:
        """Bring the windows to those of the plan."""
        for place, window in enumerate(plan.windows):
            joint_ns = joint_after(window, now_ns)
            table = self.profile.table(window.category)
            batcher = self._waiting.batcher(window.category, table, window.window_ns, joint_ns)
            if window.changed:
                self._waiting.rule(batcher, window.window_ns, joint_ns, now_ns)
            batcher.place = place

    def _blocking_ns(self, plan: Plan) -> int:
        """Return how long a best-effort job may be, so that it finds its turn while promised work goes on.

        With slots: as long as the longest promised job, or as is allowed for (`EngineConfig.best_effort_blocking_ns`).
        Without any bound in the plan (plain EDF under the exact test) there is none.
        """
        if plan.slots is not None:
            return max(int(plan.slots.execution.max(initial=0)), self._config.best_effort_blocking_ns) or NEVER_NS
        return plan.blocking_ns or NEVER_NS


def _tightest_ns(plan: Plan) -> int:
    """The smallest relative deadline of a plan's streams."""
    return min((stream.deadline_ns for stream in plan.streams), default=NEVER_NS)
