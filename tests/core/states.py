"""States for admission tests, built without an engine."""

from functools import reduce

from gateway.core.admission import with_candidate
from gateway.core.config import EngineConfig
from gateway.core.plan_state import AdmissionState


def make_state(profile, *specs, now=0, config=None):
    """The state right after these streams s0, s1, ... were admitted at `now` (ns), whatever a test says."""
    empty = AdmissionState(now, now, (), (), (), profile, config or EngineConfig())
    return reduce(lambda state, pair: with_candidate(state, pair[1], f"s{pair[0]}"), enumerate(specs), empty)
