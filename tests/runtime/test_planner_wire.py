import io
import pickle
from dataclasses import replace

import numpy as np

from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, RegisterStream
from gateway.core.plan import Plan, SlotTable, SwapPlan, WindowPlan
from gateway.core.plan_state import AdmissionState, MemoryState, TurnState
from gateway.core.verdict import FirstMiss, MemoryEvidence, Reason, SwapEvidence, Verdict
from gateway.runtime import planner_wire as wire
from tests.runtime_support import make_profile, make_spec


def there_and_back(message: object) -> object:
    pipe = io.BytesIO()
    wire.write(message, pipe)
    pipe.seek(0)
    return wire.read(pipe)


def a_state() -> AdmissionState:
    """Frames that wait, one that runs, jobs that are ready, streams with all that a contract can say."""
    engine = Engine(make_profile(execution_ms=30))
    specs = (make_spec(version="1"), make_spec(version="1", frames=9, burst=3, jitter_ns=5, name="ü"))
    for number, spec in enumerate(specs):
        engine.handle(RegisterStream(f"s{number}", spec), 10 * number)
        engine.handle(FramesArrived(f"s{number}", spec.burst), 10 * number + 5)
    return engine.admission_state(20)


def test_a_state_arrives_as_it_was_sent() -> None:
    state = a_state()
    assert state.windows
    assert any(window.waiting for window in state.windows)
    sent = wire.without_profile(state)
    assert sent.profile.entries == ()
    arrived = there_and_back(sent)
    assert arrived == sent
    assert wire.with_profile(arrived, state.profile) == state  # type: ignore[arg-type]


def test_the_profile_stays_at_home() -> None:
    profile = make_profile(shapes=[(size, size, 3) for size in range(1, 200)])
    state = replace(a_state(), profile=profile)
    pipe = io.BytesIO()
    wire.write(wire.without_profile(state), pipe)
    assert len(pipe.getvalue()) < len(pickle.dumps(profile)) / 10


def test_a_plan_arrives_with_arrays_that_can_be_changed() -> None:
    state = a_state()
    category = state.windows[0].category
    miss = FirstMiss(category, ("a", "b"), 2, 1, 2, 3)
    columns = {name: np.arange(5) for name in ("window", "job", "release", "chunk", "size", "deadline")}
    slots = SlotTable(**columns, execution=np.ones(5, np.int64), start=np.arange(5), latest=np.arange(5), repeat_ns=7)
    plan = Plan(
        Verdict(admitted=False, test="exact", phase=2, reason=Reason.DEADLINE_MISS, first_miss=miss),
        at_ns=3,
        windows=(WindowPlan(category, 5, 6, changed=True),),
        streams=state.streams,
        slots=slots,
    )
    arrived = there_and_back(plan)
    assert isinstance(arrived, Plan)
    assert replace(arrived, slots=None) == replace(plan, slots=None)
    assert arrived.slots is not None
    assert arrived.slots.repeat_ns == 7
    assert arrived.slots.release.tolist() == [0, 1, 2, 3, 4]
    arrived.slots.latest[0] = 9


def test_memory_and_turns_arrive_as_they_were_sent() -> None:
    category = a_state().windows[0].category
    turn = TurnState(category, due_ns=5, window_ns=3, sizes=(1, 2))
    memory = MemoryState("models", 2, sizes=(("m", 1),), region=("m", "n"), weight=1, turn=turn, waiting=(turn,))
    state = replace(a_state(), memory=memory)
    assert wire.with_profile(there_and_back(wire.without_profile(state)), state.profile) == state  # type: ignore[arg-type]
    verdict = Verdict(
        admitted=False,
        test="sporadic",
        phase=2,
        reason=Reason.SWAP,
        memory=MemoryEvidence("models", 1, 2, 0, (("m", 1),)),
        swap=SwapEvidence(("m", "n"), 1, 0.5, 7, 3),
    )
    swap = SwapPlan(("m", "n"), 1, ((category, 5),), ((category, 2),), longest_ns=9, moves=4)
    plan = Plan(verdict, at_ns=3, swap=swap)
    assert there_and_back(plan) == plan
