"""Known limit: plain EDF is not sustainable (theory, section 2), so less work can make an admitted set miss.

The examples are the smallest that a random search over integer sets found. They document what the engine does today;
when a guard cures them, they turn round.
"""

import pytest

from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import Rejected
from gateway.core.types import Outcome
from tests.core.factories import MS, deliveries, every, make_profile, make_spec, make_trace, replay


def outcomes(profile, streams, execution=lambda job: job.execution_ns, **config):
    log = replay(Engine(profile, EngineConfig(**config)), make_trace(streams), execution=execution)
    assert not every([action for _, action in log], Rejected), "the exact test must admit the whole set"
    return [outcome for delivered in deliveries(log) for outcome in delivered.outcomes]


@pytest.mark.parametrize("early_dispatch", [False, True])
def test_early_dispatch_can_make_an_admitted_set_miss(early_dispatch):
    # Both frames come at 4. Planned: the short one from its joint 5 to 7 (due 9), the long one from 7 to 13 (due 16).
    # Sent early, the long one holds the device from 4 to 10.
    profile = make_profile(long=[6], short=[2])
    streams = [
        (0, make_spec(100, 12, model="long", frames=1, start_in=4)),
        (0, make_spec(100, 5, model="short", frames=1, start_in=4)),
    ]
    missed = Outcome.MISSED in (got := outcomes(profile, streams, early_dispatch=early_dispatch)) or len(got) < 2
    assert missed is early_dispatch


@pytest.mark.parametrize("shorter_ms", [0, 1])
def test_a_job_that_ends_early_can_make_another_miss(shorter_ms):
    profile = make_profile(c=[6, 7], b=[5])
    streams = [
        (0, make_spec(37, 26, model="c", frames=1, start_in=11)),
        (0, make_spec(20, 21, model="b", frames=1, start_in=19)),
        (0, make_spec(15, 11, model="c", frames=2, start_in=20)),
    ]

    def execution(job):
        return job.execution_ns - (shorter_ms * MS if job.id == 0 else 0)

    got = outcomes(profile, streams, execution, early_dispatch=False)
    assert (Outcome.MISSED in got or len(got) < 4) is bool(shorter_ms)
