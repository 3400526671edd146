"""How a gateway is doing: whether it is ready and its Triton is there, and its figures."""

from __future__ import annotations

from collections import Counter

from gateway.clock import Clock
from gateway.core.engine import Engine
from gateway.core.types import Category, Outcome
from gateway.core.verdict import Verdict
from gateway.core.view import EngineView, MemoryView
from gateway.errors import FramegateError
from gateway.runtime.arena import Arena
from gateway.runtime.condition import Condition
from gateway.runtime.parts import Parts
from gateway.runtime.results import Books


class Figures:
    """The part of `gateway.runtime.gateway.Gateway` that is only looked at.

    Args:
        engine, clock: Of the gateway.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._condition = Condition()
        self._refused: Counter[str] = Counter()

    @property
    def ready(self) -> bool:
        """Whether streams can be registered and frames served now."""
        return self.unready() is None

    def unready(self) -> FramegateError | None:
        """Return why the gateway is not ready, as the error that answers a registration now; None when it is."""
        return self._condition.unready()

    @property
    def broken(self) -> bool:
        """Whether the engine has failed: nothing but a restart of the process helps."""
        return self._condition.broken

    @property
    def broken_promise(self) -> Verdict | None:
        """Why what was promised to streams does not hold any more; None while it does."""
        return self._engine.broken

    @property
    def triton_ready(self) -> bool:
        """Whether Triton is connected, set up and watched."""
        return self._condition.triton_ready

    @property
    def triton_reason(self) -> str:
        """Why Triton is not ready; empty when it is."""
        return self._parts.supervisor.reason

    @property
    def triton_version(self) -> str:
        """Version of the Triton that answered last; empty before the first."""
        server = self._parts.supervisor.server
        return server.version if server else ""

    @property
    def shared_memory(self) -> bool:
        """Whether frames reach Triton through shared memory; else they travel inside messages."""
        return self._parts.inference.shared

    # ------------------------------------------------------------ figures

    @property
    def now_ns(self) -> int:
        """The gateway's clock: what the instants of its views count from."""
        return self._clock.now_ns()

    def view(self, *, streams: bool = True) -> EngineView:
        """Return the engine's state as of its last event; without its streams, if so wished."""
        return self._engine.snapshot(streams=streams)

    @property
    def utilization(self) -> float:
        """A lower bound of the share of the device's time that is promised to unbounded streams."""
        return self._engine.utilization()

    @property
    def memory(self) -> MemoryView:
        """What models may hold in memory, and what they do."""
        return self._engine.memory_view()

    @property
    def limited(self) -> tuple[Category, ...]:
        """Categories whose batches failed: their frames run one at a time."""
        return self._engine.limited

    @property
    def totals(self) -> Books:
        """Frames accepted and ended by model, and refused by reason, since the start."""
        return self.books(self._engine.snapshot())

    def books(self, view: EngineView) -> Books:
        """Return the totals at the instant of a view of this gateway."""
        return Books(
            accepted=Counter({model: totals.accepted for model, totals in view.models.items()}),
            ended=Counter(
                {
                    (model, outcome): totals.outcomes[outcome]
                    for model, totals in view.models.items()
                    for outcome in Outcome
                }
            ),
            refused=self._refused + Counter(view.refused),
            streams=self._parts.delivery.ended_streams,
        )

    @property
    def kept_output_bytes(self) -> int:
        """Memory of the outputs that are kept for `results`."""
        return self._parts.delivery.kept.bytes

    @property
    def promised_body_bytes(self) -> int:
        """What the bodies of all real-time streams have together, when each sends what its contract allows at once."""
        parts = self._condition.started
        return 0 if parts is None else parts.promised.bodies_bytes

    @property
    def arena(self) -> Arena:
        """The frame arena, for its figures."""
        return self._parts.arena

    @property
    def _parts(self) -> Parts:
        return self._condition.parts
