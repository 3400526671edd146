"""What goes over the pipes between the gateway and its planner processes: pickles, made cheaply.

Both ends are one program in one version; nothing else is ever read. The standard pickle of a frozen dataclass with
slots asks for its fields one by one, in Python, while frames wait: 4.8 ms for a state of 1,000 streams. Here all fields
of an instance come out in one call (1.4 ms), and the profile, which never changes, goes over once.

    request  (kind, profile or None if it is the last one sent, state without its profile, further arguments)
    answer   (processor seconds it took, what the function of that kind returned)
"""

from __future__ import annotations

import copyreg
import pickle
from collections import ChainMap
from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from typing import IO, Any

from gateway.core.plan import Plan, SlotTable, SwapPlan, WindowPlan
from gateway.core.plan_state import AdmissionState, MemoryState, StreamPhase, TurnState, WindowState
from gateway.core.profile import Profile
from gateway.core.types import Category, Frame, Job, StreamSpec
from gateway.core.verdict import CounterOffer, FirstMiss, MemoryEvidence, SwapEvidence, Verdict

#: Arrays go as they lie in memory.
_PROTOCOL = 5
_NO_PROFILE = Profile()


def _by_fields(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    values = attrgetter(*(each.name for each in fields(kind)))
    return lambda instance: (kind, values(instance))


_TABLE: ChainMap[type[Any], Callable[[Any], Any]] = ChainMap(
    {
        kind: _by_fields(kind)
        for kind in (
            AdmissionState,
            StreamPhase,
            WindowState,
            Category,
            Frame,
            Job,
            StreamSpec,
            Plan,
            WindowPlan,
            SlotTable,
            Verdict,
            FirstMiss,
            CounterOffer,
            MemoryState,
            TurnState,
            SwapPlan,
            MemoryEvidence,
            SwapEvidence,
        )
    },
    copyreg.dispatch_table,
)


def write(message: object, target: IO[bytes]) -> None:
    """Send one message. Raises what writing to `target` raises."""
    pickler = pickle.Pickler(target, _PROTOCOL)
    pickler.dispatch_table = _TABLE
    pickler.dump(message)
    target.flush()


def read(source: IO[bytes]) -> Any:  # noqa: ANN401 - the requests differ
    """Receive one message.

    Raises:
        EOFError, OSError, pickle.UnpicklingError: There is none.
    """
    return pickle.load(source)


def without_profile(state: AdmissionState) -> AdmissionState:
    """Return `state` as it goes over."""
    return replace(state, profile=_NO_PROFILE)


def with_profile(state: AdmissionState, profile: Profile) -> AdmissionState:
    """Return `state` as it was."""
    return replace(state, profile=profile)
