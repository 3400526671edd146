"""Which models are loaded and which give way: demand loads of Computron (Zou et al., arXiv 2306.13835, section 3).

Whenever something has changed, the models that are wanted are put in order: those that real-time streams need, those
pinned by command, those held or wanted by command, and then those for which frames wait, oldest batch first. As many
of them as fit together are to be there (*keep*). Of these, the ones that are absent are loaded, in parallel; those
that come later leave the memory alone that earlier ones still wait for. What is missing is made free by models that are
idle, outside *keep* and neither pinned nor held (`gateway.core.replacement`), and just enough of it.

Why it goes on for ever: the oldest batch's model is always in *keep*, so what stands in its way is finite: jobs that
run, loads and unloads that are under way, and the batches for which other models were just loaded. (Such a model does
not give way before all of these have started that waited when it became resident, whatever happened to the order
meanwhile; but nothing that is promised waits for that.) Frames for which there will be no model end at once and
say why.
"""

from __future__ import annotations

from itertools import islice

from gateway.core.actions import Action
from gateway.core.admission import bears
from gateway.core.batch import NEVER_NS, Batch, Standing
from gateway.core.books import Ledger
from gateway.core.config import EngineConfig, Replacement
from gateway.core.device import Device
from gateway.core.hopeless import Hopeless
from gateway.core.model import Model
from gateway.core.model_calls import ModelCalls
from gateway.core.promises import Promises
from gateway.core.replacement import in_order, just_enough, next_uses
from gateway.core.residency import Residency
from gateway.core.types import ModelState
from gateway.core.waiting import Waiting

#: Among so many batches of a model, one is looked for that is not too long.
_FEW = 32

#: Why a model is wanted, and whether anything was promised that needs it.
_Want = tuple[Model, str, bool]
_Oldest = dict[str, tuple[bool, int]]


class Demand:
    """See the module's docstring.

    Args:
        residency, calls, ledger, waiting, device, promises, config: The engine's.
    """

    def __init__(
        self,
        residency: Residency,
        calls: ModelCalls,
        ledger: Ledger,
        waiting: Waiting,
        device: Device,
        *,
        promises: Promises,
        config: EngineConfig,
    ) -> None:
        self._residency = residency
        self._calls = calls
        self._ledger = ledger
        self._waiting = waiting
        self._device = device
        self._promises = promises
        self._config = config.residency
        self._hopeless = Hopeless(residency, waiting)

    def plan(self, now_ns: int, actions: list[Action]) -> None:
        """End frames for which there is no hope, and begin the loads and unloads that can begin.

        Cost: O(models), and O(streams) when a model has to give way. Nothing is begun while the worker is lost.
        """
        residency, device = self._residency, self._device
        self._waiting.lacking = bool(residency.reloads)
        self._hopeless.end_frames(now_ns, actions)
        self._hopeless.refuse(actions)
        if self._waiting.warm_ups:
            self._review_warm_ups(now_ns, actions)
        if device.lost or (self._config.synchronous and device.running is not None):
            return
        if residency.turns is not None:
            residency.turns.plan(now_ns, actions)
        if self._may_call():
            self._carry_on(now_ns, actions)
        oldest = self._oldest()
        if self._may_call():
            self._provide(oldest, now_ns, actions)

    def _may_call(self) -> bool:
        """Beside a swap region, whose loads must not be held up: one call at a time, and only between turns."""
        residency = self._residency
        return residency.turns is None or (residency.turns.idle and not residency.calling)

    # ------------------------------------------------------------ what is there to be done anyway

    def _review_warm_ups(self, now_ns: int, actions: list[Action]) -> None:
        """See which of the first executions may be longer than others, and leave out large ones that find no turn.

        That are those for which a promise waits; and one for which somebody waits, if what was promised bears it. By a
        plan that keeps an order (`gateway.core.guard`) a gap may come.
        """
        residency, most_ns = self._residency, self._most_ns()
        promised = residency.promised()
        for warm_up in list(self._waiting.warm_ups):
            model = residency.models[warm_up.category.model]
            warm_up.urgent = warm_up.borne or model.name in promised
            if warm_up.urgent or warm_up.table[0] <= most_ns:
                continue
            if warm_up.size > 1:
                self._calls.skip(warm_up, actions)
            elif self._waiting.guard is None and (model.wanted or model.holders):
                warm_up.urgent = warm_up.borne = bears(self._promises.state(now_ns), warm_up.table[0])
                if not warm_up.borne:
                    self._hopeless.refuse_unwarmed(warm_up, most_ns, actions)

    def _most_ns(self) -> int:
        """How long a job may be that nothing was promised."""
        return self._waiting.blocking_ns if self._waiting.taking else NEVER_NS

    def _carry_on(self, now_ns: int, actions: list[Action]) -> None:
        """Unload what is to go and has become idle, and what would not go; warm what was to go, and is to stay."""
        residency = self._residency
        for model in residency.models.values():
            if model.state is ModelState.LOADING and not (model.called or model.warm_ups or model.barred):
                self._calls.warm(model, now_ns, actions)
            if model.away or not residency.idle(model) or not model.may_be_tried(now_ns):
                continue
            if model.barred:
                residency.unload(model.name, "command", actions)
            elif model.state is ModelState.UNLOADING:
                residency.unload(model.name, "warm_up_failed", actions)

    # ------------------------------------------------------------ what is wanted

    def _oldest(self) -> _Oldest:
        """Return the oldest batch that waits for each model; those that find no turn come last."""
        found: _Oldest = {}
        waiting, region, prefetch = self._waiting, self._residency.region_models, self._config.prefetch
        most_ns = self._most_ns()
        stuck = {w.category.model for w in waiting.warm_ups if not w.urgent and w.table[0] > most_ns}
        for name, batches in waiting.by_model().items():
            if name in region:
                continue
            some = islice((b for b in batches.values() if prefetch or b.release_ns is not None), _FEW)
            keys = ((name in stuck or _too_long(batch, most_ns), batch.id) for batch in some)
            best = next(keys, None)
            if best is not None and best[0]:
                best = min([best, *keys])
            if best is not None:
                found[name] = best
        return found

    def _wants(self, oldest: _Oldest) -> list[_Want]:
        """Return the models that are wanted, in order."""
        residency = self._residency
        promised = residency.promised()
        models = [m for m in residency.models.values() if not m.barred and m.name not in residency.region_models]
        if not residency.managed:
            promised, oldest = set(), {}
        pinned = [m for m in models if m.name in promised or m.pinned]
        pinned.sort(key=lambda m: (m.away, m.name not in promised))
        asked = sorted([m for m in models if m.holders or m.wanted], key=lambda m: m.asked)
        waiting = sorted([m for m in models if m.name in oldest], key=lambda m: oldest[m.name])
        return [
            *((m, "pin", m.name in promised) for m in pinned),
            *((m, "command" if m.wanted else "hold", False) for m in asked),
            *((m, self._why(oldest[m.name][1]), False) for m in waiting),
        ]

    def _why(self, batch_id: int) -> str:
        return "prefetch" if self._waiting.batches[batch_id].release_ns is None else "demand"

    # ------------------------------------------------------------ loads

    def _provide(self, oldest: _Oldest, now_ns: int, actions: list[Action]) -> None:
        """Load what is wanted and absent, as far as it fits, and have others give way to the rest."""
        residency = self._residency
        wants = self._wants(oldest)
        if not any(model.away or model.wanted for model, _, _ in wants):
            return
        keep, absent = self._keep(wants, now_ns)
        if not absent:
            return
        short = residency.memory.short_of(sum(weight for _, weight, _, _ in absent))
        if short:
            urgent = any(promised for _, _, _, promised in absent)
            self._make_room(short, keep, oldest, now_ns, actions, urgent=urgent)
        kept_back = [0]  # sums of what is kept back for the first that wait, the first two, ...
        for model, weight, reason, _ in absent:
            if not self._may_call():
                return
            if not all(residency.memory.fits(weight, beside) for beside in reversed(kept_back)):
                kept_back.append(kept_back[-1] + weight)
            elif reason == "reload":
                residency.reload(model, actions)
            else:
                why = "command" if model.wanted else "retry" if model.failures else reason
                residency.load(model.name, why, actions)

    def _keep(self, wants: list[_Want], now_ns: int) -> tuple[set[str], list[tuple[Model, int, str, bool]]]:
        """Return the models that are to be there, and what is to be loaded for that, in order."""
        residency = self._residency
        room = NEVER_NS if residency.memory.room is None else residency.memory.room
        keep: set[str] = set()
        absent: list[tuple[Model, int, str, bool]] = []
        for model, reason, promised in wants:
            weight = residency.memory.held_by(model.name) if not model.away else residency.size(model.name)
            if weight is None and residency.memory.room is None:
                weight = 0  # without a budget nobody needs to know
            fits = weight is not None and (weight <= room or (reason == "pin" and not model.away))
            if fits and model.name not in keep:
                keep.add(model.name)
                room = max(0, room - (weight or 0))
                if model.away and model.may_be_tried(now_ns) and (promised or self._bears(model)):
                    absent.append((model, weight or 0, reason, promised))
            again = residency.reload_size(model.name)
            anew = reason == "command" and model.name in residency.reloads and model.name in keep
            if anew and not (model.called or model.lingers) and again <= room:
                room -= again
                absent.append((model, again, "reload", False))
        return keep, absent

    def _bears(self, model: Model) -> bool:
        """Whether turns in the swap region can wait while a model is loaded."""
        turns = self._residency.turns
        return turns is None or turns.bears(model.name)

    # ------------------------------------------------------------ victims

    def _make_room(
        self, short: int, keep: set[str], oldest: _Oldest, now_ns: int, actions: list[Action], *, urgent: bool
    ) -> None:
        """Unload idle models until enough is coming free; `urgent`: nobody may finish first what it was loaded for."""
        residency = self._residency
        models = [m for m in residency.models.values() if m.name not in residency.region_models and not m.away]
        going = [m for m in models if m.barred and m.state is not ModelState.UNLOADING]
        short -= sum(residency.memory.held_by(m.name) for m in going)
        candidates = [
            m
            for m in models
            if m.name not in keep
            and not (m.barred or m.pinned or m.holders or m.called)
            and m.state is not ModelState.UNLOADING
            and m.may_be_tried(now_ns)
            and (urgent or not self._owes(m))
        ]
        policy = self._config.replacement
        uses = next_uses(self._ledger, now_ns) if policy is Replacement.NEXT_USE else {}
        ordered = in_order(candidates, policy, oldest, uses)
        ordered.sort(key=lambda m: not residency.idle(m))
        weights = {m.name: residency.memory.held_by(m.name) for m in ordered}
        for model in just_enough(ordered, weights, short):
            if residency.idle(model) and self._may_call():
                residency.unload(model.name, "eviction", actions)

    def _owes(self, model: Model) -> bool:
        """Whether a model was just loaded for batches of which one has not started, and could."""
        if model.owes is None:
            return False
        own, most_ns = self._waiting.by_model().get(model.name, {}), self._most_ns()
        return any(not _too_long(batch, most_ns) for id_, batch in own.items() if id_ <= model.owes)


def _too_long(batch: Batch, most_ns: int) -> bool:
    return batch.standing is not Standing.PROMISED and batch.table[len(batch.frames)] > most_ns
